"""One hosted context from start to settled: its tasks, its children, its end.

A cell is settled when its body has ended, no task or thread works for it any more and all its
children are settled. Its result is there earlier when only detached children still run.

Everything here happens on the run loop; other threads come in through `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.context import Context, Frame, current_frame
from noetic_ray.engine.child import Child, Listener
from noetic_ray.engine.layers.remains import (
    Remains,
    bound_to_process,
    in_order,
    let_go_here,
    remains_of,
    remains_of_killed,
)
from noetic_ray.engine.layers.stack import LayerStack
from noetic_ray.engine.outcome import Completed, judge
from noetic_ray.engine.services import CellServices
from noetic_ray.engine.spans import context_span
from noetic_ray.engine.spec import ABORTED_PARENT, ContextSpec, Outcome, ParentInfo, Reply
from noetic_ray.engine.tasks import engine_task, own_tasks
from noetic_ray.errors import Cancelled, NoeticError, to_wire
from noetic_ray.layers.storage import Overlay
from noetic_ray.placement import Placement
from noetic_ray.protocols import KeyValues
from noetic_ray.request import RequestInfo

if TYPE_CHECKING:
    from noetic_ray.engine.client_side import ClientSide
    from noetic_ray.engine.runtime import Runtime
    from noetic_ray.engine.window.memory import WindowMemory
    from noetic_ray.layers.epochs import Lineage

RECANCEL_SECONDS = 1.0
log = logging.getLogger("noetic_ray")
_flagging = threading.Lock()


class Cell:
    """A context's machinery in the process that hosts it."""

    __slots__ = (
        "_recancel",
        "abandoned",
        "abort_started",
        "attached",
        "body_done",
        "call_ids",
        "children",
        "client",
        "closed",
        "ctx",
        "error",
        "inherited",
        "layers",
        "left_behind",
        "let_go",
        "lineage",
        "listener",
        "marks",
        "outcomes",
        "output",
        "own_cost",
        "reply",
        "rt",
        "settled",
        "span",
        "spec",
        "started",
        "task",
        "tasks",
        "threads",
        "values",
        "windows",
    )

    def __init__(self, rt: Runtime, spec: ContextSpec, listener: Listener) -> None:
        self.rt = rt
        self.spec = spec
        self.listener = listener
        self.ctx = Context(spec.id, spec.depth, spec.scope, CellServices(self))
        self.task: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.threads = 0
        self.children: dict[str, Child] = {}
        self.attached = 0
        self.body_done = False
        self.closed = False
        self.settled = False
        self.abandoned = False
        self.abort_started = False
        self.output: Any = None
        self.own_cost = 0.0
        self.call_ids: tuple[set[str], int] | None = None
        self.error: NoeticError | None = None
        self.reply: Reply | None = None
        self.outcomes: list[tuple[str, Outcome]] = []
        self.marks: dict[str, int] | None = None
        self.inherited: tuple[tuple[str, int], ...] = ()
        self.started = 0
        self.values: KeyValues = Overlay(rt.values) if spec.preview else rt.values
        self.client: ClientSide | None = None
        self.layers: LayerStack | None = None
        self.lineage: Lineage | None = None
        self.windows: WindowMemory | None = None
        self.let_go = False
        self.left_behind: list[tuple[int, list[Remains]]] = []
        self._recancel: asyncio.TimerHandle | None = None
        self.span = context_span(rt.span_sink, spec)

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Announce the context and run its step; aborted at construction, only announce it."""
        self._fill_context()
        self._announce()
        if self.spec.aborted:
            self.ctx._status = "cancelled"
            self.body_done = True
            self.abort(self.spec.abort_reason)
            self.rt.loop.call_soon(self.advance)
            return
        self.task = engine_task(self.rt.loop, self._main())
        self.task.add_done_callback(self._main_done)

    def _fill_context(self) -> None:
        ctx, spec = self.ctx, self.spec
        ctx.thread_id = spec.thread_id
        ctx.resource_id = spec.resource_id
        ctx.state = {} if spec.state is None else spec.state
        if spec.parent is not None:
            ctx._parent = (spec.parent.id, spec.parent.depth, spec.parent.thread_id)
        ctx._root_frame = Frame(ctx, spec.step.id, spec.path, self.span)
        self.rt.open_log(self)

    def _announce(self) -> None:
        spec = self.spec
        data: dict[str, Any] = {
            "parent_id": spec.parent.id if spec.parent else None,
            "depth": spec.depth,
            "step": spec.step.id,
            "node": self.rt.node,
            "pid": self.rt.pid,
            "actor": self.rt.actor_id,
        }
        if spec.origin:
            data["inherited"] = spec.origin
        if spec.detached:
            data["detached"] = True
        self.emit("context.started", data)

    async def _main(self) -> None:
        own_tasks(self.adopt)
        current_frame.set(self.ctx._root_frame)
        output: Any = None
        failure: BaseException | None = None
        try:
            await self.rt.prepare(self)
            for item in self.spec.items:
                self.ctx.item_log.append(item)
            if self.spec.layers:
                await self._open_layers()
            output = await self.rt.dispatch(self.ctx, self.spec.step, self.spec.input)
        except Completed:
            output = self.ctx.completion_value
        except BaseException as error:  # nothing may leave this task: it would end the loop
            failure = error
        if self.layers is not None and not self.ctx.aborted and not self.closed:
            failure = await self._finish_layers(failure)
        if not self.closed:
            self._body_ended(output, failure)

    async def _open_layers(self) -> None:
        self.layers = LayerStack(self)
        frame = self.ctx._root_frame
        assert frame is not None
        frame.layers = await self.layers.attach(self.spec.layers)

    async def _finish_layers(self, failure: BaseException | None) -> BaseException | None:
        assert self.layers is not None
        ctx = self.ctx
        completion = ctx.completed, ctx.completion_value
        try:
            await self.layers.finish("completed" if failure is None else "failed")
        except BaseException as error:  # an abort came in between, or a hook left by the back door
            return failure if failure is not None else error
        finally:
            ctx.completed, ctx.completion_value = completion
        return failure

    def _main_done(self, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never runs a line of `_main`."""
        if not self.body_done and not self.closed:
            failure = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._body_ended(None, failure)

    # -- tasks and threads that work for this context --------------------------------------------

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take in a task that works for this context; it ends with it at the latest."""
        if task is self.task:
            return
        self.tasks.add(task)
        task.add_done_callback(self._task_done)
        if self.closed or self.body_done:  # one made while cleaning up after an abort has a second
            task.cancel()

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if self.body_done:
            if not task.cancelled():
                task.exception()  # seen: a stray task's error has nobody left to raise it to
            self.advance()

    def thread_started(self) -> None:
        """A thread runs user code for this context: it has not settled before the thread ends."""
        self.threads += 1

    def thread_done(self) -> None:
        """Such a thread ended."""
        self.threads -= 1
        self.advance()

    # -- children --------------------------------------------------------------------------------

    def start_child(
        self,
        spec: ContextSpec,
        placement: Placement,
        on_reply: Callable[[Reply], None],
    ) -> Child:
        """Register a child and start it; under an aborted parent it starts aborted."""
        child = self.reserve_child(spec, on_reply)
        self.launch_child(child, placement)
        return child

    def reserve_child(self, spec: ContextSpec, on_reply: Callable[[Reply], None]) -> Child:
        """Register a child that is started later, or given up with a reply."""
        child = Child(self, spec, on_reply)
        self.started += 1
        self.children[spec.id] = child
        if not spec.detached:
            self.attached += 1
        return child

    def launch_child(self, child: Child, placement: Placement) -> None:
        """Start a registered child."""
        spec = child.spec
        if self.ctx.aborted:
            spec.aborted = True
            reason = self.ctx.abort_reason
            spec.abort_reason = reason if reason is not None else ABORTED_PARENT
        child.link = self.rt.launch(spec, placement, child)

    def child_replied(self, child: Child, reply: Reply) -> None:
        """Roll up what a child used and reported; forget it when it has settled."""
        self._roll_up(child, reply)
        if reply.marks:
            self.marks = _later(self.marks, reply.marks)
        first = child.reply is None
        child.reply = reply
        if first and not child.detached and child.id in self.children:
            self.attached -= 1  # only its detached children may still run
        if reply.settled:
            self.outcomes.extend(reply.outcomes)
            self.children.pop(child.id, None)
            self._take_remains(child, reply)
        if first or reply.settled:
            child.on_reply(reply)
        if self.body_done:
            self.advance()

    def _take_remains(self, child: Child, reply: Reply) -> None:
        remains = reply.remains or remains_of_killed(child.spec, reply)
        if remains:
            self.left_behind.append((child.number, remains))

    def take_remains(self, children: Sequence[Child]) -> list[Remains]:
        """What is left to do for layers of these children and all below, no longer kept here."""
        if not self.left_behind:
            return []
        numbers = {child.number for child in children}
        taken = [part for part in self.left_behind if part[0] in numbers]
        self.left_behind = [part for part in self.left_behind if part[0] not in numbers]
        return in_order(taken)

    def _roll_up(self, child: Child, reply: Reply) -> None:
        ctx = self.ctx
        seen = child.seen_tokens
        if seen is None:
            ctx.tokens.merge(reply.tokens)
        else:
            ctx.tokens.merge(reply.tokens.minus(seen))
        ctx.cost += reply.cost - child.seen_cost
        if not reply.settled:
            child.seen_tokens, child.seen_cost = reply.tokens.copy(), reply.cost

    # -- the end ---------------------------------------------------------------------------------

    def _body_ended(self, output: Any, failure: BaseException | None) -> None:
        self.output, self.error = judge(self.ctx, self.spec.step.id, output, failure)
        self.body_done = True
        if self.tasks:
            self._cancel_strays(self.rt.loop.time() + self.rt.config.kill_after)
        self.advance()

    def _cancel_strays(self, deadline: float) -> None:
        """Cancel what the body left running, again each second; after `kill_after` let it be."""
        if self.settled or self.abort_started or not self.tasks:
            return
        loop = self.rt.loop
        if loop.time() >= deadline:
            log.warning("context %s left tasks behind that do not end", self.ctx.id)
            self.tasks.clear()
            self.advance()
            return
        for task in tuple(self.tasks):
            task.cancel()
        self._recancel = loop.call_later(RECANCEL_SECONDS, self._cancel_strays, deadline)

    def advance(self) -> None:
        """Publish the result, then the settling, as soon as each is true."""
        if not self.body_done or self.settled or self.tasks or self.threads or self.attached:
            return
        if self.reply is None:
            self._finish()
        if not self.children and not self._bound_layers():
            self._settle()

    def _bound_layers(self) -> bool:
        """Let go of layers whose states cannot leave this process, before an aborted end."""
        if not self.ctx.aborted or self.layers is None or self.let_go or self.abandoned:
            return False
        self.let_go = True
        entries = bound_to_process(self)
        if entries:
            self.thread_started()  # counts what must end before the context has settled
            task = engine_task(self.rt.loop, let_go_here(self, entries))
            self.rt.keep(task)
            task.add_done_callback(lambda _: self.thread_done())
        return bool(entries)

    def _finish(self) -> None:
        """The result is final: say so in the journal and to whoever waits."""
        ctx = self.ctx
        if ctx.aborted and not isinstance(self.error, Cancelled):
            self.error = Cancelled(ctx.abort_reason)
        if ctx.aborted and not self.abort_started:  # flagged by a thread a moment ago
            self.emit("context.aborted", {"reason": ctx.abort_reason})
        ctx._status = _status(ctx, self.error)
        if self.error is None and ctx.completed:
            self.output = ctx.completion_value
        self.reply = self._make_reply()
        if self.client is not None:
            self.client.finish(self.error)
        self.rt.context_ended(self)
        if self.children:
            self.reply.marks = _later(self.marks, self.rt.journal.mark())
            self.listener.replied(self.reply)

    def _make_reply(self) -> Reply:
        ctx = self.ctx
        return Reply(
            id=ctx.id,
            status=ctx._status,  # type: ignore[arg-type]
            output=self.output if self.error is None else None,
            error=to_wire(self.error) if self.error is not None else None,
            tokens=ctx.tokens,
            cost=ctx.cost,
            state=ctx.state if self.spec.wants_state and self.error is None else None,
            settled=not self.children,
            layer_states=self._layer_states(),
            items=self._own_log() if self.spec.wants_layers else (),
            layer_usage=ctx.last_layer_usage if self.spec.parent is None else None,
        )

    def _layer_states(self) -> dict[str, Any] | None:
        """The states the parent asked for; None when there is nothing to merge."""
        wanted = self.spec.wants_layers
        if not wanted or self.layers is None or self.error is not None:
            return None
        given = {id(seed.layer) for seed in self.spec.layers}
        return {
            entry.layer.id: entry.state
            for entry in self.layers.entries
            if entry.ready and entry.layer.id in wanted and id(entry.layer) in given
        }

    def _own_log(self) -> tuple[Any, ...]:
        log = self.ctx.item_log
        return log.since(len(log) - self.rt.own_items(self)) if self.error is None else ()

    def _settle(self) -> None:
        self.settled = True
        self.closed = True
        if self._recancel is not None:
            self._recancel.cancel()
        reply = self.reply if self.reply and self.reply.settled else self._make_reply()
        if self.ctx.aborted:
            mine: Outcome = "abandoned" if self.abandoned else "settled"
            self.outcomes.append((self.ctx.id, mine))
        reply.outcomes = self.outcomes
        if self.ctx.aborted or self.left_behind:
            own = remains_of(self) if self.ctx.aborted else []
            reply.remains = own + in_order(self.left_behind)
        reply.marks = _later(self.marks, self.rt.journal.mark())
        self.rt.forget(self)
        self.listener.replied(reply)
        self.task = None

    # -- abort -----------------------------------------------------------------------------------

    def flag(self, reason: str | None) -> None:
        """Put the flag up, from any thread; the first reason stays."""
        ctx = self.ctx
        with _flagging:
            if not ctx.aborted and not self.settled:
                ctx.abort_reason = reason
                ctx.aborted = True

    def abort(self, reason: str | None) -> None:
        """Flag first, then cut what is blocked, cancel the body, and go down the tree."""
        if self.abort_started or self.settled:
            return
        self.abort_started = True
        self.flag(reason)
        reason = self.ctx.abort_reason
        self.emit("context.aborted", {"reason": reason})
        self._cancel_tasks()
        for child in tuple(self.children.values()):
            child.abort(reason)
        if not self.body_done or self.tasks or self.threads or self.children:
            self.rt.watch_abort(self)

    def _cancel_tasks(self) -> None:
        if self.settled or self.closed:
            return
        if self.task is not None and not self.body_done:
            self.task.cancel()
        for task in tuple(self.tasks):
            task.cancel()
        self._recancel = self.rt.loop.call_later(RECANCEL_SECONDS, self._cancel_tasks)

    def abandon(self) -> None:
        """Close a context whose body will not end: what it still does is refused."""
        if self.settled:
            return
        self.abandoned = True
        if self.client is not None:
            self.client.finish(Cancelled(self.ctx.abort_reason))
        self.closed = True
        self.body_done = True
        self.tasks.clear()
        self.threads = 0
        for child in tuple(self.children.values()):
            self.outcomes.append((child.id, "abandoned"))
        self.children.clear()
        self.attached = 0
        self.rt.keep(engine_task(self.rt.loop, self.rt.channels.settle(self.ctx.id)))
        self.advance()

    # -- small things ----------------------------------------------------------------------------

    def may_append(self) -> None:
        """Refuse an append to the log of a context that is closed."""
        if self.closed:
            raise Cancelled(self.ctx.abort_reason)

    def check(self) -> None:
        """Raise when this context may do nothing more."""
        if self.ctx.aborted or self.closed:
            raise Cancelled(self.ctx.abort_reason)

    def emit(self, type: str, data: dict[str, Any]) -> None:
        """Record an event of this context, unless it is closed."""
        if not self.closed and not self.spec.quiet:
            self.rt.journal.emit(self.spec.scope.run_id, type, self.spec.id, data)

    def change_request(self, request: RequestInfo) -> None:
        """What the client asked with is seen differently from here on, also by children."""
        self.spec.scope = self.ctx._scope = self.spec.scope._replace(request=request)
        self.ctx._request = None

    def as_parent(self) -> ParentInfo:
        """How this context's children know it."""
        ctx = self.ctx
        return ParentInfo(ctx.id, ctx.depth, ctx.thread_id, self.rt.actor_id)


def _status(ctx: Context, error: NoeticError | None) -> str:
    if ctx.aborted:
        return "cancelled"
    return "completed" if error is None else "failed"


def _later(marks: dict[str, int] | None, more: dict[str, int]) -> dict[str, int]:
    if not marks:
        return dict(more)
    merged = dict(marks)
    for sender, count in more.items():
        if count > merged.get(sender, 0):
            merged[sender] = count
    return merged
