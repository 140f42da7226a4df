"""run_code: the user's function, its retries, and threads for synchronous ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from noetic_ray.context import current_frame
from noetic_ray.engine.outcome import Completed, failure_of
from noetic_ray.engine.tasks import being_cancelled
from noetic_ray.errors import Cancelled, NoeticError

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


async def run_code(cell: Cell, step: Any, input: Any) -> Any:
    """Call the function, again after a failure as often as the step's retry allows."""
    retry = step.retry
    if retry is None:
        return await call_body(cell, step, input)
    attempt = 1
    while True:
        try:
            return await call_body(cell, step, input)
        except (Cancelled, Completed, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and (
                cell.ctx.aborted or being_cancelled()
            ):
                raise
            if attempt >= retry.attempts:
                raise _exhausted(step, error, attempt) from None
        await asyncio.sleep(retry.delay_for(attempt))
        cell.check()
        attempt += 1
        _note_attempt(cell, step, attempt)


def _exhausted(step: Any, error: BaseException, attempts: int) -> BaseException:
    if isinstance(error, NoeticError):
        return error
    return failure_of(step.id, error, attempts > 1)


def _note_attempt(cell: Cell, step: Any, attempt: int) -> None:
    frame = current_frame.get()
    if frame is not None:
        frame.attempt = attempt - 1
        frame.span.event("retry", {"attempt": attempt})
    cell.emit("step.started", {"step": step.id, "kind": step.kind, "attempt": attempt})


async def call_body(cell: Cell, step: Any, input: Any) -> Any:
    """One call of a run_code function."""
    if step.is_async:
        return await step.invoke(input, cell.ctx)
    return await in_thread(cell, step.invoke, input, cell.ctx)


async def in_thread(cell: Cell, fn: Callable[..., Any], *args: Any) -> Any:
    """Run synchronous user code in a thread; the context settles only after it has ended.

    A synchronous function may return an awaitable (a lambda around a coroutine does); it is
    awaited here.
    """
    cell.thread_started()
    value = await cell.rt.threads.run(fn, *args, done=cell.thread_done)
    if asyncio.iscoroutine(value) or isinstance(value, asyncio.Future):
        return await value
    return value
