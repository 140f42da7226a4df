"""The servers of a harness without Ray."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetic_ray.errors import ConfigError, McpError
from noetic_ray.mcp.local import LocalMcp
from noetic_ray.mcp.port import McpPort
from noetic_ray.mcp.results import tool_result
from tests.support.mcp_servers import children_with, echo_server, odd_server


@pytest.fixture
async def port() -> AsyncIterator[LocalMcp]:
    servers = {"echo": echo_server(), "many": echo_server(replicas=2), "odd": odd_server()}
    port = LocalMcp(servers, asyncio.get_running_loop())
    yield port
    await port.aclose()


async def _pid(port: McpPort, client: str) -> int:
    raw = await port.call(client, "call_tool", {"name": "status"})
    return int(tool_result(raw).value["pid"])


async def test_it_is_a_port(port: LocalMcp) -> None:
    known: McpPort = port
    assert list(known.clients) == ["echo", "many", "odd"]
    raw = await known.call("echo", "call_tool", {"name": "ping", "arguments": {"message": "m"}})
    assert tool_result(raw).value["message"] == "m"


async def test_an_unknown_client_is_an_error_that_names_the_known_ones(port: LocalMcp) -> None:
    with pytest.raises(McpError, match=r"'ech'.*'echo', 'many', 'odd'"):
        await port.call("ech", "ping", {})


async def test_replicas_share_the_calls(port: LocalMcp) -> None:
    found = await asyncio.gather(*[_pid(port, "many") for _ in range(4)])
    assert len(set(found)) == 2
    assert len({await _pid(port, "echo") for _ in range(3)}) == 1


async def test_a_busy_replica_is_passed_over(port: LocalMcp) -> None:
    arguments = {"name": "slow", "arguments": {"ms": 30_000, "tag": "x"}}
    busy = asyncio.create_task(port.call("many", "call_tool", arguments))
    await asyncio.sleep(0)
    assert len({await _pid(port, "many") for _ in range(4)}) == 1
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)


async def test_it_can_be_called_from_another_loop(port: LocalMcp) -> None:
    answers: list[Any] = []

    def elsewhere() -> None:
        answers.append(asyncio.run(port.call("echo", "ping", {})))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert answers == [{}]


async def test_closing_ends_every_process() -> None:
    port = LocalMcp({"echo": echo_server(replicas=2)}, asyncio.get_running_loop())
    mine = {await _pid(port, "echo") for _ in range(2)}
    assert mine <= set(children_with("echo.py"))
    await port.aclose()
    assert not mine & set(children_with("echo.py"))
    with pytest.raises(McpError, match="closed"):
        await port.call("echo", "ping", {})


async def test_without_the_sdk_the_error_says_what_to_install(
    port: LocalMcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "mcp" else find(name)
    )
    with pytest.raises(ConfigError, match=r"pip install 'noetic-ray\[mcp\]'") as caught:
        await port.call("echo", "ping", {})
    assert caught.value.code == "MCP_NOT_INSTALLED"


@pytest.mark.parametrize(
    "module",
    [
        "noetic_ray.actors.mcp_client",
        "noetic_ray.actors.mcp_gateway",
        "noetic_ray.mcp.local",
        "noetic_ray.mcp.results",
    ],
)
def test_the_sdk_is_not_imported_ahead(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "heavy = {'mcp', 'mcp_types', 'httpx2', 'jsonschema', 'anyio'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if 'mcp' in heavy or 'mcp_types' in heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
