"""MCP servers for the tests: a well-behaved one on the SDK, and odd ones by hand."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from noetic_ray.mcp.servers import McpServer
from tests.support.wait import wait_until

_HERE = Path(__file__).parent


def echo_server(**options: Any) -> McpServer:
    """The `echo` server over stdio."""
    return McpServer(command=sys.executable, args=[str(_HERE / "echo.py")], **options)


def odd_server(record: Path | None = None, **options: Any) -> McpServer:
    """The odd server over stdio; it notes what it gets, and its pids, in `record`.

    Upper-case options go to its environment: `INIT="never"`, `INIT="exit"`, `BANNER="1"`, ...
    """
    env = {name: str(value) for name, value in options.items() if name.isupper()}
    if record is not None:
        env["RECORD"] = str(record)
    others = {name: value for name, value in options.items() if not name.isupper()}
    return McpServer(command=sys.executable, args=[str(_HERE / "odd.py")], env=env, **others)


@contextmanager
def echo_over_http(port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The `echo` server over streamable HTTP: (its URL, its process)."""
    port = port or free_port()
    line = [sys.executable, str(_HERE / "echo.py"), "http", str(port)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(port), 30.0)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A TCP port nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def noted(record: Path) -> list[dict[str, Any]]:
    """What an odd server noted so far."""
    if not record.exists():
        return []
    lines = record.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def pids(record: Path) -> list[int]:
    """The processes that an odd server noted: each start, and the child of each start."""
    return [each["pid"] for each in noted(record) if "pid" in each]


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children_with(text: str) -> list[int]:
    """Child processes of this one, at any depth, whose command line contains a text."""
    found = []
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if any(text in part for part in child.cmdline()):
                found.append(child.pid)
        except psutil.Error:
            continue
    return found


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
