"""The front door: opens a place for contexts, starts runs in it, and closes it all again."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast
from weakref import WeakSet

from noetic_ray.errors import ConfigError
from noetic_ray.harness import registry
from noetic_ray.steps.base import Step

if TYPE_CHECKING:
    from noetic_ray.channels import Channel
    from noetic_ray.engine.spec import EngineConfig
    from noetic_ray.harness.backend import Backend
    from noetic_ray.harness.channel_handle import ChannelHandle
    from noetic_ray.harness.hooks import Hooks
    from noetic_ray.harness.report import Approval
    from noetic_ray.harness.run import Run
    from noetic_ray.harness.runs import ReadyRun, RunTable
    from noetic_ray.harness.session import Session
    from noetic_ray.harness.session_table import SessionTable
    from noetic_ray.harness.window_view import WindowView
    from noetic_ray.items import Item
    from noetic_ray.journal.events import RunInfo
    from noetic_ray.layers.base import ContextLayer
    from noetic_ray.layers.cache_config import ContextCache
    from noetic_ray.layers.window import Window
    from noetic_ray.mcp.servers import McpServer
    from noetic_ray.models.protocol import Model
    from noetic_ray.placement import Placement
    from noetic_ray.request import RequestInfo

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")
OnError = Literal["raise", "collect"]
log = logging.getLogger("noetic_ray")
CLOSE_SECONDS = 5.0
HURRY_SECONDS = 0.5


class Harness:
    """Where agents run: on Ray, or with `placement="inline"` in this process.

    Opens at its first use or on entering `with`; `close` leaves nothing running. A name already
    open in this process is closed and replaced, so that a notebook cell can be run again.

    `layers` are active in every root context, `window` and `context_cache` say how much of them
    and of the history a model is shown, and how its prompt cache is kept warm. `store` is the path
    of an SQLite file for the journal. `exporter` is an OpenTelemetry span exporter, a function
    that makes one, or "otlp". `kill_after` is in seconds. `assistants` may be delegated to by
    name, `mcp` names the MCP servers of the swarm. `address` is a Ray cluster's, as for
    `ray.init`.
    """

    __noetic_refuse__ = "harness"

    def __init__(
        self,
        name: str,
        model_provider: Model | None = None,
        *,
        tools: Iterable[Any] = (),
        layers: Iterable[ContextLayer[Any]] = (),
        params: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
        store: str | Path | None = None,
        placement: Placement | str | None = None,
        exporter: Any = None,
        item_types: Mapping[str, Any] | None = None,
        strict_items: bool = False,
        kill_after: float = 5.0,
        window: Window | None = None,
        context_cache: ContextCache | None = None,
        assistants: Iterable[Step[Any, Any]] = (),
        mcp: Mapping[str, McpServer | Mapping[str, Any]] | None = None,
        address: str | None = None,
    ) -> None:
        from noetic_ray.harness.settings import make_settings

        self.name = name
        self._settings = make_settings(
            name, model_provider, tools, params, hooks, store, placement, exporter,
            item_types, strict_items, kill_after, address, layers, window, context_cache,
            assistants, mcp,
        )  # fmt: skip
        self._lock = threading.RLock()
        self._backend: Backend | None = None
        self._runs: RunTable | None = None
        self._sessions: SessionTable | None = None
        self._closed = False
        self._checked: WeakSet[Any] = WeakSet()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._backend else "not open yet"
        return f"Harness({self.name!r}, {state})"

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Start what contexts need. Called by the first use; raises ConfigError when it cannot."""
        with self._lock:
            if self._closed:
                raise _closed(self.name)
            if self._backend is None:
                registry.replace(self)
                self._start()
            else:
                self._backend.require_alive()
        return self

    def _start(self) -> None:
        from noetic_ray.engine.tasks import LoopThread
        from noetic_ray.harness.opening import open_backend

        thread = LoopThread(f"noetic-{self.name}")
        try:
            config = self._config
            for part in (config.model, *config.tools, *config.layers, *config.assistants.values()):
                self._check(part)
            self._backend = open_backend(self._settings, thread)
        except BaseException:
            thread.stop()
            registry.remove(self)
            raise
        self._runs, self._sessions = thread.call(self._make_tables(self._backend))

    async def _make_tables(self, backend: Backend) -> tuple[RunTable, SessionTable]:
        from noetic_ray.harness.runs import RunTable
        from noetic_ray.harness.session_table import SessionTable
        from noetic_ray.harness.session_turns import SessionHome

        stored = self._settings.store is not None
        home = SessionHome(backend, self._config, self.astart, self._guard, stored)
        return RunTable(backend, self._settings, self._guard), SessionTable(home)

    def close(self) -> None:
        """Abort what runs and end every actor, process and thread that was started."""
        self._close("the harness was closed", None)

    def terminate(self, grace: float) -> None:
        """The same in a hurry, as SIGTERM asks for: runs get `grace` seconds to settle."""
        self._close("terminated", grace)

    def _close(self, reason: str, grace: float | None) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            backend, runs, sessions = self._backend, self._runs, self._sessions
        registry.remove(self)
        if backend is None or runs is None or sessions is None:
            return
        sessions.close()
        for run_id in runs.live():
            backend.abort_now(run_id, reason)
        patience = 4 * (self._config.kill_after + CLOSE_SECONDS) if grace is None else 2 * grace
        try:
            ending = _end(backend, runs, sessions, reason, grace)
            backend.thread.call(ending, patience + CLOSE_SECONDS)
        except TimeoutError:
            log.warning("harness %r was left with a body that holds its loop", self.name)
        finally:
            backend.thread.stop()
            sessions.let_go()

    async def aclose(self) -> None:
        """`close`, awaited."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.get_running_loop().run_in_executor(None, self.open)
        self._watch_signals()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    # -- runs ------------------------------------------------------------------------------------

    def run(self, step: Step[In, Out], input: In = None, **options: Any) -> Out:  # type: ignore[assignment]
        """Run a step in a new root context and wait for its output; its error is raised.

        Options are those of `start`. Ctrl-C aborts the run.
        """
        return self.start(step, input, **options).result()

    async def arun(self, step: Step[In, Out], input: In = None, **options: Any) -> Out:  # type: ignore[assignment]
        """`run`, awaited. Cancelling the wait aborts the run."""
        starting = asyncio.ensure_future(self.astart(step, input, **options))
        try:
            return await (await asyncio.shield(starting))
        except asyncio.CancelledError:
            run = await starting  # a start takes a moment; the run must not go on alone
            await run.aabort("the waiting task was cancelled")
            raise

    def start(
        self,
        step: Step[In, Out],
        input: In = None,  # type: ignore[assignment]
        *,
        state: Any = None,
        items: Iterable[Item | Mapping[str, Any]] = (),
        thread_id: str | None = None,
        resource_id: str | None = None,
        layers: Sequence[ContextLayer[Any]] | None = None,
        request: RequestInfo | Mapping[str, Any] | None = None,
        run_id: str | None = None,
        timeout: float | None = None,
        inbox: Channel[Any] | None = None,
        message_ids: Sequence[str] = (),
        follow: bool = False,
    ) -> Run[Out]:
        """Start a run and return at once.

        `state` and `items` are what the root context begins with. `layers` take the place of the
        harness's (`[*harness.layers, more]` adds to them). A later run with the same `thread_id`
        or `resource_id` takes up what layers of that scope saved. After `timeout` seconds the
        run is aborted and its result is StepFailed with cause type TimeoutError.

        `request` is what is known of the client (`ctx.request`). `inbox` is an external queue
        channel: texts and message items sent there reach the root's model steps between their
        rounds, as user messages. `message_ids` are kept on `run.started`. `follow` keeps streamed
        pieces from the first one on for a reader of `events(deltas=True)` that comes at once.
        """
        self.open()
        backend, runs = self._parts()
        ready = self._ready(
            step, input, state=state, items=items, thread_id=thread_id, resource_id=resource_id,
            layers=layers, request=request, run_id=run_id, timeout=timeout, inbox=inbox,
            message_ids=message_ids, follow=follow,
        )  # fmt: skip
        try:
            return cast("Run[Out]", self._call(backend, runs.start(ready)))
        except KeyboardInterrupt:
            backend.abort_now(ready.spec.id, "interrupted")
            self._call(backend, runs.give_up(ready.spec.id, "interrupted"))
            raise

    async def astart(self, step: Step[In, Out], input: In = None, **options: Any) -> Run[Out]:  # type: ignore[assignment]
        """`start`, awaited."""
        if self._backend is None:
            await asyncio.get_running_loop().run_in_executor(None, self.open)
            self._watch_signals()
        else:
            self.open()
        backend, runs = self._parts()
        starting = runs.start(self._ready(step, input, **options))
        if backend.thread.inside():
            return await starting
        try:
            return await asyncio.wrap_future(backend.thread.submit(starting))
        except RuntimeError:  # the loop was stopped under the call
            starting.close()
            raise _closed(self.name) from None

    def _ready(
        self,
        step: Any,
        input: Any,
        *,
        state: Any = None,
        items: Iterable[Item | Mapping[str, Any]] = (),
        thread_id: str | None = None,
        resource_id: str | None = None,
        layers: Sequence[ContextLayer[Any]] | None = None,
        request: RequestInfo | Mapping[str, Any] | None = None,
        run_id: str | None = None,
        timeout: float | None = None,
        inbox: Channel[Any] | None = None,
        message_ids: Sequence[str] = (),
        follow: bool = False,
    ) -> ReadyRun:
        """The arguments of `start`, checked. The caller's current span is the run's parent."""
        _, runs = self._parts()
        self._check(step)
        ready = runs.prepare(
            step, input, state, tuple(items), thread_id, resource_id, request, run_id, timeout,
            self._layers_for(layers),
        )  # fmt: skip
        ready.spec.inbox = _checked_inbox(inbox)
        ready.message_ids, ready.follow = tuple(message_ids), follow
        return ready

    @property
    def layers(self) -> tuple[ContextLayer[Any], ...]:
        """The layers that are active in every root context."""
        return self._config.layers

    def _layers_for(
        self, layers: Sequence[ContextLayer[Any]] | None
    ) -> tuple[ContextLayer[Any], ...]:
        if layers is None:
            return self.layers
        from noetic_ray.layers.base import check_layers

        kept = check_layers(layers, "the run")
        for layer in kept:
            self._check(layer)
        return kept

    def preview(
        self,
        step: Step[In, Out],
        input: In = None,  # type: ignore[assignment]
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        layers: Sequence[ContextLayer[Any]] | None = None,
        items: Iterable[Item | Mapping[str, Any]] = (),
        state: Any = None,
    ) -> WindowView:
        """The request a model step would send next, changing nothing: no pin, no age, no key.

        `step` is a `call_model` step, alone or inside `with_context`. Hooks that prepare a request
        run (init, recall, ...), on the saved states; what they write is dropped. Raises ConfigError
        `PREVIEW_UNSUPPORTED` for other steps.
        """
        from noetic_ray.harness.window_view import WindowView
        from noetic_ray.steps.internal import PreviewStep

        self.open()
        backend, runs = self._parts()
        self._check(step)
        ready = runs.prepare(
            PreviewStep.of(step), input, state, tuple(items), thread_id, resource_id, None, None,
            None, self._layers_for(layers),
        )  # fmt: skip
        return WindowView.of(self._call(backend, runs.preview(ready)))

    def map(
        self,
        step: Step[In, Out],
        inputs: Iterable[In],
        *,
        concurrency: int | None = None,
        on_error: OnError = "raise",
        progress: bool | None = None,
    ) -> list[Any]:
        """Run a step once for each input, side by side in one run, and return outputs in order.

        With `on_error="collect"` the list holds a SettleResult for each input, and one failure
        leaves the others alone. `progress` shows a bar; None shows it on a terminal only.
        """
        from noetic_ray.steps.kinds import MapStep

        values = tuple(inputs)
        run: Run[list[Any]] = self.start(MapStep.of(step, concurrency, on_error), values)
        from noetic_ray.harness.progress import show_progress

        with show_progress(run, progress, len(values)):
            return run.result()

    async def amap(
        self,
        step: Step[In, Out],
        inputs: Iterable[In],
        *,
        concurrency: int | None = None,
        on_error: OnError = "raise",
    ) -> list[Any]:
        """`map`, awaited."""
        from noetic_ray.steps.kinds import MapStep

        return await self.arun(MapStep.of(step, concurrency, on_error), tuple(inputs))

    def runs(self) -> list[RunInfo]:
        """All runs the journal knows, oldest first."""
        self.open()
        backend, _ = self._parts()
        return self._call(backend, backend.reader.runs())

    # -- conversations ---------------------------------------------------------------------------

    def session(self, thread_id: str, agent: Step[Any, Any] | None = None) -> Session:
        """The conversation of a thread; each turn runs `agent` on the history so far.

        One object per thread. Raises ConfigError SESSION_CONFLICT for another agent than the
        thread has here, NO_AGENT when a new thread is given none.
        """
        self.open()
        if agent is not None:
            self._check(agent)
        return self._session_table().get(thread_id, agent)

    async def asession(self, thread_id: str, agent: Step[Any, Any] | None = None) -> Session:
        """`session`, awaited."""
        await asyncio.get_running_loop().run_in_executor(None, self.open)
        if agent is not None:
            self._check(agent)
        return await self._session_table().aget(thread_id, agent)

    def _session_table(self) -> SessionTable:
        if self._sessions is None:
            raise _closed(self.name)
        return self._sessions

    # -- talking to runs -------------------------------------------------------------------------

    def channel(self, channel: Channel[T], run_id: str | None = None) -> ChannelHandle[T]:
        """A handle on an external channel; bound to a run it closes with it.

        Raises ConfigError CHANNEL_NOT_EXTERNAL for a channel made without `external=True`.
        """
        from noetic_ray.channels import expect_channel
        from noetic_ray.harness.channel_handle import ChannelHandle

        expect_channel(channel, "harness.channel")
        self.open()
        backend, runs = self._parts()
        return ChannelHandle(
            channel,
            backend.channels,
            call=backend.thread.call,
            run_id=run_id,
            run_closed=runs.is_over,
        )

    def approvals(self) -> list[Approval]:
        """Tool calls that wait for a person now, oldest first."""
        self.open()
        backend, runs = self._parts()
        return self._call(backend, runs.approvals())

    def approve(self, id: str) -> None:
        """Let a waiting tool call go on. Raises ConfigError UNKNOWN_APPROVAL."""
        self._answer(id, True, None)

    def deny(self, id: str, reason: str | None = None) -> None:
        """Refuse a waiting tool call: the model, or the step, is told the reason.

        Raises ConfigError UNKNOWN_APPROVAL.
        """
        self._answer(id, False, reason)

    def _answer(self, id: str, approved: bool, reason: str | None) -> None:
        from noetic_ray.engine.approvals import answer_channel

        self.open()
        backend, runs = self._parts()
        self._call(backend, runs.take_approval(id))
        self.channel(answer_channel(id)).send((approved, reason))

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _config(self) -> EngineConfig:
        return self._settings.engine

    def _parts(self) -> tuple[Backend, RunTable]:
        if self._backend is None or self._runs is None:
            raise _closed(self.name)
        return self._backend, self._runs

    def _guard(self) -> None:
        if self._closed:
            raise ConfigError(
                "HARNESS_CLOSED",
                f"harness {self.name!r} is closed",
                "read what you need before closing it",
            )
        if self._backend is not None:
            self._backend.require_alive()

    def _check(self, part: Any) -> None:
        """Refuse what cannot travel, once per step."""
        known = isinstance(part, Step) and part in self._checked
        if part is None or known:
            return
        from noetic_ray.closures import check

        dumps: Callable[[object], bytes] | None = None
        if self._config.placement.mode != "inline":
            from noetic_ray.actors.codec import dumps as ray_dumps

            dumps = ray_dumps
        check(part, dumps)
        if isinstance(part, Step):
            self._checked.add(part)

    def _call(self, backend: Backend, coro: Coroutine[Any, Any, T]) -> T:
        if backend.thread.inside():
            coro.close()
            raise ConfigError(
                "BLOCKING_CALL_ON_LOOP",
                "a blocking method of a harness was called on its own event loop",
                "inside a step use ctx.run, ctx.spawn or ctx.detach",
            )
        try:
            return backend.thread.call(coro)
        except (CancelledError, RuntimeError):  # the loop was stopped under the call
            coro.close()
            if not self._closed:
                raise
            raise _closed(self.name) from None

    def _watch_signals(self) -> None:
        """After opening in another thread: only the main one can take SIGTERM over."""
        if self._config.placement.mode != "inline":
            from noetic_ray.harness import signals

            signals.install()


async def _end(
    backend: Backend, runs: RunTable, sessions: SessionTable, reason: str, grace: float | None
) -> None:
    """Abort, write down, and end; however this is cut short, the last is done."""
    seconds = CLOSE_SECONDS if grace is None else HURRY_SECONDS
    try:
        await runs.abort_all(reason, grace)
        await runs.aclose(seconds)
        await sessions.aclose(seconds)
    finally:
        await backend.aclose(seconds)


def _checked_inbox(inbox: Channel[Any] | None) -> Channel[Any] | None:
    if inbox is not None:
        from noetic_ray.channels import expect_channel

        expect_channel(inbox, "inbox=")
        if inbox.mode != "queue" or not inbox.external:
            raise ConfigError(
                "INVALID_INBOX",
                f"channel {inbox.name!r} cannot be an inbox",
                'make it with nr.channel(name, mode="queue", external=True)',
            )
    return inbox


def _closed(name: str) -> ConfigError:
    return ConfigError(
        "HARNESS_CLOSED",
        f"harness {name!r} is closed",
        "make a new Harness; results that were fetched stay readable",
    )
