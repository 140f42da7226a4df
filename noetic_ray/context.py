"""What a step sees of the execution it runs in."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from noetic_ray.channels import Channel
from noetic_ray.errors import Cancelled, ConfigError
from noetic_ray.items import Item
from noetic_ray.log import ItemLog
from noetic_ray.request import RequestInfo
from noetic_ray.usage import LastLayerUsage, StepMeta, TokenUsage

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from noetic_ray.client.mcp import Mcp
    from noetic_ray.client.messages import Messages
    from noetic_ray.client.sync import SyncMcp, SyncTrace
    from noetic_ray.client.trace import Trace
    from noetic_ray.layers.base import ContextLayer
    from noetic_ray.layers.handle import LayerHandles
    from noetic_ray.placement import Placement
    from noetic_ray.steps import Step

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")
Result_co = TypeVar("Result_co", covariant=True)


class Frame:
    """One step in flight: where it stands in the tree of steps, its span, its active layers."""

    __slots__ = ("attempt", "context", "counts", "layers", "path", "span", "step_id")

    def __init__(
        self, context: Context, step_id: str, path: str, span: Any, layers: tuple[Any, ...] = ()
    ) -> None:
        self.layers = layers
        self.context = context
        self.step_id = step_id
        self.path = path
        self.span = span
        self.attempt = 0
        self.counts: dict[str, int] | None = None

    def next_path(self, step_id: str) -> str:
        """The path of the next dispatch of `step_id` below this step: `<path>/<id>#<n>`."""
        counts = self.counts
        if counts is None:
            counts = self.counts = {}
        n = counts.get(step_id, 0)
        counts[step_id] = n + 1
        return f"{self.path}/{step_id}#{n}"


current_frame: ContextVar[Frame | None] = ContextVar("noetic_frame", default=None)


@dataclass(slots=True, frozen=True)
class ContextSnapshot:
    """A context's figures at one moment. `elapsed` is in seconds, `cost` in dollars."""

    id: str
    status: str
    depth: int
    step_count: int
    items: int
    tokens: TokenUsage
    cost: float
    elapsed: float
    aborted: bool
    abort_reason: str | None


class Services(Protocol):
    """What the engine gives a context; one object per context."""

    def check(self) -> None: ...
    async def run(self, step: Any, input: Any) -> Any: ...
    async def spawn(self, step: Any, input: Any, options: Mapping[str, Any]) -> Any: ...
    def detach(self, step: Any, input: Any, thread_id: str | None) -> DetachedHandle[Any]: ...
    def abort(self, reason: str | None) -> None: ...
    async def send(
        self, channel: Channel[Any], values: Sequence[Any], timeout: float | None
    ) -> None: ...
    async def recv(self, channel: Channel[Any], n: int, timeout: float | None) -> list[Any]: ...
    async def try_recv(self, channel: Channel[Any]) -> list[Any]: ...
    def subscribe(self, channel: Channel[Any]) -> AsyncIterator[Any]: ...
    async def checkpoint(self) -> None: ...
    def layer_handles(self) -> LayerHandles: ...
    def client_side(self) -> ClientSide: ...
    async def parent_items(self, since: int) -> list[Item]: ...
    async def parent_snapshot(self) -> ContextSnapshot: ...
    def call_sync(self, call: Callable[[], Any]) -> Any: ...


class ClientSide(Protocol):
    """What a context shows its client, and reaches for it."""

    @property
    def messages(self) -> Messages: ...
    @property
    def trace(self) -> Trace: ...
    @property
    def mcp(self) -> Mcp: ...
    def release(self) -> None: ...


class DetachedHandle(Protocol[Result_co]):
    """A child that was started and not waited for. Await it for its result."""

    @property
    def id(self) -> str:
        """The child context's id."""
        ...

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed` or `cancelled`."""
        ...

    def __await__(self) -> Any: ...

    async def result(self, timeout: float | None = None) -> Result_co:
        """The child's output; its error is raised. TimeoutError leaves it running."""
        ...

    def abort(self, reason: str | None = None) -> None:
        """Abort the child and everything below it."""
        ...


class ContextRef:
    """Another context seen from outside."""

    __slots__ = ("_services", "depth", "id", "thread_id")

    def __init__(self, id: str, depth: int, thread_id: str, services: Services) -> None:
        self.id = id
        self.depth = depth
        self.thread_id = thread_id
        self._services = services

    def __repr__(self) -> str:
        return f"ContextRef({self.id!r}, depth={self.depth})"

    async def snapshot(self) -> ContextSnapshot:
        """Its figures now; raises `ContextLost` when its process is gone."""
        return await self._services.parent_snapshot()

    async def items(self, since: int = 0) -> list[Item]:
        """Its log from item number `since` on, as far as the journal has it."""
        return await self._services.parent_items(since)


class Context:
    """One execution: its log, its state, its children, its lifecycle.

    A context belongs to the run loop of the process that hosts it. Synchronous bodies, which run
    in threads, use `ctx.sync.<name>(...)` for everything that is awaited elsewhere.
    """

    __noetic_refuse__ = "context"
    __slots__ = (
        "__weakref__",
        "_own",
        "_parent",
        "_request",
        "_root_frame",
        "_scope",
        "_services",
        "_started",
        "_status",
        "abort_reason",
        "aborted",
        "completed",
        "completion_value",
        "cost",
        "depth",
        "id",
        "item_log",
        "last_layer_usage",
        "last_step_meta",
        "resource_id",
        "state",
        "step_count",
        "thread_id",
        "tokens",
    )

    def __init__(self, id: str, depth: int, scope: Any, services: Services) -> None:
        self.id = id
        self.depth = depth
        self.thread_id: str = ""
        self.resource_id: str | None = None
        self.state: Any = None
        self.item_log = ItemLog()
        self.step_count = 0
        self.tokens = TokenUsage()
        self.cost = 0.0
        self.last_step_meta: StepMeta | None = None
        self.last_layer_usage: LastLayerUsage | None = None
        self.completed = False
        self.completion_value: Any = None
        self.aborted = False
        self.abort_reason: str | None = None
        self._own: TokenUsage = TokenUsage()
        self._parent: tuple[str, int, str] | None = None
        self._request: RequestInfo | None = None
        self._scope = scope
        self._services = services
        self._started = time.monotonic()
        self._status = "running"
        self._root_frame: Frame | None = None

    def __repr__(self) -> str:
        return f"Context({self.id!r}, depth={self.depth}, steps={self.step_count})"

    @property
    def run_id(self) -> str:
        """The id of the run, which is its root context's id."""
        return str(self._scope.run_id)

    @property
    def params(self) -> Mapping[str, Any]:
        """The harness's parameters, read only."""
        return MappingProxyType(self._scope.params)

    @property
    def request(self) -> RequestInfo:
        """What is known of the client; defaults where the run was given none.

        The context's own copy: what is done to it nobody else sees.
        """
        if self._request is None:
            given = self._scope.request or RequestInfo()
            self._request = given.model_copy(deep=True)
        return self._request

    @property
    def parent(self) -> ContextRef | None:
        """The context this one was spawned from, or None at the root."""
        if self._parent is None:
            return None
        id, depth, thread_id = self._parent
        return ContextRef(id, depth, thread_id, self._services)

    @property
    def context(self) -> LayerHandles:
        """The layers active here, by id: `ctx.context["notes"].count`, `await ...add(n=1)`.

        Indexed with a layer object it is typed: a `ContextLayer[Handle]` gives a `Handle`.
        """
        return self._services.layer_handles()

    @property
    def messages(self) -> Messages:
        """What the client is shown: `send`, `replace`, `append`. All return at once."""
        return self._services.client_side().messages

    @property
    def trace(self) -> Trace:
        """The run's tree of nodes, as the agent wants its work seen, and its shared spaces."""
        return self._services.client_side().trace

    @property
    def mcp(self) -> Mcp:
        """The MCP servers of the harness: `await ctx.mcp.call_tool("server", "tool", {...})`."""
        return self._services.client_side().mcp

    def release(self) -> None:
        """Send what is queued for the client on its way now. Optional: the end does it too."""
        self._services.client_side().release()

    @property
    def elapsed(self) -> float:
        """Seconds since the context started."""
        return time.monotonic() - self._started

    @property
    def span(self) -> Span:
        """The span of the step that runs here now; valid without an exporter too."""
        frame = current_frame.get()
        if frame is None or frame.context is not self:
            frame = self._root_frame
        from noetic_ray.tracing.otel import RecordSpan

        return RecordSpan(frame.span)  # type: ignore[union-attr]

    @property
    def idempotency_key(self) -> str:
        """A text that names this step of this run, the same whenever the step is run again."""
        frame = current_frame.get()
        if frame is None or frame.context is not self:
            frame = self._root_frame
        return f"{self.run_id}:{frame.path if frame else ''}"

    @property
    def sync(self) -> SyncContext:
        """The same methods for synchronous bodies: they block their thread, not the loop."""
        return SyncContext(self)

    async def run(self, step: Step[In, Out], input: In = None) -> Out:  # type: ignore[assignment]
        """Run a step in this context: same log, same state."""
        return await self._services.run(step, input)  # type: ignore[no-any-return]

    async def spawn(
        self,
        step: Step[In, Out],
        input: In = None,  # type: ignore[assignment]
        *,
        layers: Sequence[ContextLayer[Any]] | None = None,
        timeout: float | None = None,
        placement: Placement | str | None = None,
    ) -> Out:
        """Run a step in a child context of its own and wait for its output.

        The child starts with an empty log and a copy of the state, and with the layers active
        here, or with `layers` in their place. Its usage is added to this
        context's, whatever its end. After `timeout` seconds it is aborted and StepFailed raised,
        with cause type TimeoutError. Raises the child's own error, or `ContextLost`.
        """
        options = {"timeout": timeout, "placement": placement, "layers": layers}
        return await self._services.spawn(step, input, options)  # type: ignore[no-any-return]

    def detach(
        self,
        step: Step[In, Out],
        input: In = None,  # type: ignore[assignment]
        *,
        thread_id: str | None = None,
    ) -> DetachedHandle[Out]:
        """Start a child and go on. It is still a child: an abort of this context reaches it."""
        return self._services.detach(step, input, thread_id)

    def abort(self, reason: str | None = None) -> None:
        """Abort this context and everything below it; the first reason stays.

        Returns at once. Blocked operations raise `Cancelled`, bodies are cancelled.
        """
        self._services.abort(reason)

    def complete(self, value: Any = None) -> None:
        """End this context with `value` at its next step boundary."""
        self.completed = True
        self.completion_value = value

    async def checkpoint(self) -> None:
        """Return when everything recorded so far is durable (acknowledged, without a store)."""
        await self._services.checkpoint()

    async def send(self, channel: Channel[T], value: T, timeout: float | None = 30.0) -> None:
        """Send one value; a full queue makes the call wait.

        Raises ChannelTimeout, ChannelClosed, ChannelSchemaError or Cancelled.
        """
        await self._services.send(channel, (value,), timeout)

    async def send_many(
        self, channel: Channel[T], values: Sequence[T], timeout: float | None = 30.0
    ) -> None:
        """Send values in order; much cheaper than one by one. The timeout is for the whole."""
        await self._services.send(channel, values, timeout)

    async def recv(self, channel: Channel[T], timeout: float | None = 30.0) -> T:
        """Wait for a value. None waits for ever (topics: 300 s), 0 takes only what is there."""
        values = await self._services.recv(channel, 1, timeout)
        return values[0]  # type: ignore[no-any-return]

    async def recv_many(
        self, channel: Channel[T], max_items: int, timeout: float | None = 30.0
    ) -> list[T]:
        """Wait for one value, then return it with what else is there, up to `max_items`."""
        if max_items < 1:
            raise ConfigError("INVALID_MAX_ITEMS", "recv_many takes at least one value at a time")
        return await self._services.recv(channel, max_items, timeout)

    async def try_recv(self, channel: Channel[T], default: T | None = None) -> T | None:
        """A value if one is there, else `default`; never waits."""
        values = await self._services.try_recv(channel)
        return values[0] if values else default

    def subscribe(self, channel: Channel[T]) -> AsyncIterator[T]:
        """Iterate over a channel's values. Leaving the loop gives back what was not used."""
        return self._services.subscribe(channel)

    def raise_if_aborted(self) -> None:
        """Raise `Cancelled` when this context was aborted: for long synchronous bodies."""
        if self.aborted:
            raise Cancelled(self.abort_reason)


class SyncContext:
    """A context's awaited methods, for threads. Raises ConfigError on an event loop's thread."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def _call(self, call: Callable[[], Any]) -> Any:
        return self._ctx._services.call_sync(call)

    def run(self, step: Step[In, Out], input: In = None) -> Out:  # type: ignore[assignment]
        """`Context.run`, blocking."""
        return self._call(lambda: self._ctx.run(step, input))  # type: ignore[no-any-return]

    def spawn(
        self,
        step: Step[In, Out],
        input: In = None,  # type: ignore[assignment]
        *,
        layers: Sequence[ContextLayer[Any]] | None = None,
        timeout: float | None = None,
        placement: Placement | str | None = None,
    ) -> Out:
        """`Context.spawn`, blocking."""
        return self._call(  # type: ignore[no-any-return]
            lambda: self._ctx.spawn(
                step, input, layers=layers, timeout=timeout, placement=placement
            )
        )

    @property
    def context(self) -> SyncLayers:
        """`Context.context` with functions that block."""
        return SyncLayers(self._ctx)

    def detach(
        self,
        step: Step[In, Out],
        input: In = None,  # type: ignore[assignment]
        *,
        thread_id: str | None = None,
    ) -> DetachedHandle[Out]:
        """`Context.detach` from a thread."""

        async def start() -> DetachedHandle[Out]:
            return self._ctx.detach(step, input, thread_id=thread_id)

        return self._call(start)  # type: ignore[no-any-return]

    def send(self, channel: Channel[T], value: T, timeout: float | None = 30.0) -> None:
        """`Context.send`, blocking."""
        self._call(lambda: self._ctx.send(channel, value, timeout))

    def send_many(
        self, channel: Channel[T], values: Sequence[T], timeout: float | None = 30.0
    ) -> None:
        """`Context.send_many`, blocking."""
        self._call(lambda: self._ctx.send_many(channel, values, timeout))

    def recv(self, channel: Channel[T], timeout: float | None = 30.0) -> T:
        """`Context.recv`, blocking."""
        return self._call(lambda: self._ctx.recv(channel, timeout))  # type: ignore[no-any-return]

    def recv_many(
        self, channel: Channel[T], max_items: int, timeout: float | None = 30.0
    ) -> list[T]:
        """`Context.recv_many`, blocking."""
        return self._call(  # type: ignore[no-any-return]
            lambda: self._ctx.recv_many(channel, max_items, timeout)
        )

    def try_recv(self, channel: Channel[T], default: T | None = None) -> T | None:
        """`Context.try_recv` from a thread."""
        return self._call(lambda: self._ctx.try_recv(channel, default))  # type: ignore[no-any-return]

    def checkpoint(self) -> None:
        """`Context.checkpoint`, blocking."""
        self._call(self._ctx.checkpoint)

    @property
    def trace(self) -> SyncTrace:
        """`Context.trace`, what is awaited there blocking here."""
        from noetic_ray.client.sync import SyncTrace

        return SyncTrace(self._ctx.trace, self._call)

    @property
    def mcp(self) -> SyncMcp:
        """`Context.mcp`, blocking."""
        from noetic_ray.client.sync import SyncMcp

        return SyncMcp(self._ctx.mcp, self._call)


class SyncLayers(Mapping[Any, Any]):
    """The layers of a context, for threads."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getitem__(self, key: Any) -> Any:
        return _SyncHandle(self._ctx, self._ctx.context[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._ctx.context)

    def __len__(self) -> int:
        return len(self._ctx.context)


class _SyncHandle:
    """A layer's handle whose functions block."""

    __slots__ = ("_ctx", "_handle")

    def __init__(self, ctx: Context, handle: Any) -> None:
        self._ctx = ctx
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._handle, name)
        if not hasattr(type(part), "__noetic_layer_call__"):
            return part

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._ctx._services.call_sync(lambda: part(*args, **kwargs))

        return call
