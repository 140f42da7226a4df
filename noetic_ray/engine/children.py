"""Child contexts: how they are started, awaited, timed out and detached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any

from uuid_utils import uuid7

from noetic_ray.context import current_frame
from noetic_ray.engine.layers.remains import tear_down
from noetic_ray.engine.layers.spawning import merge, needs_seeding, plain_seeds, seed, wanted_back
from noetic_ray.engine.layers.stack import active
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.spec import ContextSpec, Reply
from noetic_ray.engine.tasks import engine_task, uninterrupted
from noetic_ray.errors import (
    Cancelled,
    ConfigError,
    ErrorRecord,
    NoeticError,
    StepFailed,
    from_wire,
    to_wire,
)
from noetic_ray.layers.base import check_layers
from noetic_ray.log import ItemLog
from noetic_ray.placement import Placement

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.child import Child
    from noetic_ray.engine.runtime import Codec
    from noetic_ray.layers.base import ContextLayer


def child_spec(
    cell: Cell,
    step: Any,
    input: Any,
    *,
    path: str,
    thread_id: str | None = None,
    log: ItemLog | None = None,
    detached: bool = False,
    wants_state: bool = False,
) -> ContextSpec:
    """A child of `cell`'s context. Raises ConfigError UNPICKLABLE_STATE naming the key."""
    ctx = cell.ctx
    frame = current_frame.get()
    span = frame.span if frame is not None else cell.span
    client = cell.client
    return ContextSpec(
        scope=cell.spec.scope,
        id=str(uuid7()),
        step=step,
        input=input,
        depth=ctx.depth + 1,
        parent=cell.as_parent(),
        path=path,
        state=copy_state(cell.rt.codec, ctx.state, f"context {ctx.id}"),
        inherited=log,
        thread_id=thread_id or ctx.thread_id,
        resource_id=ctx.resource_id,
        parent_span=span.span_id,
        detached=detached,
        wants_state=wants_state,
        named_thread=cell.spec.named_thread if thread_id is None else True,
        quiet=cell.spec.quiet,
        preview=cell.spec.preview,
        sent=cell.spec.sent if client is None else client.messages.known,
        trace_place=cell.spec.trace_place if client is None else client.trace.place,
        marks=cell.spec.marks if client is None else client.marks(),
    )


async def give_layers(
    cell: Cell,
    spec: ContextSpec,
    own: Sequence[ContextLayer[Any]] | None = None,
    with_items: bool = True,
) -> None:
    """Give a child the layers active here, or `own`, with states seeded by the parent's."""
    here = active(cell)
    if needs_seeding(here, own):
        await seed(cell, spec, here, own, with_items)
    else:
        spec.layers = plain_seeds(here, own)
    spec.wants_layers = wanted_back(spec)


def give_plain_layers(cell: Cell, spec: ContextSpec) -> bool:
    """The same at once, where no hook has a say; False where one has."""
    here = active(cell)
    if here:
        if needs_seeding(here, None):
            return False
        spec.layers = plain_seeds(here, None)
        spec.wants_layers = wanted_back(spec)
    return True


def copy_state(codec: Codec, state: Any, whose: str) -> Any:
    """A context's own copy of a state it is given. Raises ConfigError naming a key."""
    if state is None or (type(state) is dict and not state):
        return None
    return copy_value(codec, state, whose)


def copy_value(codec: Codec, state: Any, whose: str) -> Any:
    """The same for a value whose emptiness means something."""
    try:
        return codec.loads(codec.dumps(state))
    except Exception as error:
        key = _unpicklable_key(codec.dumps, state)
        raise ConfigError(
            "UNPICKLABLE_STATE",
            f"state{key} of {whose} cannot be copied: {error}",
            "keep only picklable values in a state",
        ) from None


def _unpicklable_key(dumps: Callable[[Any], bytes], state: Any) -> str:
    if isinstance(state, dict):
        for key, value in state.items():
            try:
                dumps(value)
            except Exception:
                return f"[{key!r}]"
    return ""


def resolve_placement(cell: Cell, *wishes: Placement | str | None) -> Placement:
    """The first placement that was asked for, else the harness's."""
    for wish in wishes:
        if wish is not None:
            return Placement.of(wish)
    return cell.rt.config.placement


def result_of(reply: Reply) -> Any:
    """A settled child's output; its error is raised."""
    if reply.error is not None:
        raise from_wire(reply.error)
    return reply.output


async def spawn(
    cell: Cell,
    step: Any,
    input: Any,
    timeout: float | None = None,
    placement: Placement | str | None = None,
    path: str | None = None,
    layers: Sequence[ContextLayer[Any]] | None = None,
) -> Any:
    """Run `step` in a child and wait; however this ends, the child has ended first."""
    cell.check()
    if timeout is not None and timeout <= 0:
        raise ConfigError(
            "INVALID_TIMEOUT", f"spawn of {step.id!r} got timeout {timeout}", "use seconds above 0"
        )
    prefix = path if path is not None else _here(cell)
    here = active(cell)
    spec = child_spec(cell, step, input, path=prefix)
    if here or layers:
        await give_layers(cell, spec, check_layers(layers, "ctx.spawn") if layers else layers)
        cell.check()
    done: asyncio.Future[Reply] = cell.rt.loop.create_future()
    child = cell.start_child(
        spec, resolve_placement(cell, placement), lambda reply: _resolve(done, reply)
    )
    timer = None
    if timeout is not None:
        timer = cell.rt.loop.call_later(timeout, _time_out, done, timeout)
    try:
        reply = await _reply_of(cell, child, done, timeout)
    except TimeoutError as error:
        raise StepFailed(step.id, ErrorRecord.of(error), False) from None
    except asyncio.CancelledError:
        if cell.ctx.aborted:
            raise Cancelled(cell.ctx.abort_reason) from None
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if cell.ctx.aborted:
        raise Cancelled(cell.ctx.abort_reason)
    if reply.layer_states is not None:
        reply.output = await merge(cell, here, spec, reply)
    return result_of(reply)


async def _reply_of(
    cell: Cell, child: Child, done: asyncio.Future[Reply], timeout: float | None
) -> Reply:
    """The child's reply; whatever else ends the wait, the child has ended first."""
    try:
        return await done
    except TimeoutError:
        await end_children(cell, [child], f"timeout after {timeout} s")
        raise
    except asyncio.CancelledError:
        await end_children(cell, [child], "the spawning step was cancelled")
        raise


def _here(cell: Cell) -> str:
    frame = current_frame.get()
    return frame.path if frame is not None else cell.spec.path


def _resolve(done: asyncio.Future[Reply], reply: Reply) -> None:
    if not done.done():
        done.set_result(reply)


def _time_out(done: asyncio.Future[Reply], timeout: float) -> None:
    if not done.done():
        done.set_exception(TimeoutError(f"the child did not end within {timeout} s"))


async def end_children(cell: Cell, children: Sequence[Child], reason: str) -> None:
    """Abort children and wait until each has settled, was killed or was abandoned."""
    waiting = [child for child in children if child.id in cell.children]
    if not waiting:
        return
    left = len(waiting)
    settled: asyncio.Future[None] = cell.rt.loop.create_future()

    def one_less(child: Child, before: Callable[[Reply], None], reply: Reply) -> None:
        nonlocal left
        before(reply)
        if reply.settled:
            left -= 1
            if not left and not settled.done():
                settled.set_result(None)

    for child in waiting:
        before = child.on_reply
        child.on_reply = lambda reply, c=child, b=before: one_less(c, b, reply)  # type: ignore[misc]
        child.abort(reason)
    await uninterrupted(settled)
    if not cell.ctx.aborted:
        await tear_down(cell, cell.take_remains(waiting))


def unstarted(id: str, error: BaseException) -> Reply:
    """The reply of a child that was given up before it started."""
    if isinstance(error, Completed | asyncio.CancelledError):
        return Reply(id, "cancelled", error=to_wire(Cancelled("its parent ended first")))
    reason = error if isinstance(error, NoeticError) else NoeticError(repr(error))
    return Reply(id, "failed", error=to_wire(reason))


class Detached:
    """A running child and its result; implements `context.DetachedHandle`."""

    def __init__(self, cell: Cell, step: Any, input: Any, thread_id: str | None) -> None:
        spec = child_spec(cell, step, input, path=_here(cell), thread_id=thread_id, detached=True)
        self._done: asyncio.Future[Reply] = cell.rt.loop.create_future()
        self._layers = active(cell)
        self._child = cell.reserve_child(spec, self._replied)
        if give_plain_layers(cell, spec):
            cell.launch_child(self._child, resolve_placement(cell))
        else:
            self._own(self._seed_and_launch())

    def _own(self, coro: Coroutine[Any, Any, None]) -> None:
        """The runtime's task: a parent that ends does not take its detached children along."""
        runtime = self._child.cell.rt
        runtime.keep(engine_task(runtime.loop, coro))

    async def _seed_and_launch(self) -> None:
        child = self._child
        cell = child.cell
        try:
            await give_layers(cell, child.spec)
        except BaseException as error:
            if not cell.ctx.aborted:
                child.replied(unstarted(child.id, error))
                return
        cell.launch_child(child, resolve_placement(cell))

    def _replied(self, reply: Reply) -> None:
        if self._done.done():
            return
        cell = self._child.cell
        if reply.layer_states is None or cell.body_done:
            self._done.set_result(reply)
        else:
            self._own(self._merge(reply))

    async def _merge(self, reply: Reply) -> None:
        child = self._child
        try:
            reply.output = await merge(child.cell, self._layers, child.spec, reply)
        finally:
            _resolve(self._done, reply)

    @property
    def id(self) -> str:
        """The child context's id."""
        return self._child.id

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed`, `cancelled` or `lost`."""
        return self._child.reply.status if self._child.reply else "running"

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()

    async def result(self, timeout: float | None = None) -> Any:
        """The child's output; its error is raised. TimeoutError leaves the child running."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait((self._done,))
        except asyncio.CancelledError:
            ctx = self._child.cell.ctx
            if ctx.aborted:
                raise Cancelled(ctx.abort_reason) from None
            raise
        return result_of(self._done.result())

    def abort(self, reason: str | None = None) -> None:
        """Abort the child and everything below it."""
        self._child.abort(reason)
