"""The streams between the SDK's session and a server process. Imports the SDK."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from noetic_ray.mcp.process import ServerProcess

log = logging.getLogger("noetic_ray")

_READ = 262_144
_SHOWN = 200


class _Stream:
    """What the SDK asks of both directions."""

    async def aclose(self) -> None:
        """The process owns its pipes; nothing to do here."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.aclose()
        return None


class FromServer(_Stream):
    """Messages out of a server's standard output; other lines are told once and skipped."""

    def __init__(self, client: str, stdout: asyncio.StreamReader, process: ServerProcess) -> None:
        self._client = client
        self._stdout = stdout
        self._process = process
        self._lines = _Lines()
        self._ready: deque[SessionMessage] = deque()
        self._noisy = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._ready:
            chunk = await self._stdout.read(_READ)
            if not chunk:
                await self._process.ended()
                raise StopAsyncIteration
            for line in self._lines.feed(chunk):
                self._take(line)
        return self._ready.popleft()

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = _parsed(line) if line.lstrip()[:1] == b"{" else None
        if message is not None:
            self._ready.append(SessionMessage(message))
            return
        text = line[:_SHOWN].decode("utf-8", "replace").strip()
        level = logging.DEBUG if self._noisy else logging.WARNING
        self._noisy = True
        log.log(
            level,
            "MCP server %r wrote a line to its standard output that is no message; such lines are "
            "skipped, and not told again: %s",
            self._client,
            text,
        )


class ToServer(_Stream):
    """Messages into a server's standard input."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self._stdin = stdin

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._stdin.write(text.encode() + b"\n")
            await self._stdin.drain()
        except (OSError, RuntimeError) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._stdin.close()


class _Lines:
    """Cuts chunks into lines. The rest of a line that is no JSON object is not collected."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        *ended, rest = chunk.split(b"\n")
        lines = []
        for each in ended:
            self._add(each)
            lines.append(b"".join(self._parts))
            self._parts.clear()
            self._skipping = False
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        if self._skipping or not part:
            return
        self._parts.append(part)
        start = b"".join(self._parts).lstrip()[:1] if len(self._parts) == 1 else b"{"
        self._skipping = bool(start) and start != b"{"


def _parsed(line: bytes) -> Any:
    """The message a line holds; None when it is none."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _repaired(line)


def _repaired(line: bytes) -> Any:
    """A message of a server that is careless with its JSON; an unreadable answer is an error.

    Whoever waits for an answer that cannot be read is not to wait until its time is up.
    """
    try:
        held = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(held, dict) or held.get("jsonrpc") != "2.0":
        return None
    try:
        clean = json.dumps(held, ensure_ascii=False).encode("utf-8", "replace")
        return jsonrpc_message_adapter.validate_json(clean, by_name=False)
    except ValidationError:
        return _unreadable(held)


def _unreadable(held: dict[str, Any]) -> JSONRPCError | None:
    number = held.get("id")
    if "method" in held or isinstance(number, bool) or not isinstance(number, int | str):
        return None
    error = ErrorData(code=PARSE_ERROR, message="its answer is no valid JSON-RPC message")
    return JSONRPCError(jsonrpc="2.0", id=number, error=error)
