"""HTTP below the SDK's session: a request that fails fails alone. Imports the SDK's client.

The SDK lets an error of one request end the whole session, with all that is in flight. Here it
becomes that request's JSON-RPC error. Nothing is sent a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp_types import CONNECTION_CLOSED
from pydantic_core import from_json, to_json

from noetic_ray.mcp.servers import McpServer

#: Seconds for what nobody waits for: notices, and the end of a session.
_NOTICE, _GOODBYE = 5.0, 2.0
_SMALL = 4_096
_SESSION = "mcp-session-id"


class Contained(httpx2.AsyncBaseTransport):
    """Turns failures of single requests into answers. `lost`: the session is of no more use."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.lost = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            async with asyncio.timeout(_limit(request)):
                response = await self._inner.handle_async_request(request)
                if _is_json(response):
                    return await self._whole(response)
        except (httpx2.TransportError, TimeoutError) as error:
            return self._failed(error)
        if response.status_code == 404 and _SESSION in request.headers:
            self.lost = True
        stream = _Watched(self, response.stream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=stream,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _whole(self, response: httpx2.Response) -> httpx2.Response:
        """Read a short answer here, where it is known what a cut one means."""
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        headers = [(k, v) for k, v in response.headers.raw if k.lower() != b"content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, content=body)

    def _failed(self, error: Exception) -> httpx2.Response:
        self.lost = True
        told = {"code": CONNECTION_CLOSED, "message": _said(error)}
        body = to_json({"jsonrpc": "2.0", "id": None, "error": told})
        return httpx2.Response(502, headers={"content-type": "application/json"}, content=body)


class _Watched(httpx2.AsyncByteStream):
    """A stream of events that notes when it broke off."""

    def __init__(self, owner: Contained, stream: Any) -> None:
        self._owner = owner
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                yield chunk
        except httpx2.TransportError:
            self._owner.lost = True
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


def open_client(server: McpServer) -> tuple[httpx2.AsyncClient, Contained]:
    """A client for one session. Requests are bounded by those who make them."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    contained = Contained(httpx2.AsyncHTTPTransport(limits=limits))
    timeout = httpx2.Timeout(server.timeout, read=None)
    headers = dict(server.headers or {})
    return httpx2.AsyncClient(transport=contained, headers=headers, timeout=timeout), contained


def _limit(request: httpx2.Request) -> float | None:
    if request.method == "DELETE":
        return _GOODBYE
    if request.method == "POST" and len(request.content) < _SMALL:
        message = from_json(request.content)
        if isinstance(message, dict) and "id" not in message:
            return _NOTICE
    return None


def _is_json(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")


def _said(error: Exception) -> str:
    name = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return f"{name}: {error}" if str(error) else name
