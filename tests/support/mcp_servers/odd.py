"""A server over stdio, by hand, that does what a server should not.

It is told by the environment: RECORD (a file: what it gets, and its pids, as JSON lines), INIT
(`never`: no answer to initialize; `exit`: it leaves instead), BANNER (noise before anything else),
CHILD (it starts a process that outlives it and holds its pipes), STUBBORN (it stays when its input
ends and when it is asked to leave).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

_lock = threading.Lock()


def note(what: dict[str, Any]) -> None:
    """Write a line into the record, whole."""
    path = os.environ.get("RECORD")
    if path:
        line = (json.dumps(what) + "\n").encode()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line)
        os.close(file)


def write(line: str) -> None:
    """Write a line to the client, whatever it is."""
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer(number: Any, result: Any) -> None:
    """Answer a request."""
    write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))


def noise() -> None:
    """What belongs on stderr: words, progress, a very long line."""
    write("Listening on stdio ...")
    write("[#####     ] 50%")
    write('{"level": "info", "msg": "JSON, but no message"}')
    write("x" * 1_000_000)


def texts(*said: str) -> list[dict[str, Any]]:
    """Text blocks."""
    return [{"type": "text", "text": each} for each in said]


def call(number: Any, name: str, arguments: dict[str, Any]) -> None:
    """Answer tools/call, or not."""
    if name == "die":
        print("about to fall over", file=sys.stderr, flush=True)
        os._exit(9)
    if name == "hang":
        return
    if name == "late":
        later = threading.Timer(arguments["seconds"], answer, (number, {"content": texts("late")}))
        later.daemon = True
        later.start()
        return
    if name == "noise":
        noise()
    if name == "scalar":
        answer(number, 5)
        return
    if name == "surrogate":
        write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": '
              '[{"type": "text", "text": "half \\ud800 of it"}]}}')  # fmt: skip
        return
    if name == "refuse":
        error = {"code": -32050, "message": "not today", "data": {"when": "tomorrow"}}
        write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))
        return
    answer(number, _RESULTS.get(name, {"content": texts(f"did {name}", json.dumps(arguments))}))


_RESULTS: dict[str, dict[str, Any]] = {
    "unknown": {"content": [{"type": "hologram", "beam": {"w": 3}}, *texts("flat")]},
    "broken": {"content": [{"type": "text"}, 7, {"type": "image", "data": 5}], "isError": "no"},
    "no_list": {"content": {"type": "text", "text": "alone"}},
    "typed": {"content": texts("ok"), "structuredContent": {"n": "three"}},
    "right": {"content": [], "structuredContent": {"n": 3}},
    "failed": {"content": texts("bad"), "structuredContent": {"why": "x"}, "isError": True},
    "failed_bare": {"content": [], "structuredContent": {"why": "x"}, "isError": True},
    "big": {"content": texts("y" * 3_000_000)},
}
_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool as it is listed."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}


_PAGES: dict[Any, dict[str, Any]] = {
    None: {"tools": [tool("a"), tool("b")], "nextCursor": "p2"},
    "p2": {"tools": [tool("b", again=True), tool("typed", outputSchema=_NUMBER)],
           "nextCursor": "p3"},
    "p3": {"tools": [tool("right", outputSchema=_NUMBER), {"inputSchema": {}}], "nextCursor": ""},
}  # fmt: skip


def handle(message: dict[str, Any]) -> None:
    """One message of the client."""
    method, number = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        initialize(number)
    elif method == "tools/list":
        answer(number, _PAGES[params.get("cursor")])
    elif method == "resources/list":
        found = [{"uri": "odd://x", "name": "x"}]
        answer(number, {"resources": found, "nextCursor": "again"})
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments") or {})
    elif number is not None:
        answer(number, {})


def initialize(number: Any) -> None:
    """Shake hands, if at all."""
    how = os.environ.get("INIT")
    if how == "exit":
        print("no configuration found", file=sys.stderr, flush=True)
        sys.exit(3)
    if how != "never":
        capabilities = {"tools": {}, "resources": {}}
        named = {"name": "odd", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": named}
        answer(number, hello)


def main() -> None:
    """Serve until the input ends."""
    note({"pid": os.getpid(), "parent": os.getppid(), "cwd": os.getcwd()})
    if os.environ.get("STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.environ.get("CHILD"):
        # It has the pipes of its parent.
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        note({"pid": child.pid})
    if os.environ.get("BANNER"):
        noise()
    for line in sys.stdin:
        message = json.loads(line)
        note({"got": message})
        handle(message)
    if os.environ.get("STUBBORN"):
        time.sleep(300)


if __name__ == "__main__":
    main()
