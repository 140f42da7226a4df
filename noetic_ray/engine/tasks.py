"""Event loops of our own, and tasks that cannot take them down.

A SystemExit or KeyboardInterrupt that leaves a task ends `run_forever`; every context on the loop
would hang. `LoopThread` starts the loop again, and the task factory turns such exits, in tasks
that user code makes, into ordinary failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future as ThreadFuture
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger("noetic_ray")

_owner: ContextVar[Callable[[asyncio.Task[Any]], None] | None] = ContextVar(
    "noetic_task_owner", default=None
)


class ExitInTask(Exception):
    """A task of user code called sys.exit() or was interrupted; ``exit`` is what it raised."""

    def __init__(self, exit: BaseException) -> None:
        self.exit = exit
        super().__init__(f"{type(exit).__name__}: {exit}")


def own_tasks(adopt: Callable[[asyncio.Task[Any]], None] | None) -> None:
    """From here on, tasks made in this execution context are reported to `adopt`."""
    _owner.set(adopt)


@contextlib.contextmanager
def shared_tasks() -> Iterator[None]:
    """Tasks made in this block may work for several contexts: none takes them along at its end.

    A connection pool looks a host up, in a task, for all who wait for it.
    """
    token = _owner.set(_nobody)
    try:
        yield
    finally:
        _owner.reset(token)


def _nobody(task: asyncio.Task[Any]) -> None:
    """Adopts nothing."""


def engine_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], name: str | None = None
) -> asyncio.Task[T]:
    """A task of the engine's own: not adopted by a context, not guarded."""
    return asyncio.Task(coro, loop=loop, name=name)


async def _guarded(coro: Generator[Any, None, T] | Coroutine[Any, Any, T]) -> T:
    try:
        return await coro  # type: ignore[misc,no-any-return]
    except (SystemExit, KeyboardInterrupt) as exit_:
        raise ExitInTask(exit_) from None


def _factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
    adopt = _owner.get()
    if adopt is None:
        return asyncio.Task(coro, loop=loop, **options)
    task = asyncio.Task(_guarded(coro), loop=loop, **options)
    adopt(task)
    return task


class LoopThread:
    """A daemon thread that runs one event loop until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(_factory)
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int:
        """The thread's id, as `threading.get_ident` gives it."""
        return self._thread.ident or 0

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopping:
            try:
                self.loop.run_forever()
            except BaseException as error:  # a task was ended by SystemExit or an async exception
                log.warning("the run loop was interrupted by %r and goes on", error)
        self.loop.close()

    def submit(self, coro: Coroutine[Any, Any, T]) -> ThreadFuture[T]:
        """Start `coro` on the loop from another thread."""
        return asyncio.run_coroutine_threadsafe(coro, self.loop)

    def call(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run `coro` on the loop and wait for it here. Ctrl-C is seen at once."""
        future = self.submit(coro)
        try:
            return future.result(timeout)
        except BaseException:
            if not future.done():
                future.cancel()
            raise

    def inside(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return threading.get_ident() == self._thread.ident

    def stop(self, timeout: float = 2.0) -> None:
        """Cancel what still runs, end the loop and join its thread."""
        if self._stopping or not self._thread.is_alive():
            return
        with contextlib.suppress(RuntimeError, TimeoutError):
            self.submit(_cancel_all(self.loop)).result(timeout)
        self._stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.inside():
            self._thread.join(timeout)


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = [t for t in asyncio.all_tasks(loop) if t is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
    await loop.shutdown_asyncgens()


async def uninterrupted(waiting: asyncio.Future[T]) -> T:
    """Wait for a future to its end, whatever happens to the waiting task.

    A cancellation that came meanwhile is raised again afterwards, once.
    """
    cancelled: asyncio.CancelledError | None = None
    while not waiting.done():
        try:
            await asyncio.wait((waiting,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return waiting.result()


def being_cancelled() -> bool:
    """Whether somebody asked the current task to stop (as opposed to code raising by itself)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def maybe_await(value: T | Awaitable[T]) -> T:
    """Await what a callback returned, if it is awaitable."""
    if isinstance(value, Awaitable):
        return await value
    return value
