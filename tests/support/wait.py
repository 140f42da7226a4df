"""Waiting for something that has no event of its own."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], object], timeout: float = 10.0) -> None:
    """Return when `predicate()` is true; fail with a clear message after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{predicate} was not true within {timeout} s")
        time.sleep(0.005)


def stays(predicate: Callable[[], object], seconds: float) -> bool:
    """Whether `predicate()` is true now and at every look for so many seconds."""
    deadline = time.monotonic() + seconds
    while predicate():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.02)
    return False
