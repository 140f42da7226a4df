"""Starts contexts in other actors, and brings their replies home. One per process.

What one turn of the loop asks for goes out together: one lease call, one `run` call per actor,
whose answer returns children in groups as they end. A lone child on an idle actor is one call.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from noetic_ray.actors.pool import ActorRef, LocalPool
from noetic_ray.actors.wire import ProgramPacker, pack_specs, unpack_reply
from noetic_ray.context import ContextSnapshot
from noetic_ray.engine.child import Listener
from noetic_ray.engine.spans import close_failed, context_span
from noetic_ray.engine.spec import ContextSpec, Outcome, ParentInfo, Reply, Status
from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import Cancelled, ContextLost, NoeticError, to_wire
from noetic_ray.layers.base import ContextLayer
from noetic_ray.placement import Placement
from noetic_ray.protocols import JournalSink

HURRY_SECONDS = 1.0
_groups = itertools.count(1)


class RemoteLink:
    """A child in another actor, from before its lease until it has settled."""

    __slots__ = (
        "_launcher",
        "aborted",
        "actor",
        "listener",
        "lost",
        "reason",
        "replied",
        "settled",
        "spec",
        "started",
    )

    def __init__(self, launcher: Launcher, spec: ContextSpec, listener: Listener) -> None:
        self._launcher = launcher
        self.spec = spec
        self.listener = listener
        self.actor: ActorRef | None = None
        self.aborted = spec.aborted
        self.reason = spec.abort_reason
        self.replied = False
        self.settled = False
        self.lost: str | None = None
        self.started = time.time_ns()

    def abort(self, reason: str | None) -> None:
        """Abort the child where it is; before it has started, it never will."""
        if self.aborted or self.settled:
            return
        self.aborted, self.reason = True, reason
        if self.lost is not None:
            self._launcher.hurry(self)
        elif self.actor is not None:
            self._launcher.send_abort(self.actor, self.spec.id, reason)
        else:
            self._launcher.loop.call_soon(self._launcher.never_started, self)


class Launcher:
    """Implements `engine.runtime.Elsewhere`; in the driver it starts the roots."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        supervisor: Any,
        holder: str,
        journal: JournalSink,
        kill_after: float,
        layers: Sequence[ContextLayer[Any]] = (),
        fresh_programs: bool = False,
        span_sink: Callable[[Any], None] | None = None,
    ) -> None:
        self.loop = loop
        self.pool = LocalPool(loop, supervisor, holder)
        self._holder = holder
        self._journal = journal
        self._kill_after = kill_after
        self._fresh = fresh_programs
        self._span_sink = span_sink
        self._packer = ProgramPacker(layers)
        self._pending: dict[Placement, list[RemoteLink]] = {}
        self._aborts: dict[str, tuple[ActorRef, dict[str | None, list[str]]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- start -----------------------------------------------------------------------------------

    def launch(self, spec: ContextSpec, placement: Placement, listener: Listener) -> RemoteLink:
        """Start a context in an actor; returns before anything is sent."""
        link = RemoteLink(self, spec, listener)
        if link.aborted:
            self.loop.call_soon(self.never_started, link)
            return link
        if not self._pending:
            self.loop.call_soon(self._flush)
        self._pending.setdefault(placement, []).append(link)
        return link

    def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        for placement, links in pending.items():
            wanted = [link for link in links if not link.aborted]
            if not wanted:
                continue
            idle = self.pool.take(placement) if len(wanted) == 1 else None
            if idle is not None:
                wanted[0].actor = idle
                self._own(self._run(idle, wanted, placement, lone=True))
            else:
                self._own(self._lease_and_run(placement, wanted))

    async def _lease_and_run(self, placement: Placement, links: list[RemoteLink]) -> None:
        try:
            leases = await self.pool.lease(placement, len(links))
        except Exception as error:
            for link in links:
                if not link.aborted:
                    self._fail(link, _as_ours(error, "nothing could be leased"))
            return
        runs = []
        waiting = list(links)
        for actor, count in leases:
            mine, waiting = waiting[:count], waiting[count:]
            live = [link for link in mine if not link.aborted]
            if len(live) < len(mine):
                self.pool.release(actor, len(mine) - len(live))
            for link in live:
                link.actor = actor
            if live:
                runs.append(self._run(actor, live, placement, lone=len(links) == 1))
        await _all(self, runs)

    async def _run(
        self, actor: ActorRef, links: list[RemoteLink], placement: Placement, lone: bool
    ) -> None:
        """Send contexts to one actor and hand out replies until all have settled."""
        left = {link.spec.id: link for link in links}
        group = next(_groups)
        sent = time.time()
        try:
            payload = self._pack(group, links, left)
            if not left:
                self.pool.release(actor, len(links))
                return
            answer = await actor.handle.run.remote(payload)
            self._hand_out(actor, answer, left)
            while left:
                answer = await actor.handle.collect.remote(self._holder, group)
                self._hand_out(actor, answer, left)
        except RayActorError as error:
            await self._actor_died(actor, left, placement, sent, error)
            return
        except Exception as error:
            await self._answer_lost(actor, left, error)
        self.pool.give_back(actor, len(links), placement, keep=lone)

    def _pack(self, group: int, links: Sequence[RemoteLink], left: dict[str, RemoteLink]) -> bytes:
        """The payload; contexts that cannot be pickled fail here and are left out."""
        for link in links:
            spec = link.spec
            if spec.inherited is not None and not spec.origin:
                spec.items = (*spec.inherited.items, *spec.items)
            spec.inherited = None
        try:
            return self._prefixed(group, [link.spec for link in links])
        except NoeticError as error:
            if len(links) == 1:
                left.clear()
                self._fail(links[0], error)
                return b""
        good: list[RemoteLink] = []
        for link in links:
            try:
                self._prefixed(group, [link.spec])
                good.append(link)
            except NoeticError as error:
                del left[link.spec.id]
                self._fail(link, error)
        return self._prefixed(group, [link.spec for link in good]) if good else b""

    def _prefixed(self, group: int, specs: Sequence[ContextSpec]) -> bytes:
        packed = pack_specs(self._packer, group, specs, self._fresh)
        return pickle.dumps((self._holder, packed), 5)

    def _hand_out(self, actor: ActorRef, answer: bytes, left: dict[str, RemoteLink]) -> None:
        replies = pickle.loads(answer)
        if not replies:
            raise NoeticError("its process does not know the call any more")
        for packed in replies:
            reply = unpack_reply(packed)
            link = left.pop(reply.id) if reply.settled else left[reply.id]
            if reply.outcomes and any(outcome == "abandoned" for _, outcome in reply.outcomes):
                self.pool.taint(actor)  # or another of the tree was, which costs little
            self._deliver(link, reply)

    def _deliver(self, link: RemoteLink, reply: Reply) -> None:
        """Tell the listener; what goes wrong there must not keep others from their replies."""
        link.replied = True
        link.settled = reply.settled
        try:
            link.listener.replied(reply)
        except Exception as error:
            self.loop.call_exception_handler(
                {"message": f"the reply of context {reply.id} failed", "exception": error}
            )

    # -- ends that no actor tells ------------------------------------------------------------------

    def _fail(self, link: RemoteLink, error: NoeticError) -> None:
        """A context that never started: it shows as a failed context of the run."""
        self._note_unstarted(link, "failed", error)
        self._deliver(link, Reply(link.spec.id, "failed", error=to_wire(error)))

    def never_started(self, link: RemoteLink) -> None:
        """A context that was aborted before it was sent."""
        if link.settled:
            return
        error = Cancelled(link.reason)
        self._note_unstarted(link, "cancelled", error)
        reply = Reply(link.spec.id, "cancelled", error=to_wire(error))
        reply.outcomes = [(link.spec.id, "settled")]
        reply.marks = self._journal.mark()
        self._deliver(link, reply)

    def _note_unstarted(self, link: RemoteLink, status: Status, error: NoeticError) -> None:
        spec = link.spec
        run_id = spec.scope.run_id
        started = {
            "parent_id": spec.parent.id if spec.parent else None,
            "depth": spec.depth,
            "step": spec.step.id,
            "node": None,
            "pid": None,
            "actor": None,
        }
        self._journal.emit(run_id, "context.started", spec.id, started)
        if status == "cancelled":
            self._journal.emit(run_id, "context.aborted", spec.id, {"reason": link.reason})
        ended = {"status": status, "steps": 0, "items": 0, "elapsed": 0.0, "error": to_wire(error)}
        self._journal.emit(run_id, "context.ended", spec.id, ended)
        self._close_span(link, status, error)

    async def _actor_died(
        self,
        actor: ActorRef,
        left: dict[str, RemoteLink],
        placement: Placement,
        sent: float,
        error: RayActorError,
    ) -> None:
        """Contexts of a dead actor are lost, unless it was dead before they were sent.

        They are reported when everything they had started in other actors has settled.
        """
        for link in left.values():
            link.lost = _first_line(error)
            if link.aborted:
                self.hurry(link)
        died_at, marks = await self.pool.death_of(actor)
        fresh = [link for link in left.values() if not link.replied and not link.aborted]
        if died_at is not None and died_at <= sent and fresh:
            for link in fresh:
                del left[link.spec.id]
                link.actor = link.lost = None
                self._pending.setdefault(placement, []).append(link)
            self.loop.call_soon(self._flush)
        for link in left.values():
            self._lost(link, _first_line(error), marks)

    def hurry(self, link: RemoteLink) -> None:
        """Report a lost context that was aborted soon, whatever becomes of those below it.

        They may be waiting for this very report, where a dead actor had hosted contexts of
        several levels.
        """
        reason = link.lost or ""
        self.loop.call_later(HURRY_SECONDS, self._lost, link, reason, {})

    async def _answer_lost(
        self, actor: ActorRef, left: dict[str, RemoteLink], error: Exception
    ) -> None:
        """An answer did not arrive, though its actor lives: end there what nobody hears of."""
        self.pool.taint(actor)
        for link in left.values():
            self._lost(link, _first_line(error), {})
        await self._abort(actor, pickle.dumps({"its answer was lost": list(left)}))

    def _lost(self, link: RemoteLink, reason: str, marks: dict[str, int]) -> None:
        if link.settled:
            return
        spec = link.spec
        outcomes: list[tuple[str, Outcome]] = []
        status: Status = "lost"
        failure: NoeticError = ContextLost(spec.id, "its process ended")
        if link.aborted:
            outcomes, status, failure = [(spec.id, "killed")], "cancelled", Cancelled(link.reason)
        self._journal.emit(
            spec.scope.run_id,
            "context.lost",
            spec.id,
            {"reason": reason, "killed": link.aborted},
        )
        self._close_span(link, status, failure, lost=True)
        reply = Reply(spec.id, status, error=to_wire(failure), outcomes=outcomes)
        reply.marks = {**marks, **self._journal.mark()}
        self._deliver(link, reply)

    def _close_span(
        self, link: RemoteLink, status: Status, error: NoeticError, lost: bool = False
    ) -> None:
        """The span of a context whose own process cannot report it."""
        if self._span_sink is None or link.replied:
            return
        span = context_span(self._span_sink, link.spec)
        span.start = link.started
        if lost:
            span.set("noetic.lost", True)
        close_failed(span, error, status)

    # -- abort -----------------------------------------------------------------------------------

    def send_abort(self, actor: ActorRef, context_id: str, reason: str | None) -> None:
        """Abort a context of an actor; one turn's aborts go out as one message per actor."""
        if not self._aborts:
            self.loop.call_soon(self._flush_aborts)
        _, reasons = self._aborts.setdefault(actor.id, (actor, {}))
        reasons.setdefault(reason, []).append(context_id)

    def _flush_aborts(self) -> None:
        aborts, self._aborts = self._aborts, {}
        for actor, reasons in aborts.values():
            self._own(self._abort(actor, pickle.dumps(reasons)))

    async def _abort(self, actor: ActorRef, payload: bytes) -> None:
        """Tell an actor; one whose control is silent past `kill_after` + 1 s is killed."""
        try:
            async with asyncio.timeout(self._kill_after + 1.0):
                while True:
                    try:
                        await actor.handle.abort.remote(payload)
                        return
                    except ActorUnavailableError:
                        await asyncio.sleep(0.1)
        except TimeoutError:
            await self.pool.kill_actor(actor)
        except RayError:
            return  # its contexts are reported lost by the call that runs them

    # -- the rest of Elsewhere ---------------------------------------------------------------------

    async def kill(self, alone: bool) -> bool:
        """Ask for this process to be killed; False when it is shared with other contexts.

        `alone` says whether one context is all that lives here. A process that is spared is not
        used again once it is empty.
        """
        return await self.pool.kill_self(alone)

    def kill_stuck(self) -> None:
        """Ask for this process to be killed, from a thread: its loop does not run any more."""
        self.pool.kill_stuck()

    async def snapshot(self, parent: ParentInfo) -> ContextSnapshot:
        """The figures of a context in another actor."""
        try:
            handle = await self.pool.handle_of(parent.actor)
            data = await handle.snapshot.remote(parent.id) if handle is not None else None
        except RayError:
            data = None
        if data is None:
            raise ContextLost(parent.id, "its process is gone or it has settled")
        found: ContextSnapshot = pickle.loads(data)
        return found

    def _own(self, coro: Any) -> None:
        task = engine_task(self.loop, coro)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.loop.call_exception_handler(
                {"message": "a launch failed", "exception": task.exception()}
            )

    async def aclose(self) -> None:
        """Stop waiting for anything."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=1.0)
        await self.pool.aclose()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _as_ours(error: Exception, what: str) -> NoeticError:
    if isinstance(error, NoeticError):
        return error
    return NoeticError(f"{what}: {_first_line(error)}")


async def _all(launcher: Launcher, coros: list[Any]) -> None:
    """Run coroutines side by side as tasks of the launcher; the first runs here."""
    for coro in coros[1:]:
        launcher._own(coro)
    if coros:
        await coros[0]
