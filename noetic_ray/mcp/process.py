"""An MCP server as a child process that talks over its standard streams."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import SubprocessStreamProtocol
from collections import deque
from contextlib import suppress
from typing import Any

from noetic_ray.errors import McpError
from noetic_ray.mcp.servers import McpServer

log = logging.getLogger("noetic_ray")

#: Seconds a server has to leave by itself once its input is closed, and then after SIGTERM.
_LEAVE, _TERMINATE, _REAP = 1.0, 0.5, 2.0
#: How long after the end of its output a server's exit code is waited for, and the other way round.
_EXIT_CODE = 0.5
_LAST_LINES = 0.1
_READ = 65_536
_LINE, _LOGGED, _LAST_WORDS = 500, 1_000, 5

#: Has the kernel kill the server when the thread that started it dies, kill -9 included. It runs
#: in the new process, before the server's program: code between fork and exec of a process with
#: many threads could meet a lock that nobody will release.
_LAUNCHER = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
if sys.argv[2] != "keep":
    os.environ.pop("LC_CTYPE", None)
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.stderr.write(f"{sys.argv[3]}: {error.strerror}\\n")
    os._exit(127)
"""


class _Watched(SubprocessStreamProtocol):
    """Tells of the exit of a process at once, also while others hold its pipes open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_READ, loop=loop)
        self.exited = asyncio.Event()
        self._clock = loop
        self._held: asyncio.BaseTransport | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._held = transport.get_pipe_transport(1)

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()
        # What it started may hold its output open for long: nothing more will come from itself.
        if self._held is not None:
            self._clock.call_later(_EXIT_CODE, self._held.close)


class ServerProcess:
    """One start of a server's command. `stop` ends it with everything it started."""

    def __init__(self, client: str, server: McpServer, base: dict[str, str]) -> None:
        self._client = client
        self._server = server
        self._env = {**base, **(server.env or {})}
        self._transport: asyncio.SubprocessTransport | None = None
        self._protocol: _Watched | None = None
        self._stderr: asyncio.Task[None] | None = None
        self._words: deque[str] = deque(maxlen=_LAST_WORDS)

    async def start(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Start it; returns its output and its input. McpError when it cannot be started."""
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Watched(loop),
                *self._command_line(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._env,
                cwd=self._server.cwd,
                start_new_session=os.name == "posix",
            )
        except (OSError, ValueError) as error:
            raise McpError(self._client, f"it cannot be started: {error}") from error
        self._transport, self._protocol = transport, protocol
        process = asyncio.subprocess.Process(transport, protocol, loop)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stderr = loop.create_task(self._listen(process.stderr), name="mcp-stderr")
        return process.stdout, process.stdin

    async def stop(self) -> None:
        """End the process and its group: ask, then SIGTERM, then SIGKILL. At most 3.5 s."""
        transport, protocol = self._transport, self._protocol
        if transport is None or protocol is None:
            return
        try:
            await self._leave(transport, protocol)
        finally:
            self._signal(transport, "SIGKILL")
            try:
                await self._reaped(transport, protocol)
            finally:
                if self._stderr is not None:
                    self._stderr.cancel()
                with suppress(ProcessLookupError, PermissionError):
                    transport.close()

    async def ended(self) -> None:
        """Give a process whose output ended a moment to leave its exit code and last words."""
        if self._protocol is not None:
            await _within(self._protocol.exited, _EXIT_CODE)
        if self._stderr is not None:
            await asyncio.wait([self._stderr], timeout=_LAST_LINES)

    def obituary(self) -> str:
        """What is known of its end: the exit code and its last words."""
        code = None if self._transport is None else self._transport.get_returncode()
        if code is None:
            said = "it closed its output"
        elif code < 0:
            said = f"its process was ended by signal {_signal_name(-code)}"
        else:
            said = f"its process ended with exit code {code}"
        words = " | ".join(self._words)
        return f"{said}; its last words: {words}" if words else said

    async def _leave(self, transport: asyncio.SubprocessTransport, protocol: _Watched) -> None:
        """Let the server go by itself, then ask it to."""
        stdin = transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()
        if not await _within(protocol.exited, _LEAVE):
            self._signal(transport, "SIGTERM")
            await _within(protocol.exited, _TERMINATE)

    async def _reaped(self, transport: asyncio.SubprocessTransport, protocol: _Watched) -> None:
        if not await _within(protocol.exited, _REAP):
            pid = transport.get_pid()
            log.warning("process %s of MCP server %r cannot be killed", pid, self._client)

    def _command_line(self) -> list[str]:
        command = str(self._server.command)
        line = [command, *self._server.args]
        if self._server.cwd is not None and not os.path.isdir(self._server.cwd):
            raise OSError(f"there is no directory {self._server.cwd!r} here")
        if shutil.which(self._from_cwd(command), path=self._env.get("PATH")) is None:
            raise OSError(
                f"there is no program {command!r} here; give its full path or set PATH in env"
            )
        if sys.platform != "linux":
            return line
        keep = "keep" if "LC_CTYPE" in self._env else "drop"
        return [sys.executable, "-ISc", _LAUNCHER, str(os.getpid()), keep, *line]

    def _from_cwd(self, command: str) -> str:
        if os.path.dirname(command) and self._server.cwd is not None:
            return os.path.join(self._server.cwd, command)
        return command

    def _signal(self, transport: asyncio.SubprocessTransport, name: str) -> None:
        """Signal the whole group, which can outlive the process that leads it."""
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(transport.get_pid(), getattr(signal, name))
            elif transport.get_returncode() is None:
                transport.kill()

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        """Pass the server's stderr to the log, at debug, and keep its last lines."""
        logged, rest = 0, b""
        while chunk := await stderr.read(_READ):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_LINE]
            for line in lines:
                text = line[:_LINE].decode("utf-8", "replace").rstrip()
                if text:
                    self._words.append(text)
                    logged += 1
                    if logged <= _LOGGED:
                        log.debug("MCP server %r: %s", self._client, text)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
