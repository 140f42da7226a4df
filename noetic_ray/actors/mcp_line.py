"""A direct line between two processes of one machine, past Ray.

An actor call costs as much as a small tool takes. Where both ends are on one Linux machine, under
one user, requests to a gateway go over a local socket; elsewhere they are actor calls. A frame is
its length (4 bytes) and pickled data: (call id, payload) there, a payload of None for a call that
nobody waits for any more; (call id, answer) back.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

__all__ = ["Line", "LineLost", "LineServer"]

_LENGTH = struct.Struct(">I")
_USER = struct.Struct("3i")
#: Processes that open their lines at once; more of them make actor calls.
_BACKLOG = 1_000


class LineLost(Exception):
    """The other end is gone."""


class _Framed(asyncio.Protocol):
    """Cuts what arrives into frames."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(memoryview(self._buffer)[_LENGTH.size : end])
            del self._buffer[:end]
            self.frame(pickle.loads(frame))

    def frame(self, message: Any) -> None:
        """One message of the other end."""
        raise NotImplementedError

    def send(self, message: Any) -> None:
        """Send one message; nothing happens when the other end is gone."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


class Line(_Framed):
    """The calling end, in one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        #: The other end is gone: no more calls.
        self.lost = False

    @classmethod
    async def open(cls, address: str | None) -> Line | None:
        """A line to a `LineServer`; None where there is no way."""
        if address is None or sys.platform != "linux":
            return None
        # Connected here: not every event loop can reach a socket that has no file.
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connected.connect("\0" + address)
        except OSError:
            connected.close()
            return None
        loop = asyncio.get_running_loop()
        _, line = await loop.create_unix_connection(cls, sock=connected)
        return line

    async def ask(self, call_id: str, payload: bytes) -> bytes:
        """The answer to a call; cancelling the await cancels the call. Raises LineLost."""
        if self.lost:
            raise LineLost
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        self.send((call_id, payload))
        try:
            return await answer
        except asyncio.CancelledError:
            self.send((call_id, None))
            raise
        finally:
            self._waiting.pop(call_id, None)

    def frame(self, message: Any) -> None:
        call_id, answer = message
        waiting = self._waiting.get(call_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LineLost())


class LineServer:
    """The answering end: a task per call, which ends with the process that called."""

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._callers: set[_Caller] = set()

    async def open(self) -> str | None:
        """Listen; returns the address for `Line.open`, None where there are no such sockets."""
        if sys.platform != "linux":
            return None
        address = f"noetic-{os.getpid()}-{os.urandom(16).hex()}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listening.bind("\0" + address)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Caller(self._answer, self._callers), sock=listening, backlog=_BACKLOG
        )
        return address

    def close(self) -> None:
        """Stop listening and hang up on all callers."""
        if self._server is not None:
            self._server.close()
        for caller in list(self._callers):
            caller.close()


class _Caller(_Framed):
    """One process that calls."""

    def __init__(self, answer: Callable[[bytes], Awaitable[bytes]], callers: set[_Caller]) -> None:
        super().__init__()
        self._answer = answer
        self._callers = callers
        self._calls: dict[str, asyncio.Task[None]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if _is_stranger(transport.get_extra_info("socket")):
            self._transport.abort()
            return
        self._callers.add(self)

    def frame(self, message: Any) -> None:
        call_id, payload = message
        if payload is None:
            call = self._calls.get(call_id)
            if call is not None:
                call.cancel()
            return
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._serve(call_id, payload), name=f"mcp-call-{call_id}")
        self._calls[call_id] = task

    def connection_lost(self, exc: Exception | None) -> None:
        self._callers.discard(self)
        for call in self._calls.values():
            call.cancel()

    async def _serve(self, call_id: str, payload: bytes) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self.send((call_id, await self._answer(payload)))
        finally:
            del self._calls[call_id]


def _is_stranger(connected: Any) -> bool:
    """Whether the other end belongs to another user."""
    held = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _USER.size)
    return bool(_USER.unpack(held)[1] != os.getuid())
