"""A provider over real HTTP that does what it is told, or plays a fixed part very cheaply.

With no script it answers both wires from prepared bytes: `rounds` rounds of one tool call, then
text, chosen by how many tool outputs the request holds. One such answer costs some 60 us, so that
a thousand agents can share a machine with it::

    python -m tests.support.model_server --port 0 --latency 0.02      # prints its port

In tests it runs in a thread, records what it got and follows a script of `Answer`s::

    with ModelServer() as server:
        server.script(Answer(429, headers={"retry-after": "1"}), Answer(chunks=[...]))
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support import wires

_TOOL = re.compile(rb'"type":\s?"function",\s?(?:"function":\s?\{)?"name":\s?"([^"]+)"')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_UNSTREAMED = re.compile(rb'"stream":\s?false')


@dataclass
class Answer:
    """One scripted response.

    Headers go out after `delay` seconds, chunks `gap` seconds apart (`per_byte`: each byte in a
    write of its own). `after` is what follows: a proper end, silence, a closed or a reset
    connection. `framing` "close" has no length: the end of the connection is the end of the body.
    """

    status: int = 200
    chunks: Sequence[bytes] = ()
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    delay: float = 0.0
    gap: float = 0.0
    per_byte: bool = False
    after: Literal["end", "hang", "drop", "reset"] = "end"
    framing: Literal["chunked", "length", "close"] = "chunked"
    silent: bool = False
    """Never answer at all."""


def json_answer(payload: Any, status: int = 200, **options: Any) -> Answer:
    """An answer with a JSON body."""
    options.setdefault("framing", "length")
    body = wires.dump(payload).encode()
    return Answer(status, [body], content_type="application/json", **options)


@dataclass
class Recorded:
    """One request as it arrived; `gone` is set when the client left before the answer's end."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    gone: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def json(self) -> Any:
        """The body, read strictly: NaN and bad UTF-8 are errors."""

        def refuse(name: str) -> None:
            raise ValueError(f"{name} is not JSON")

        return json.loads(self.body.decode("utf-8"), parse_constant=refuse)


@dataclass(frozen=True)
class Part:
    """What the server says without a script."""

    latency: float = 0.0
    rounds: int = 2
    tool: str = "lookup"
    arguments: str = "{}"
    text: str = "The answer is 42."
    deltas: int = 4


class _Prepared:
    """Whole HTTP responses as bytes, made once for each wire, round and tool."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._known: dict[tuple[bool, bool, int, bytes], bytes] = {}

    def bytes_for(self, head: bytes, body: bytes) -> bytes:
        chat = b"/responses" not in head.partition(b"\r\n")[0]
        outputs = body.count(b'"function_call_output"') + body.count(b'"role":"tool"')
        outputs += body.count(b'"role": "tool"')
        tool = b""
        if outputs < self._part.rounds:
            found = _TOOL.search(body)
            tool = found[1] if found else self._part.tool.encode()
        key = (chat, _UNSTREAMED.search(body) is not None, outputs, tool)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._make(*key)
        return known

    def _make(self, chat: bool, unstreamed: bool, outputs: int, tool: bytes) -> bytes:
        part = self._part
        call = (tool.decode(), part.arguments, f"call_{outputs + 1}")
        if unstreamed:
            return _whole_http(self._whole(chat, call, bool(tool)))
        if chat and tool:
            body = wires.chat_call(*call)
        elif chat:
            body = wires.chat_text(*wires._cut(part.text, part.deltas))
        else:
            item = wires.call_item(*call) if tool else wires.message_item(part.text)
            body = wires.responses_stream([item], pieces=part.deltas)
        return _head(Answer()) + _frame(body) + b"0\r\n\r\n"

    def _whole(self, chat: bool, call: tuple[str, str, str], calls: bool) -> wires.Json:
        if not chat:
            item = wires.call_item(*call) if calls else wires.message_item(self._part.text)
            return wires.response_whole([item])
        if not calls:
            return wires.chat_whole({"content": self._part.text})
        name, arguments, id = call
        function = {"name": name, "arguments": arguments}
        message = {
            "content": None,
            "tool_calls": [{"id": id, "type": "function", "function": function}],
        }
        return wires.chat_whole(message, "tool_calls")


class ModelServer:
    """The server in a thread; `url` is its base URL. Usable as a context manager."""

    def __init__(
        self,
        part: Part | None = None,
        *,
        record: bool = True,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.part = part or Part()
        self.port = port
        self._tls = tls
        self.requests: list[Recorded] = []
        self.connections = 0
        self._answers: deque[Answer] = deque()
        self._responder: Callable[[Recorded], Answer | None] | None = None
        self._prepared = _Prepared(self.part)
        self._record = record
        self._arrived = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._open: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL, ending in /v1."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/v1"

    def script(self, *answers: Answer) -> None:
        """Answer the next requests with these, in order, and then by the fixed part again."""
        self._answers.extend(answers)

    def respond(self, responder: Callable[[Recorded], Answer | None] | None) -> None:
        """Ask this for an answer when the script is used up; None means the fixed part.

        It runs on the server's loop and must not block.
        """
        self._responder = responder

    def wait_for(self, count: int, timeout: float = 10.0) -> list[Recorded]:
        """Block until `count` requests have arrived in all and return them."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= count, timeout):
                raise TimeoutError(f"{len(self.requests)} of {count} requests arrived")
            return list(self.requests)

    def __enter__(self) -> ModelServer:
        started = threading.Event()
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop, started), name="model-server", daemon=True
        )
        self._thread.start()
        if not started.wait(10):
            raise TimeoutError("the model server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    async def listen(self) -> asyncio.Server:
        """Start on the running loop; only for a process of its own."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=4096, ssl=self._tls
        )
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _run(self, loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(self.listen())
        loop.call_soon(started.set)
        loop.run_forever()
        server.close()
        for connection in list(self._open):
            connection.transport.abort()
        for task in self.tasks:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(asyncio.gather(*self.tasks, return_exceptions=True))
        loop.close()

    def _next(self, head: bytes, body: bytes, connection: int) -> tuple[Recorded, Answer | None]:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        recorded = Recorded(method, path, headers, body, connection)
        answer = self._answers.popleft() if self._answers else None
        if answer is None and self._responder is not None:
            answer = self._responder(recorded)
        with self._arrived:
            self.requests.append(recorded)
            self._arrived.notify_all()
        return recorded, answer


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as much of it as the clients here use."""

    transport: asyncio.Transport

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._buffer = b""
        self._current: Recorded | None = None
        self._number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.connections += 1
        self._number = self._server.connections
        self._server._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._open.discard(self)
        if self._current is not None and not self._current.done.is_set():
            self._current.gone.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._buffer, 0, end)
        total = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) < total:
            return
        head, body = self._buffer[:end], self._buffer[end + 4 : total]
        self._buffer = self._buffer[total:]
        self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        server = self._server
        recorded = answer = None
        if server._record:
            recorded, answer = server._next(head, body, self._number)
            self._current = recorded
        if answer is None:
            prepared = server._prepared.bytes_for(head, body)
            loop = asyncio.get_running_loop()
            loop.call_later(server.part.latency, self._write_prepared, prepared, recorded)
            return
        assert recorded is not None
        task = asyncio.get_running_loop().create_task(self._play(answer, recorded))
        server.tasks.add(task)
        task.add_done_callback(server.tasks.discard)

    def _write_prepared(self, prepared: bytes, recorded: Recorded | None) -> None:
        if self.transport.is_closing():
            return
        if recorded is not None:
            recorded.done.set()
        self.transport.write(prepared)

    async def _play(self, answer: Answer, recorded: Recorded) -> None:
        if answer.silent:
            return
        await asyncio.sleep(answer.delay)
        self.transport.write(_head(answer))
        for chunk in _pieces(answer):
            if answer.gap:
                await asyncio.sleep(answer.gap)
            elif answer.per_byte:
                await asyncio.sleep(0)
            if self.transport.is_closing():
                return
            self.transport.write(_frame(chunk) if answer.framing == "chunked" else chunk)
        self._end(answer, recorded)

    def _end(self, answer: Answer, recorded: Recorded) -> None:
        if answer.after == "hang":
            return
        recorded.done.set()
        if answer.after == "reset":
            self.transport.abort()
        elif answer.after == "drop" or answer.framing == "close":
            self.transport.close()
        elif answer.framing == "chunked":
            self.transport.write(b"0\r\n\r\n")


def _pieces(answer: Answer) -> Iterator[bytes]:
    for chunk in answer.chunks:
        if answer.per_byte:
            yield from (chunk[i : i + 1] for i in range(len(chunk)))
        else:
            yield chunk


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} X", f"content-type: {answer.content_type}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    elif answer.framing == "length":
        lines.append(f"content-length: {sum(map(len, answer.chunks))}")
    else:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _frame(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole_http(payload: wires.Json) -> bytes:
    answer = json_answer(payload)
    return _head(answer) + b"".join(answer.chunks)


@contextlib.contextmanager
def server_process(**part: Any) -> Iterator[str]:
    """Run the server in a process of its own and give its base URL.

    It ends with the block, and with this process whatever happens to it.
    """
    options = [word for name, value in part.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "tests.support.model_server", "--lifeline", *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.communicate()


async def _serve(part: Part, port: int, lifeline: bool) -> None:
    model_server = ModelServer(part, record=False, port=port)
    server = await model_server.listen()
    print(model_server.port, flush=True)
    if lifeline:
        loop = asyncio.get_running_loop()
        # The other end of stdin closes when the parent dies, however it dies.
        loop.add_reader(sys.stdin.fileno(), server.close)
    with contextlib.suppress(asyncio.CancelledError):
        await server.serve_forever()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="A fake model provider.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--rounds", type=int, default=2, help="tool rounds before the answer")
    parser.add_argument("--tool", default="lookup", help="called when a request names no tool")
    parser.add_argument("--arguments", default="{}")
    parser.add_argument("--text", default=Part.text)
    parser.add_argument("--deltas", type=int, default=4, help="pieces the text comes in")
    parser.add_argument("--lifeline", action="store_true", help="stop when stdin closes")
    options = vars(parser.parse_args())
    port, lifeline = options.pop("port"), options.pop("lifeline")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(Part(**options), port, lifeline))


if __name__ == "__main__":
    main()
