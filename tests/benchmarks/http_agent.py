"""The agent that is served for the measurement of first words."""

from __future__ import annotations

import noetic_ray as nr

agent = nr.call_model("agent", "bench")
