"""The harnesses open in this process, by name."""

from __future__ import annotations

import atexit
import contextlib
import threading
from typing import Any

_lock = threading.RLock()
_open: dict[str, Any] = {}


def replace(harness: Any) -> None:
    """Enter a harness; one of the same name is closed first."""
    with _lock:
        old = _open.pop(harness.name, None)
    if old is not None and old is not harness:
        old.close()
    with _lock:
        _open[harness.name] = harness


def remove(harness: Any) -> None:
    """Take a harness out, if it is the one in the list."""
    with _lock:
        name: str = harness.name
        if _open.get(name) is harness:
            del _open[name]


def all_open() -> list[Any]:
    """Every open harness."""
    with _lock:
        return list(_open.values())


@atexit.register
def _close_all() -> None:
    for harness in all_open():
        with contextlib.suppress(Exception):
            harness.close()
