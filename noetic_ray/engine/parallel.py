"""in_parallel: one child context per path, started together, merged by mode."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Sequence
from typing import Any

from noetic_ray.context import current_frame
from noetic_ray.engine.cell import Cell
from noetic_ray.engine.child import Child
from noetic_ray.engine.children import (
    child_spec,
    end_children,
    give_layers,
    give_plain_layers,
    resolve_placement,
    unstarted,
)
from noetic_ray.engine.flow import callback
from noetic_ray.engine.layers.spawning import merge
from noetic_ray.engine.layers.stack import active
from noetic_ray.engine.spec import Reply
from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import (
    Cancelled,
    NoeticError,
    ParallelFailed,
    from_wire,
)
from noetic_ray.results import SettleResult
from noetic_ray.steps import Step

SIBLING_FAILED = "sibling failed"
RACE_LOST = "race lost"


class _Group:
    """The paths of one in_parallel step while they run."""

    def __init__(
        self, cell: Cell, step: Any, paths: Sequence[Any], inputs: Sequence[Any], placement: Any
    ) -> None:
        self.cell = cell
        self.step = step
        self.paths = paths
        self.inputs = inputs
        self.log = cell.ctx.item_log.fork() if len(cell.ctx.item_log) else None
        self.origin = (*cell.inherited, (cell.ctx.id, cell.rt.own_items(cell)))
        self.placement = resolve_placement(cell, placement)
        self.results: list[tuple[bool, Any] | None] = [None] * len(paths)
        self.order: list[int] = []
        self.running: dict[int, Child] = {}
        self.next = 0
        self.winner: int | None = None
        self.winner_state: Any = None
        self.layers = active(cell)
        self.merging: list[int] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.reason = RACE_LOST if step.mode == "race" else SIBLING_FAILED
        self.stopped = False
        self.changed: asyncio.Future[None] = cell.rt.loop.create_future()
        self.variables = contextvars.copy_context()

    def fill(self) -> None:
        """Start paths up to the limit."""
        limit = self.step.concurrency or len(self.paths)
        while not self.stopped and self.next < len(self.paths) and len(self.running) < limit:
            index = self.next
            self.next += 1
            self._start(index)
        if not self.running:
            self._wake()

    def _start(self, index: int) -> None:
        frame = current_frame.get()
        prefix = frame.path if frame is not None else self.cell.spec.path
        spec = child_spec(
            self.cell,
            self.paths[index],
            self.inputs[index],
            path=f"{prefix}[{index}]",
            wants_state=self.step.mode == "race",
        )
        if self.log is not None:
            spec.inherited = self.log
            spec.origin = self.origin
        child = self.cell.reserve_child(spec, lambda reply: self._ended(index, reply))
        self.running[index] = child
        if give_plain_layers(self.cell, spec):
            self.cell.launch_child(child, self.placement)
        else:
            self._own(self._seed_and_launch(child))

    async def _seed_and_launch(self, child: Child) -> None:
        """Start a path whose layers' states have to be made first."""
        failure: BaseException | None = None
        try:
            await give_layers(self.cell, child.spec, with_items=False)
        except BaseException as error:
            failure = error
        if failure is None and not self.stopped:
            self.cell.launch_child(child, self.placement)
            return
        if failure is None:
            failure = Cancelled(self.reason)
        child.replied(unstarted(child.id, failure))

    def _own(self, coro: Coroutine[Any, Any, None]) -> None:
        task = engine_task(self.cell.rt.loop, coro)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        self.cell.adopt(task)

    def _ended(self, index: int, reply: Reply) -> None:
        """A path has a result; that its detached children have settled too is not news here."""
        if self.results[index] is not None or index in self.merging:
            return
        if reply.layer_states is not None and self._is_wanted(index):
            self.merging.append(index)
            self._own(self._merge(index, reply))
        else:
            self._finished(index, reply)

    def _is_wanted(self, index: int) -> bool:
        """A race's losers are not merged; the first to succeed is its winner from then on."""
        if self.step.mode != "race":
            return True
        if self.winner is None:
            self.winner = index
        return self.winner == index

    async def _merge(self, index: int, reply: Reply) -> None:
        """Let the layers take in what a path brought back; then it counts as ended."""
        try:
            spec = self.running[index].spec
            reply.output = await merge(self.cell, self.layers, spec, reply)
        finally:
            self._finished(index, reply)

    def _finished(self, index: int, reply: Reply) -> None:
        self._record(index, reply)
        self.running.pop(index, None)
        try:
            self.variables.run(self.fill)  # not as part of the path that has just ended
        except NoeticError as error:
            self.stopped = True
            if not self.changed.done():
                self.changed.set_exception(error)

    def _record(self, index: int, reply: Reply) -> None:
        ok = reply.error is None
        self.results[index] = (ok, reply.output if ok else from_wire(reply.error or {}))
        self.order.append(index)
        mode = self.step.mode
        if ok and mode == "race" and self.winner in (None, index):
            self.winner = index
            self.winner_state = reply.state
            self._stop()
        elif not ok and mode == "all" and not isinstance(self.results[index][1], Cancelled):  # type: ignore[index]
            self._stop()

    def _stop(self) -> None:
        self.stopped = True
        self._wake()

    def _wake(self) -> None:
        if not self.changed.done():
            self.changed.set_result(None)

    async def finish(self) -> None:
        """Return when every path has a result; those not wanted any more are aborted first."""
        try:
            self.fill()
            await self.changed
        except (asyncio.CancelledError, NoeticError):
            self.stopped = True
            await self._end("the spawning step was cancelled")
            raise
        await self._end(self.reason)

    async def _end(self, reason: str) -> None:
        """End what still runs, and let merges that have begun come to their end."""
        await end_children(self.cell, tuple(self.running.values()), reason)
        while self.tasks:
            await asyncio.wait(tuple(self.tasks))


async def in_parallel(cell: Cell, step: Any, input: Any) -> Any:
    """Run the paths and merge what they gave."""
    paths = await _paths_of(cell, step, input)
    if not paths and step.mode == "race":
        raise ParallelFailed([], [], step.id)
    group = _Group(cell, step, paths, [input] * len(paths), step.placement)
    await _run_group(cell, group)
    value = _merged(cell, step, group)
    if step.merge is not None:
        return await callback(cell, step.merge, value, cell.ctx)
    return value


async def map_inputs(cell: Cell, step: Any, input: Any) -> Any:
    """Run one step over many inputs."""
    group = _Group(cell, step, [step.step] * len(input), input, None)
    await _run_group(cell, group)
    return _merged(cell, step, group)


async def _run_group(cell: Cell, group: _Group) -> None:
    try:
        await group.finish()
    except asyncio.CancelledError:
        if cell.ctx.aborted:
            raise Cancelled(cell.ctx.abort_reason) from None
        raise
    cell.check()


async def _paths_of(cell: Cell, step: Any, input: Any) -> list[Any]:
    paths = step.paths
    if callable(paths) and not isinstance(paths, Step):
        paths = await callback(cell, paths, input, cell.ctx)
    paths = list(paths)
    for path in paths:
        if not isinstance(path, Step):
            raise TypeError(f"a path of {step.id!r} is {type(path).__name__}, not a step")
    return paths


def _merged(cell: Cell, step: Any, group: _Group) -> Any:
    if step.mode == "settle":
        return [_settle_result(group, i) for i in range(len(group.paths))]
    if step.mode == "race":
        return _race_result(cell, step, group)
    return _all_results(step, group)


def _result(group: _Group, index: int) -> tuple[bool, Any]:
    return group.results[index] or (False, Cancelled(SIBLING_FAILED))


def _settle_result(group: _Group, index: int) -> SettleResult:
    ok, value = _result(group, index)
    step_id = group.paths[index].id
    if ok:
        return SettleResult(step_id, "fulfilled", value, None)
    return SettleResult(step_id, "rejected", None, value)


def _all_results(step: Any, group: _Group) -> list[Any]:
    results = [_result(group, i) for i in range(len(group.paths))]
    if all(ok for ok, _ in results):
        return [value for _, value in results]
    named = list(zip((path.id for path in group.paths), results, strict=True))
    raise ParallelFailed(
        [(id, value) for id, (ok, value) in named if ok],
        [(id, value) for id, (ok, value) in named if not ok],
        step.id,
    )


def _race_result(cell: Cell, step: Any, group: _Group) -> Any:
    if group.winner is None:
        failed = [(group.paths[i].id, _result(group, i)[1]) for i in group.order]
        raise ParallelFailed([], failed, step.id)
    if group.winner_state is not None:
        cell.ctx.state = group.winner_state
    return _result(group, group.winner)[1]
