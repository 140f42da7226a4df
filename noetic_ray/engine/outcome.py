"""What the end of a body means: a result, a failure, a cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

from noetic_ray.context import Context
from noetic_ray.engine.tasks import ExitInTask, being_cancelled
from noetic_ray.errors import Cancelled, ErrorRecord, NoeticError, StepFailed


class Completed(BaseException):
    """Unwinds a context that called `complete`; user code's `except Exception` does not see it."""


def translate(ctx: Context, step_id: str, error: BaseException) -> BaseException:
    """What a step raises for an error that came out of its body.

    Errors of ours pass unchanged. A cancellation is an abort only when this context was aborted;
    it passes through when somebody cancelled the waiting task; raised by the body itself it is a
    failure like any other.
    """
    if isinstance(error, (NoeticError, Completed, GeneratorExit)):
        return error
    if isinstance(error, asyncio.CancelledError):
        if ctx.aborted:
            return Cancelled(ctx.abort_reason)
        if being_cancelled():
            return error
    return failure_of(step_id, error)


def failure_of(step_id: str, error: BaseException, retries_exhausted: bool = False) -> StepFailed:
    """A step's failure, with what its code raised as the cause."""
    cause = error.exit if isinstance(error, ExitInTask) else error
    return StepFailed(step_id, ErrorRecord.of(cause), retries_exhausted)


def judge(
    ctx: Context, step_id: str, output: Any, failure: BaseException | None
) -> tuple[Any, NoeticError | None]:
    """A context's final output and error."""
    if ctx.aborted:
        return None, Cancelled(ctx.abort_reason)
    if failure is None:
        return output, None
    if isinstance(failure, NoeticError):
        return None, failure
    return None, failure_of(step_id, failure)
