"""How a run looks on a terminal: while it goes on, as a tree, and when it was aborted."""

from __future__ import annotations
