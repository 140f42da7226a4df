"""The runs of one harness: started, ended, aborted together."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from uuid_utils import uuid7

from noetic_ray.canonical import clean_text, to_json_bytes
from noetic_ray.engine.children import copy_state, result_of
from noetic_ray.engine.layers.remains import remains_of_killed
from noetic_ray.engine.layers.stack import fresh_seeds
from noetic_ray.engine.local_channels import warn_dropped
from noetic_ray.engine.spec import ContextSpec, Reply, RunScope
from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import Cancelled, ConfigError, NoeticError, to_wire
from noetic_ray.harness.approvals import ApprovalDesk
from noetic_ray.harness.backend import Backend
from noetic_ray.harness.copying import CopyCodec
from noetic_ray.harness.exporting import SpanPump
from noetic_ray.harness.report import Approval
from noetic_ray.harness.run import Run
from noetic_ray.harness.settings import Settings
from noetic_ray.items import parse_item
from noetic_ray.journal.events import FOLLOW
from noetic_ray.layers.base import ContextLayer
from noetic_ray.request import RequestInfo
from noetic_ray.steps import Step
from noetic_ray.steps.internal import TearDownStep
from noetic_ray.tracing.records import new_trace_id

log = logging.getLogger("noetic_ray")
WATCH_SECONDS = 1.0


@dataclass(slots=True)
class ReadyRun:
    """A run that has not been started yet."""

    spec: ContextSpec
    timeout: float | None
    message_ids: tuple[str, ...] = ()
    follow: bool = False


class RunTable:
    """Belongs to the driver's loop, but for `prepare`, `live` and `is_over`."""

    def __init__(self, backend: Backend, settings: Settings, guard: Callable[[], None]) -> None:
        self._backend = backend
        self._settings = settings
        self._guard = guard
        self._live: dict[str, Run[Any]] = {}
        self._ended: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watch: asyncio.Task[Any] | None = None
        self._desk = ApprovalDesk(backend.reader)
        self._pump: SpanPump | None = None
        backend.on_dropped = self._dropped
        if settings.exporter is not None:
            self._pump = SpanPump(settings.exporter, backend.reader, settings.engine.name)

    # -- start -----------------------------------------------------------------------------------

    def prepare(
        self,
        step: Any,
        input: Any,
        state: Any,
        items: Iterable[Any],
        thread_id: str | None,
        resource_id: str | None,
        request: RequestInfo | Mapping[str, Any] | None,
        run_id: str | None,
        timeout: float | None,
        layers: Sequence[ContextLayer[Any]] = (),
    ) -> ReadyRun:
        """Check the arguments and build the root context's spec."""
        if not isinstance(step, Step):
            hint = "; make one of it with @nr.step" if callable(step) else ""
            raise TypeError(f"a run takes a step, not {type(step).__name__}{hint}")
        if timeout is not None and timeout <= 0:
            raise ConfigError("INVALID_TIMEOUT", f"the run's timeout is {timeout}", "use above 0")
        _check_name("thread_id", thread_id)
        _check_name("resource_id", resource_id)
        id = self._new_id(run_id)
        trace_id, parent_span = _current_trace()
        config = self._settings.engine
        request = None if request is None else RequestInfo.of(request)
        spec = ContextSpec(
            scope=RunScope(id, config.params, request, trace_id),
            id=id,
            step=step,
            input=input,
            state=copy_state(CopyCodec(), state, f"run {id}"),
            items=tuple(
                parse_item(item, extension_types=config.item_types, strict=config.strict_items)
                for item in items
            ),
            thread_id=thread_id or str(uuid7()),
            resource_id=resource_id,
            parent_span=parent_span,
            layers=fresh_seeds(layers),
            named_thread=thread_id is not None,
        )
        return ReadyRun(spec, timeout)

    def _new_id(self, run_id: str | None) -> str:
        if run_id is None:
            return str(uuid7())
        if not isinstance(run_id, str) or not run_id.strip():
            raise ConfigError("INVALID_RUN_ID", f"run_id is {run_id!r}", "give a text or None")
        self._expect_new(run_id)
        return run_id

    def _expect_new(self, run_id: str) -> None:
        if run_id in self._live or run_id in self._ended:
            raise ConfigError(
                "RUN_ID_TAKEN", f"run {run_id!r} exists in this harness", "leave run_id out"
            )

    async def start(self, ready: ReadyRun) -> Run[Any]:
        """Write the run's first event, then start its root context."""
        spec, backend = ready.spec, self._backend
        placement = self._settings.engine.placement
        await backend.check(placement)
        self._expect_new(spec.id)  # others may have started since it was looked at
        request = spec.scope.request
        accept = request.accept if request is not None else "standard"
        run: Run[Any] = Run(spec.id, spec.step.id, backend, self._guard, accept)
        run._abort_bound = 4 * (self._settings.engine.kill_after + 2.0) + 5.0
        run._on_result = self._result
        run._on_settled = self._settled
        run._tear_down = self.tear_down
        if spec.layers:
            run._remains_if_killed = partial(remains_of_killed, spec)
        self._live[spec.id] = run
        harness = self._settings.engine.name
        data: dict[str, Any] = {
            "step": spec.step.id,
            "thread_id": spec.thread_id,
            "harness": harness,
        }
        if ready.message_ids:
            data["message_ids"] = ready.message_ids
        if ready.follow:  # before the journal tells a sender that nobody reads along
            backend.journal.emit(spec.id, FOLLOW, spec.id, {})
        backend.journal.emit(spec.id, "run.started", spec.id, data)
        try:
            await backend.channels.flush()
            await backend.journal.flush()
            run._begin(backend.launch(spec, placement, run), ready.timeout)
        except BaseException as error:
            run.replied(_never_begun(spec.id, error))
            raise
        if self._watch is None or self._watch.done():
            self._watch = self._own(self._watch_backend())
        return run

    async def preview(self, ready: ReadyRun) -> Any:
        """What a preview step gives; nothing of it is recorded."""
        ready.spec.preview = True
        return await self._quietly(ready.spec)

    async def tear_down(self, run: Run[Any]) -> None:
        """Run the last hooks of layers whose contexts were aborted without them; once."""
        remains = run._take_remains()
        if remains:
            scope = RunScope(run.id, self._settings.engine.params, None, 0)
            step = TearDownStep("tear_down")
            await self._quietly(ContextSpec(scope, str(uuid7()), step, remains))

    async def _quietly(self, spec: ContextSpec) -> Any:
        """Run a step of the harness's own, outside of every run's record."""
        spec.quiet = True
        placement = self._settings.engine.placement
        await self._backend.check(placement)
        listener = _Answer()
        link = self._backend.launch(spec, placement, listener)
        try:
            reply = await listener.reply
        except asyncio.CancelledError:
            link.abort("nobody waits for it any more")
            raise
        return result_of(reply)

    async def give_up(self, run_id: str, reason: str) -> None:
        """Abort a run, if it has begun, whose starter does not wait for it any more."""
        run = self._live.get(run_id)
        if run is not None:
            await run._abort(reason)

    async def _watch_backend(self) -> None:
        """While runs are live: fail them all when what they run on is gone."""
        while self._live:
            await asyncio.sleep(WATCH_SECONDS)
            if self._fail_if_lost():
                return

    def _fail_if_lost(self) -> bool:
        """Fail every live run if what it runs on is gone."""
        try:
            self._backend.require_alive()
        except ConfigError as error:
            for run in tuple(self._live.values()):
                run.replied(Reply(run.id, "failed", error=to_wire(error)))
            return True
        return False

    # -- end -------------------------------------------------------------------------------------

    def _result(self, run: Run[Any], reply: Reply) -> None:
        if self._pump is None:
            run._publish(reply)
        elif not reply.settled:
            self._own(self._publish_after_spans(run, reply))

    async def _publish_after_spans(self, run: Run[Any], reply: Reply) -> None:
        assert self._pump is not None
        await self._pump.drain(reply.marks)
        run._publish(reply)

    def _settled(self, run: Run[Any], reply: Reply) -> None:
        self._own(self._end(run, reply))

    async def _end(self, run: Run[Any], reply: Reply) -> None:
        """Close the run's channels and its event log, export its spans, let waiters go on."""
        self._ended.add(run.id)
        try:
            if run._timed_out is not None:
                await self.tear_down(run)
            await self._close_books(run, reply)
        except NoeticError as error:
            log.warning("the end of run %s is not recorded: %s", run.id, error)
        finally:
            self._live.pop(run.id, None)
            run._publish(run._first or reply)
            run._ended.set_result(None)
            run._settled.set_result(reply)

    async def _close_books(self, run: Run[Any], reply: Reply) -> None:
        await self._backend.channels.close_run(run.id)
        data: dict[str, Any] = {"status": run.status}
        if reply.error is not None:
            data["error"] = reply.error
        record = (run.id, "run.ended", run.id, time.time(), to_json_bytes(data))
        marks = {**reply.marks, **self._backend.journal.mark()}
        await self._backend.reader.end_run(run.id, marks, record)
        if self._pump is not None:
            await self._pump.drain()

    def _own(self, coro: Any) -> asyncio.Task[Any]:
        task = engine_task(asyncio.get_running_loop(), coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _dropped(self, channel_name: str, count: int) -> None:
        """An external send found a full queue: every live run may miss what was dropped."""
        warn_dropped(channel_name, count)
        data = {"channel": channel_name, "count": count}
        for run_id in tuple(self._live):
            self._backend.journal.emit(run_id, "channel.dropped", run_id, data)

    def live(self) -> tuple[str, ...]:
        """The runs that have not ended."""
        return tuple(self._live)

    def is_over(self, run_id: str) -> bool:
        """Whether a run has ended."""
        return run_id in self._ended

    async def abort_all(self, reason: str, bound: float | None = None) -> None:
        """Abort every live run and wait, bounded."""
        if self._fail_if_lost():
            return
        await asyncio.gather(*(run._abort(reason, bound) for run in tuple(self._live.values())))

    async def aclose(self, seconds: float) -> None:
        """Give up runs that have not settled, and finish what the runs' ends left to do."""
        if self._watch is not None:
            self._watch.cancel()
        for run in tuple(self._live.values()):
            run.replied(_left_behind(run.id))
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=seconds)
        if self._pump is not None:
            await self._pump.aclose(seconds)

    # -- approvals -------------------------------------------------------------------------------

    async def approvals(self) -> list[Approval]:
        """Open requests of the live runs."""
        return await self._desk.waiting(tuple(self._live))

    async def take_approval(self, id: str) -> None:
        """Mark a request as answered. Raises ConfigError UNKNOWN_APPROVAL."""
        await self._desk.take(id, tuple(self._live))


def _check_name(what: str, name: object) -> None:
    usable = name is None or (isinstance(name, str) and name and clean_text(name) == name)
    if not usable:
        raise ConfigError("INVALID_" + what.upper(), f"{what} is {name!r}", "Give a text or None.")


class _Answer:
    """Waits for a context that belongs to no run."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def replied(self, reply: Reply) -> None:
        """It has ended."""
        if reply.settled and not self.reply.done():
            self.reply.set_result(reply)


def _left_behind(run_id: str) -> Reply:
    return Reply(run_id, "cancelled", error=to_wire(Cancelled("the harness was closed")))


def _never_begun(run_id: str, error: BaseException) -> Reply:
    if isinstance(error, NoeticError):
        return Reply(run_id, "failed", error=to_wire(error))
    return Reply(run_id, "cancelled", error=to_wire(Cancelled("interrupted")))


def _current_trace() -> tuple[int, int]:
    """The driver's current span, if OpenTelemetry is in use there: (trace id, span id)."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return context.trace_id, context.span_id
    return new_trace_id(), 0
