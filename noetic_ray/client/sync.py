"""What is awaited on `ctx.trace` and `ctx.mcp`, for threads: it blocks them, not the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from noetic_ray.client.mcp import CONCURRENCY, Mcp
from noetic_ray.client.spaces import Space
from noetic_ray.client.trace import Trace
from noetic_ray.client.trace_node import TraceNode
from noetic_ray.client.trace_records import ParallelInput
from noetic_ray.mcp.results import McpRecord, Sample, ToolResult

Call = Callable[[Callable[[], Any]], Any]


class SyncTrace:
    """`Trace` for threads; what returns at once there is the same here."""

    __slots__ = ("_call", "_trace")

    def __init__(self, trace: Trace, call: Call) -> None:
        self._trace = trace
        self._call = call

    def add(
        self,
        input: Any,
        *,
        label: str = "",
        type: str = "",
        icon: str = "",
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> TraceNode:
        """`Trace.add`."""
        return self._trace.add(
            input,
            label=label,
            type=type,
            icon=icon,
            description=description,
            metadata=metadata,
        )

    def parallel(self, inputs: Iterable[ParallelInput | Mapping[str, Any]]) -> list[TraceNode]:
        """`Trace.parallel`."""
        return self._trace.parallel(inputs)

    def get_current_nodes(self) -> list[TraceNode]:
        """`Trace.get_current_nodes`."""
        return self._trace.get_current_nodes()

    def info(self, message: str, data: Any = None) -> SyncTrace:
        """`Trace.info`."""
        self._trace.info(message, data)
        return self

    def debug(self, message: str, data: Any = None) -> SyncTrace:
        """`Trace.debug`."""
        self._trace.debug(message, data)
        return self

    def warn(self, message: str, data: Any = None) -> SyncTrace:
        """`Trace.warn`."""
        self._trace.warn(message, data)
        return self

    def error(self, message: str, data: Any = None) -> SyncTrace:
        """`Trace.error`."""
        self._trace.error(message, data)
        return self

    def get_root_node(self) -> TraceNode | None:
        """`Trace.get_root_node`, blocking."""
        return self._call(self._trace.get_root_node)  # type: ignore[no-any-return]

    def get_node(self, id: str) -> TraceNode | None:
        """`Trace.get_node`, blocking."""
        return self._call(lambda: self._trace.get_node(id))  # type: ignore[no-any-return]

    def create_space(
        self,
        *,
        label: str = "",
        type: str = "",
        icon: str = "",
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> SyncSpace:
        """`Trace.create_space`, blocking."""
        space = self._call(
            lambda: self._trace.create_space(
                label=label,
                type=type,
                icon=icon,
                description=description,
                metadata=metadata,
                id=id,
            )
        )
        return SyncSpace(space, self._call)

    def get_space(self, id: str) -> SyncSpace | None:
        """`Trace.get_space`, blocking."""
        space = self._call(lambda: self._trace.get_space(id))
        return None if space is None else SyncSpace(space, self._call)

    def has_space(self, id: str) -> bool:
        """`Trace.has_space`, blocking."""
        return bool(self._call(lambda: self._trace.has_space(id)))

    def delete_space(self, id: str) -> None:
        """`Trace.delete_space`, blocking."""
        self._call(lambda: self._trace.delete_space(id))

    def list_spaces(self) -> list[SyncSpace]:
        """`Trace.list_spaces`, blocking."""
        return [SyncSpace(each, self._call) for each in self._call(self._trace.list_spaces)]


class SyncSpace:
    """`Space` for threads. `space` is the one whose facts it has."""

    __slots__ = ("_call", "space")

    def __init__(self, space: Space, call: Call) -> None:
        self.space = space
        self._call = call

    def __repr__(self) -> str:
        return f"SyncSpace({self.space.id!r}, label={self.space.label!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyncSpace) and other.space == self.space

    def __hash__(self) -> int:
        return hash(self.space)

    @property
    def id(self) -> str:
        """`Space.id`."""
        return self.space.id

    @property
    def label(self) -> str:
        """`Space.label`."""
        return self.space.label

    @property
    def type(self) -> str:
        """`Space.type`."""
        return self.space.type

    @property
    def icon(self) -> str:
        """`Space.icon`."""
        return self.space.icon

    @property
    def description(self) -> str:
        """`Space.description`."""
        return self.space.description

    @property
    def metadata(self) -> dict[str, Any]:
        """`Space.metadata`."""
        return self.space.metadata

    def set(self, key: str, value: Any) -> SyncSpace:
        """`Space.set`, blocking."""
        self._call(lambda: self.space.set(key, value))
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """`Space.get`, blocking."""
        return self._call(lambda: self.space.get(key, default))

    def has(self, key: str) -> bool:
        """`Space.has`, blocking."""
        return bool(self._call(lambda: self.space.has(key)))

    def delete(self, key: str) -> None:
        """`Space.delete`, blocking."""
        self._call(lambda: self.space.delete(key))

    def keys(self) -> list[str]:
        """`Space.keys`, blocking."""
        return list(self._call(self.space.keys))

    def clear(self) -> None:
        """`Space.clear`, blocking."""
        self._call(self.space.clear)

    def increment(self, key: str, by: float = 1) -> Any:
        """`Space.increment`, blocking."""
        return self._call(lambda: self.space.increment(key, by))

    def compare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        """`Space.compare_and_set`, blocking."""
        return bool(self._call(lambda: self.space.compare_and_set(key, expected, value)))


class SyncMcp:
    """`Mcp` for threads."""

    __slots__ = ("_call", "_mcp")

    def __init__(self, mcp: Mcp, call: Call) -> None:
        self._mcp = mcp
        self._call = call

    def list_resources(self, client: str, cursor: str | None = None) -> Any:
        """`Mcp.list_resources`, blocking."""
        return self._call(lambda: self._mcp.list_resources(client, cursor))

    def read_resource(self, client: str, uri: str) -> McpRecord:
        """`Mcp.read_resource`, blocking."""
        return self._call(lambda: self._mcp.read_resource(client, uri))  # type: ignore[no-any-return]

    def list_tools(self, client: str, cursor: str | None = None) -> Any:
        """`Mcp.list_tools`, blocking."""
        return self._call(lambda: self._mcp.list_tools(client, cursor))

    def call_tool(
        self, client: str, name: str, args: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """`Mcp.call_tool`, blocking."""
        return self._call(lambda: self._mcp.call_tool(client, name, args))  # type: ignore[no-any-return]

    def call_tools(self, client: str, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """`Mcp.call_tools`, blocking."""
        return list(self._call(lambda: self._mcp.call_tools(client, calls)))

    def call_tools_parallel(
        self, client: str, calls: Sequence[Mapping[str, Any]], *, concurrency: int = CONCURRENCY
    ) -> list[ToolResult]:
        """`Mcp.call_tools_parallel`, blocking."""
        return list(
            self._call(
                lambda: self._mcp.call_tools_parallel(client, calls, concurrency=concurrency)
            )
        )

    def list_prompts(self, client: str, cursor: str | None = None) -> Any:
        """`Mcp.list_prompts`, blocking."""
        return self._call(lambda: self._mcp.list_prompts(client, cursor))

    def get_prompt(
        self, client: str, name: str, args: Mapping[str, Any] | None = None
    ) -> McpRecord:
        """`Mcp.get_prompt`, blocking."""
        return self._call(lambda: self._mcp.get_prompt(client, name, args))  # type: ignore[no-any-return]

    def create_sample(self, client: str, uri: str, sample: Mapping[str, Any]) -> Sample:
        """`Mcp.create_sample`, blocking."""
        return self._call(lambda: self._mcp.create_sample(client, uri, sample))  # type: ignore[no-any-return]

    def list_samples(self, client: str, uri: str) -> list[Sample]:
        """`Mcp.list_samples`, blocking."""
        return list(self._call(lambda: self._mcp.list_samples(client, uri)))

    def get_sample(self, client: str, uri: str, index: int) -> Sample:
        """`Mcp.get_sample`, blocking."""
        return self._call(lambda: self._mcp.get_sample(client, uri, index))  # type: ignore[no-any-return]
