"""One session with an MCP server, on the SDK. Imports it; loaded by `load_sdk` only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp import ClientSession
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
)
from pydantic import ValidationError

from noetic_ray import __version__
from noetic_ray.errors import McpError
from noetic_ray.mcp.http import Contained, open_client
from noetic_ray.mcp.process import ServerProcess
from noetic_ray.mcp.requests import Request, needed_capability
from noetic_ray.mcp.servers import McpServer
from noetic_ray.mcp.streams import FromServer, ToServer

log = logging.getLogger("noetic_ray")

# What the SDK logs about a careless server goes to who has set up logging, not to the console.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_INFO = Implementation(name="noetic-ray", version=__version__)
_HEADERS = {"version": "MCP-Protocol-Version", "method": "Mcp-Method", "name": "Mcp-Name"}
_ITS_LOG = "notifications/message"
#: The SDK's word for a connection that is gone.
_CLOSED = (CONNECTION_CLOSED, "Connection closed")
_TOOLS_CHANGED = "notifications/tools/list_changed"


class _Dispatcher(JSONRPCDispatcher[TransportContext]):  # type: ignore[misc, unused-ignore]
    """The SDK's correlation of requests and answers, which tells when the connection is over."""

    def __init__(self, client: str, read: Any, write: Any) -> None:
        super().__init__(read, write)
        self._client = client
        self.over = False
        self.when_over: Callable[[], None] = lambda: None
        self.tools_changed: Callable[[], None] = lambda: None

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, self._heard, None, task_status=task_status)
        finally:
            self.over = True
            self.when_over()

    async def _heard(
        self,
        context: DispatchContext[TransportContext],
        method: str,
        params: Mapping[str, Any] | None,
    ) -> None:
        """Notifications: as they come, since nothing of them is a reason to stop."""
        if method == _TOOLS_CHANGED:
            self.tools_changed()
        elif method == _ITS_LOG:
            log.debug("MCP server %r says: %.500s", self._client, params)


class Session:
    """An open session: raw requests and answers, past the SDK's result models."""

    def __init__(
        self,
        client: str,
        sdk: ClientSession,
        dispatcher: _Dispatcher,
        end: ServerProcess | Contained,
    ) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self._end = end
        self._stamp = _stamp(sdk)
        self._offers = sdk.server_capabilities
        #: Set before it is closed from this side.
        self.closing = False
        self._ended = False

    @property
    def lost(self) -> bool:
        """Whether the next request needs a new session."""
        over = self._ended or self._dispatcher.over
        return over or (isinstance(self._end, Contained) and self._end.lost)

    def when_over(self, notify: Callable[[], None]) -> None:
        """Have `notify` called when the connection ends, from whichever side."""
        self._dispatcher.when_over = notify
        if self._dispatcher.over:
            notify()

    def when_tools_change(self, notify: Callable[[], None]) -> None:
        """Have `notify` called when the server says that its tools are others now."""
        self._dispatcher.tools_changed = notify

    async def ask(self, request: Request) -> dict[str, Any]:
        """Send a request, once, and return the raw result. Cancelling cancels it at the server.

        Raises McpError; of a lost connection it says what is known.
        """
        method, params = request
        kind = needed_capability(method)
        if kind is not None and getattr(self._offers, kind, None) is None:
            raise McpError(self._client, f"it offers no {kind}", code=METHOD_NOT_FOUND)
        stamped, options = self._stamp(method, params)
        try:
            answer: dict[str, Any] = await self._dispatcher.send_raw_request(
                method, stamped, options
            )
        except MCPError as error:
            raise self._refused(method, error) from None
        if answer.get("resultType") == "input_required":
            raise McpError(self._client, f"{method} asks for input, and nobody is here to give it")
        return answer

    def _refused(self, method: str, error: MCPError) -> McpError:
        # Who waits hears of the end of a connection before the dispatcher has come to its own.
        self._ended = self._ended or (error.code, error.message) == _CLOSED
        if error.code != CONNECTION_CLOSED or not self.lost:
            return McpError(self._client, error.message, code=error.code, data=error.data)
        if self.closing:
            said = f"the connection was closed during {method}"
        else:
            why = told(self._end, error)
            said = f"the connection was lost during {method}, which is not sent again: {why}"
        return McpError(self._client, said, code=error.code)


async def open_session(stack: AsyncExitStack, client: str, server: McpServer) -> Session:
    """Start or reach a server and shake hands. `stack` ends what was started, in this task."""
    end: ServerProcess | Contained
    if server.url is None:
        end = process = ServerProcess(client, server, get_default_environment())
        stack.push_async_callback(process.stop)
        stdout, stdin = await process.start()
        dispatcher = _Dispatcher(client, FromServer(client, stdout, process), ToServer(stdin))
    else:
        http, end = open_client(server)
        await stack.enter_async_context(http)
        streams = await stack.enter_async_context(
            streamable_http_client(server.url, http_client=http)
        )
        dispatcher = _Dispatcher(client, *streams)
    sdk = await stack.enter_async_context(ClientSession(dispatcher=dispatcher, client_info=_INFO))
    try:
        await _shake_hands(sdk)
    except MCPError as error:
        raise McpError(client, f"it does not start: {told(end, error)}", code=error.code) from None
    except (RuntimeError, ValidationError, ValueError) as error:
        raise McpError(client, f"its greeting makes no sense: {_first_line(error)}") from error
    return Session(client, sdk, dispatcher, end)


def told(end: ServerProcess | Contained, error: MCPError) -> str:
    """What is known about the end of a connection."""
    if error.code == CONNECTION_CLOSED and isinstance(end, ServerProcess):
        return end.obituary()
    return str(error.message)


async def _shake_hands(sdk: ClientSession) -> None:
    try:
        await sdk.initialize()
    except MCPError as error:
        if error.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        await sdk.discover()


_Stamp = Callable[[str, dict[str, Any]], tuple[dict[str, Any], CallOptions]]


def _stamp(sdk: ClientSession) -> _Stamp:
    """What each request carries: newer protocols say in every one who speaks which version."""
    version = str(sdk.protocol_version)
    if sdk.discover_result is None:
        plain: CallOptions = {"headers": {_HEADERS["version"]: version}}
        return lambda method, params: (params, plain)
    meta = {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: _INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
        CLIENT_CAPABILITIES_META_KEY: {},
    }

    def stamp(method: str, params: dict[str, Any]) -> tuple[dict[str, Any], CallOptions]:
        headers = {_HEADERS["version"]: version, _HEADERS["method"]: method}
        name = params.get("name", params.get("uri"))
        if isinstance(name, str) and name.isascii() and name.isprintable():
            headers[_HEADERS["name"]] = name
        return {**params, "_meta": dict(meta)}, {"headers": headers}

    return stamp


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


__all__ = ["Session", "open_session"]
