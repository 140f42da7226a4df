"""SIGTERM on the driver: abort every run, close every harness, then end as before.

Ray's own handler, installed by `ray.init`, is called afterwards. Ray jobs send SIGKILL three
seconds after SIGTERM, so the aborts get one and a half and everything together two and a half.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from types import FrameType
from typing import Any

from noetic_ray.harness import registry

GRACE_SECONDS = 1.5
LIMIT_SECONDS = 2.5
log = logging.getLogger("noetic_ray")
_previous: Any = None


def install() -> None:
    """Take SIGTERM over, in the main thread; elsewhere nothing is changed."""
    global _previous
    if threading.current_thread() is not threading.main_thread():
        return
    current = signal.getsignal(signal.SIGTERM)
    if current is not _terminate:
        _previous = current
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """In threads, side by side: the main thread may hold a lock at this very moment."""
    ending = [
        threading.Thread(target=_end, args=(harness,), daemon=True)
        for harness in registry.all_open()
    ]
    for thread in ending:
        thread.start()
    deadline = time.monotonic() + LIMIT_SECONDS
    for thread in ending:
        thread.join(max(0.0, deadline - time.monotonic()))
    try:
        if callable(_previous):
            _previous(signum, frame)
    except SystemExit as exit_:
        # Ray's handler exits with the bare number, which reads as a failure, not as a signal.
        if exit_.code != signum:
            raise
    raise SystemExit(128 + signum)


def _end(harness: Any) -> None:
    try:
        harness.terminate(GRACE_SECONDS)
    except Exception as error:
        log.warning("harness %r did not close properly: %r", harness.name, error)
