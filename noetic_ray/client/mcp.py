"""`ctx.mcp`: tools, resources and prompts of MCP servers, each call a node of the trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from noetic_ray.client.mcp_calls import ToolCall, as_calls, failed_call, side_by_side
from noetic_ray.client.ports import ClientPort
from noetic_ray.client.samples import SampleShelf
from noetic_ray.client.trace import Trace
from noetic_ray.client.trace_node import TraceNode, said_of
from noetic_ray.client.trace_records import TraceNodeOption
from noetic_ray.errors import ConfigError, McpError
from noetic_ray.mcp.paging import all_pages
from noetic_ray.mcp.port import unknown_client
from noetic_ray.mcp.results import McpRecord, Page, Sample, ToolResult, record, tool_result

T = TypeVar("T")
#: So many calls of a batch are under way at once, unless the caller says otherwise.
CONCURRENCY = 16
#: Where a listing has its entries, and what tells two of them apart.
LISTINGS = {
    "list_resources": ("resources", "uri"),
    "list_tools": ("tools", "name"),
    "list_prompts": ("prompts", "name"),
}


class Mcp:
    """The MCP servers of the harness (`Harness(mcp={"name": nr.McpServer(...)})`), by name.

    One connection per server is shared by the whole swarm. A call is a trace node of type `mcp`
    below the newest current node, which stays open; it fails when the call raises or the tool
    says that it failed. Raises McpError for an unknown server, one that cannot be reached, and
    what a server refuses; an abort of the context cancels the request at the server.
    """

    __slots__ = ("_port", "_samples", "_trace")

    def __init__(self, port: ClientPort, trace: Trace) -> None:
        self._port = port
        self._trace = trace
        self._samples = SampleShelf(port)

    # -- resources -------------------------------------------------------------------------------

    async def list_resources(self, client: str, cursor: str | None = None) -> Any:
        """All resources, as records with `uri` and `name`.

        With `cursor` ("" for the first) one `Page` of them.
        """
        return await self._list(client, "list_resources", cursor)

    async def read_resource(self, client: str, uri: str) -> McpRecord:
        """A resource: a record whose `contents` have `uri`, `mimeType`, and `text` or `blob`."""
        return record(await self._ask(client, "read_resource", {"uri": uri}, uri))  # type: ignore[no-any-return]

    # -- tools -----------------------------------------------------------------------------------

    async def list_tools(self, client: str, cursor: str | None = None) -> Any:
        """All tools, as records with `name`, `description`, `inputSchema`; or one `Page`."""
        return await self._list(client, "list_tools", cursor)

    async def call_tool(
        self, client: str, name: str, args: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Call a tool and return its whole answer; look at `is_error`, it is not raised."""
        self._expect(client)
        call = ToolCall(name, dict(args or {}))
        return await self._call(client, call, self._node("call_tool", client, call.arguments, name))

    async def call_tools(self, client: str, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """Call tools one after the other; an entry is {"name": ..., "args": {...}}.

        A call that fails is a result with `is_error`, and the next one is made.
        """
        return await self._batch(client, "call_tools", calls, 1)

    async def call_tools_parallel(
        self, client: str, calls: Sequence[Mapping[str, Any]], *, concurrency: int = CONCURRENCY
    ) -> list[ToolResult]:
        """Call tools side by side, at most `concurrency` at once; results in the calls' order."""
        if concurrency < 1:
            raise ConfigError(
                "INVALID_CONCURRENCY", f"concurrency is {concurrency}", "use at least 1"
            )
        return await self._batch(client, "call_tools_parallel", calls, concurrency)

    # -- prompts ---------------------------------------------------------------------------------

    async def list_prompts(self, client: str, cursor: str | None = None) -> Any:
        """All prompts, as records with `name`, `description`, `arguments`; or one `Page`."""
        return await self._list(client, "list_prompts", cursor)

    async def get_prompt(
        self, client: str, name: str, args: Mapping[str, Any] | None = None
    ) -> McpRecord:
        """A prompt filled in: a record with `messages`. Arguments are sent as texts."""
        arguments = {"name": name, "arguments": dict(args or {})}
        return record(await self._ask(client, "get_prompt", arguments, name))  # type: ignore[no-any-return]

    # -- samples ---------------------------------------------------------------------------------

    async def create_sample(self, client: str, uri: str, sample: Mapping[str, Any]) -> Sample:
        """Keep an example of a resource in the harness's store; indices count from 0."""
        self._expect(client)
        return await self._samples.create(client, uri, sample)

    async def list_samples(self, client: str, uri: str) -> list[Sample]:
        """The examples kept of a resource, oldest first."""
        self._expect(client)
        return await self._samples.all(client, uri)

    async def get_sample(self, client: str, uri: str, index: int) -> Sample:
        """One of them. Raises McpError when there is none of this index."""
        self._expect(client)
        return await self._samples.one(client, uri, index)

    # -- inside ----------------------------------------------------------------------------------

    def _expect(self, client: str) -> None:
        if client not in self._port.mcp_clients:
            raise unknown_client(client, self._port.mcp_clients)

    def _node(
        self, method: str, client: str, input: Any, label: str, above: TraceNode | None = None
    ) -> TraceNode:
        facts = {"client": client, "method": method}
        option = TraceNodeOption(label, "mcp", "mcp", f"{method} at {client}", facts)
        return self._trace.begin_child(input, option, above)

    async def _ask(self, client: str, method: str, arguments: Mapping[str, Any], label: str) -> Any:
        self._expect(client)
        node = self._node(method, client, dict(arguments), label)
        return await _noted(
            node, lambda: self._port.ask_mcp(client, method, arguments), lambda _: {}
        )

    async def _list(self, client: str, method: str, cursor: str | None) -> Any:
        self._expect(client)
        node = self._node(method, client, {} if cursor is None else {"cursor": cursor}, method)

        key, mark = LISTINGS[method]

        async def page(at: str | None) -> tuple[list[Any], str | None]:
            answer = await self._port.ask_mcp(client, method, {"cursor": at} if at else {})
            return record(answer.get(key) or []), answer.get("nextCursor") or None

        async def listed() -> Any:
            if cursor is not None:
                return Page(*await page(cursor))
            return await all_pages(page, client, mark)

        return await _noted(node, listed, lambda found: {"count": len(found)})

    async def _call(self, client: str, call: ToolCall, node: TraceNode) -> ToolResult:
        arguments = {"name": call.name, "arguments": call.arguments}
        try:
            raw = await self._port.ask_mcp(client, "call_tool", arguments)
        except BaseException as error:
            node.fail(said_of(error))
            raise
        result = tool_result(raw)
        if result.is_error:
            node.set_output(raw)
            node.fail(result.text or "the tool said that it failed")
        else:
            node.complete(raw)
        return result

    async def _batch(
        self, client: str, method: str, given: Any, concurrency: int
    ) -> list[ToolResult]:
        self._expect(client)
        calls = as_calls(client, given)
        inputs = [{"name": call.name, "arguments": call.arguments} for call in calls]
        batch = self._node(method, client, inputs, method)

        async def one(call: ToolCall) -> ToolResult:
            node = self._node("call_tool", client, call.arguments, call.name, batch)
            try:
                return await self._call(client, call, node)
            except McpError as error:
                return failed_call(error)

        def counts(results: list[ToolResult]) -> dict[str, int]:
            failed = sum(result.is_error for result in results)
            return {"succeeded": len(results) - failed, "failed": failed}

        return await _noted(
            batch, lambda: side_by_side([lambda c=call: one(c) for call in calls], concurrency),  # type: ignore[misc]
            counts,
        )  # fmt: skip


async def _noted(
    node: TraceNode, work: Callable[[], Awaitable[T]], output: Callable[[T], Any]
) -> T:
    """Do something that a node stands for."""
    try:
        result = await work()
    except asyncio.CancelledError:
        node.fail("cancelled")
        raise
    except BaseException as error:
        node.fail(said_of(error))
        raise
    node.complete(output(result))
    return result
