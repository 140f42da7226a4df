"""A streamable HTTP server, by hand, in the test's own loop: it drops sockets and forgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class OddHttp:
    """What it got, and how it is to behave. `sse`: answers are events instead of JSON."""

    def __init__(self, sse: bool) -> None:
        self.sse = sse
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sessions = 0
        self.known: set[str] = set()
        self.release = asyncio.Event()
        self.url = ""

    def calls(self) -> list[str]:
        """The tools that were called, in order."""
        return [each["params"]["name"] for each in self.got if each.get("method") == "tools/call"]

    def methods(self) -> list[str]:
        """Every method that arrived."""
        return [each["method"] for each in self.got]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._one(head.decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _one(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *rest = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in rest)}
        if not first.startswith("POST"):
            _respond(writer, 405 if first.startswith("GET") else 200, b"")
            return
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        message = json.loads(body)
        self.got.append(message)
        self.headers.append(headers)
        session = headers.get("mcp-session-id")
        if message["method"] == "initialize":
            self._initialize(writer, message)
        elif session not in self.known:
            _respond(writer, 404, b"")
        elif "id" not in message:
            _respond(writer, 202, b"")
        else:
            await self._answer(writer, message)

    def _initialize(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        self.sessions += 1
        session = f"s{self.sessions}"
        self.known.add(session)
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
        self._send(writer, message["id"], result, {"mcp-session-id": session})

    async def _answer(self, writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
        name = message.get("params", {}).get("name")
        if name == "drop":
            writer.close()
            return
        if name == "cut":
            kind = "text/event-stream" if self.sse else "application/json"
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 500\r\n\r\n"
            writer.write(head.encode() + b'{"jsonrpc"')
            await writer.drain()
            writer.close()
            return
        if name == "wait":
            await self.release.wait()
        if name == "error500":
            _respond(writer, 500, b"oops")
            return
        self._send(writer, message["id"], {"content": [{"type": "text", "text": str(name)}]})

    def _send(
        self,
        writer: asyncio.StreamWriter,
        number: Any,
        result: Any,
        headers: dict[str, str] | None = None,
    ) -> None:
        text = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
        if self.sse:
            kind, body = "text/event-stream", f"event: message\ndata: {text}\n\n"
        else:
            kind, body = "application/json", text
        _respond(writer, 200, body.encode(), {"content-type": kind, **(headers or {})})


def _respond(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str] | None = None
) -> None:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)


@asynccontextmanager
async def odd_over_http(sse: bool) -> AsyncIterator[OddHttp]:
    """The server, listening; its `url` is where."""
    odd = OddHttp(sse)
    server = await asyncio.start_server(odd.serve, "127.0.0.1", 0)
    odd.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server:
        yield odd
        odd.release.set()
        server.close()
