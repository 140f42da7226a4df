"""Says in which environment it was started, then stays until its stdin ends and exits with 7."""

from __future__ import annotations

import json
import os
import sys

print(json.dumps(dict(os.environ)), flush=True)
sys.stdin.read()
sys.exit(7)
