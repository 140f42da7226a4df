"""conditional, sequence, loop and every: steps that run other steps in the same context."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.code import in_thread
from noetic_ray.errors import (
    Cancelled,
    ChannelTimeout,
    ConfigError,
    ErrorRecord,
    NoeticError,
    StepFailed,
)
from noetic_ray.items import developer_message, item_text, last_assistant_text
from noetic_ray.signatures import is_async
from noetic_ray.steps import Step
from noetic_ray.until import Snapshot, Verdict

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


async def callback(cell: Cell, fn: Any, *args: Any) -> Any:
    """Call a user's callback, sync or async; a synchronous one runs in a thread."""
    if is_async(fn):
        return await fn(*args)
    return await in_thread(cell, fn, *args)


async def conditional(cell: Cell, step: Any, input: Any) -> Any:
    """Run the step that `route` picks; None returns the input as it is."""
    chosen = await callback(cell, step.route, input, cell.ctx)
    if chosen is None:
        return input
    if not isinstance(chosen, Step):
        raise TypeError(f"route of {step.id!r} returned {type(chosen).__name__}, not a step")
    return await cell.rt.dispatch(cell.ctx, chosen, input)


async def sequence(cell: Cell, step: Any, input: Any) -> Any:
    """Run steps one after the other, each with the output of the one before."""
    value = input
    for part in step.steps:
        value = await cell.rt.dispatch(cell.ctx, part, value)
    return value


class _Turns:
    """What a loop knows while it runs."""

    __slots__ = ("count", "elapsed_from", "history", "last", "limit", "predicate")

    def __init__(self, step: Any, now: float) -> None:
        self.count = 0
        self.history: list[Any] = []
        self.limit = step.max_history
        self.last: Any = None
        self.elapsed_from = now
        self.predicate = step.until.fresh()

    def add(self, output: Any, counts: bool) -> None:
        self.count += counts
        self.last = output
        self.history.append(output)
        if len(self.history) > self.limit:
            del self.history[: len(self.history) - self.limit]


async def loop(cell: Cell, step: Any, input: Any) -> Any:
    """Run the body until `until` says stop and no inbox message asks for more."""
    turns = _Turns(step, cell.rt.loop.time())

    async def run_sync(fn: Any, *args: Any) -> Any:
        return await in_thread(cell, fn, *args)

    value = input
    done = False
    for _ in range(step.max_iterations):
        cell.check()
        output, end = await _iteration(cell, step, turns, value, done)
        if end == "again":
            continue
        done = True
        turns.add(output, counts=end == "completed")
        verdict = await turns.predicate.check(_snapshot(cell, turns), run_sync)
        if verdict.stop and not await _more_work(cell, step):
            return output
        value = await _next_input(cell, step, output, verdict)
    limit = RuntimeError(f"no end after {step.max_iterations} iterations")
    raise StepFailed(step.id, ErrorRecord.of(limit), True)


async def _iteration(
    cell: Cell, step: Any, turns: _Turns, value: Any, has_output: bool
) -> tuple[Any, str]:
    """One pass through the body: its output and `completed`, `skipped`, or `again`."""
    try:
        for part in step.steps:
            value = await cell.rt.dispatch(cell.ctx, part, value)
        return value, "completed"
    except (Cancelled, ConfigError):  # another try changes nothing about either
        raise
    except NoeticError as error:
        if step.on_error is None:
            raise
        decision = await callback(cell, step.on_error, error, cell.ctx)
        if decision == "retry" or (decision == "skip" and not has_output):
            return None, "again"
        if decision == "skip":
            return turns.last, "skipped"
        raise


def _snapshot(cell: Cell, turns: _Turns) -> Snapshot:
    ctx = cell.ctx
    last = turns.last
    text = last if isinstance(last, str) else last_assistant_text(ctx.item_log.items)
    return Snapshot(
        step_count=turns.count,
        tokens=ctx.tokens,
        elapsed=cell.rt.loop.time() - turns.elapsed_from,
        cost=ctx.cost,
        last_output=last,
        last_text=text,
        history=tuple(turns.history),
        depth=ctx.depth,
        last_step_meta=ctx.last_step_meta,
    )


async def _more_work(cell: Cell, step: Any) -> bool:
    """Whether the inbox has a message; it is logged for the next iteration."""
    if step.inbox is None:
        return False
    services = cell.ctx._services
    if step.park_timeout is None or step.park_timeout > 0:
        try:
            values = await services.recv(step.inbox, 1, step.park_timeout)
        except ChannelTimeout:
            return False
    else:
        values = await services.try_recv(step.inbox)
    if not values:
        return False
    message = values[0]
    text = message if isinstance(message, str) else item_text(message) or repr(message)
    cell.ctx.item_log.append(developer_message(text))
    return True


async def _next_input(cell: Cell, step: Any, output: Any, verdict: Verdict) -> Any:
    if step.prepare_next is not None:
        return await callback(cell, step.prepare_next, output, verdict, cell.ctx)
    if verdict.feedback is not None:
        return verdict.feedback
    return output


async def every(cell: Cell, step: Any, input: Any) -> Any:
    """Run a step now and then again at each interval, or when a channel wakes it. Never ends."""
    services: Any = cell.ctx._services
    while True:
        cell.check()
        try:
            await cell.rt.dispatch(cell.ctx, step.step, input)
        except Cancelled:
            raise
        except NoeticError:
            if step.on_error != "continue":
                raise
        pause = max(0.0, step.interval + random.uniform(-step.jitter, step.jitter))
        if step.wake is None:
            await asyncio.sleep(pause)
        elif pause > 0:
            await services.wait_send(step.wake, pause)
