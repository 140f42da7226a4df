"""Threads for synchronous user code: a pool that grows, made of daemons.

The standard executor joins its threads when the interpreter ends; a body that never returns
would then hang the exit of the whole process.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from types import CoroutineType
from typing import Any

IDLE_SECONDS = 10.0
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], None]]


class ThreadPool:
    """Runs each job at once, on an idle thread if there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Job | None]] = []

    def run(
        self, fn: Callable[..., Any], *args: Any, done: Callable[[], None]
    ) -> asyncio.Future[Any]:
        """Call `fn` in a thread, with the caller's context variables.

        The future is the caller's to await or cancel; `done` is called on the loop when the
        thread has really finished, whatever became of the future.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        context = contextvars.copy_context()
        self._put((lambda: context.run(fn, *args), loop, future, done))
        return future

    def _put(self, job: Job) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(job)
            return
        inbox = queue.SimpleQueue()
        inbox.put(job)
        threading.Thread(target=self._work, args=(inbox,), name="noetic-sync", daemon=True).start()

    def _work(self, inbox: queue.SimpleQueue[Job | None]) -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                job = inbox.get()  # a job was put in just now
            if job is None:
                return
            _perform(job)
            del job
            with self._lock:
                self._idle.append(inbox)

    def close(self) -> None:
        """Let idle threads end now; busy ones end when their job does and nobody reuses them."""
        with self._lock:
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)


def _perform(job: Job) -> None:
    fn, loop, future, done = job
    value: Any = None
    error: BaseException | None = None
    try:
        value = fn()
    except StopIteration as stop:
        error = RuntimeError(f"StopIteration raised: {stop.value!r}")
    except BaseException as raised:
        error = raised
    try:
        loop.call_soon_threadsafe(_deliver, future, value, error, done)
    except RuntimeError:  # the loop closed while the thread ran
        return


def _deliver(
    future: asyncio.Future[Any], value: Any, error: BaseException | None, done: Callable[[], None]
) -> None:
    if not future.done():
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    elif isinstance(value, CoroutineType):
        value.close()  # nobody is left to await it
    done()
