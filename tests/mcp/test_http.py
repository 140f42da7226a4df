"""Servers over streamable HTTP that drop requests, sessions, or themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetic_ray.errors import McpError
from noetic_ray.mcp.connection import Connection
from noetic_ray.mcp.results import tool_result
from noetic_ray.mcp.servers import McpServer
from tests.mcp.conftest import Connect
from tests.support.mcp_servers import echo_over_http, free_port
from tests.support.mcp_servers.odd_http import OddHttp, odd_over_http
from tests.support.wait import wait_until


@pytest.fixture(params=[False, True], ids=["json", "sse"])
async def odd(request: pytest.FixtureRequest) -> AsyncIterator[OddHttp]:
    """An odd server that answers with JSON, or with events."""
    async with odd_over_http(request.param) as server:
        yield server


async def call(connection: Connection, tool: str) -> Any:
    return tool_result(await connection.call("call_tool", {"name": tool})).value


async def _until(predicate: Any) -> None:
    await asyncio.to_thread(wait_until, predicate)


@pytest.mark.parametrize("how", ["drop", "cut"])
async def test_a_dropped_socket_fails_its_call_alone_and_nothing_is_sent_again(
    connect: Connect, odd: OddHttp, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    connection = connect(McpServer(url=odd.url))
    other = asyncio.create_task(call(connection, "wait"))
    await _until(lambda: odd.calls() == ["wait"])
    async with asyncio.timeout(5):
        with pytest.raises(McpError, match="not sent again"):
            await call(connection, how)
    assert await call(connection, "fine") == "fine"
    odd.release.set()
    assert await other == "wait"
    assert odd.calls() == ["wait", how, "fine"]
    assert not caplog.records


async def test_a_forgotten_session_is_one_failed_call_and_then_a_new_session(
    connect: Connect, odd: OddHttp
) -> None:
    connection = connect(McpServer(url=odd.url))
    assert await call(connection, "a") == "a"
    odd.known.clear()
    with pytest.raises(McpError, match="Session terminated"):
        await call(connection, "b")
    assert await call(connection, "c") == "c"
    assert odd.sessions == 2
    assert odd.calls() == ["a", "b", "c"]


async def test_an_error_of_the_web_server_is_an_error_of_the_call(
    connect: Connect, odd: OddHttp
) -> None:
    connection = connect(McpServer(url=odd.url))
    with pytest.raises(McpError):
        await call(connection, "error500")
    assert await call(connection, "a") == "a"
    assert odd.sessions == 1


async def test_headers_go_with_every_request(connect: Connect, odd: OddHttp) -> None:
    connection = connect(McpServer(url=odd.url, headers={"Authorization": "Bearer t"}))
    await call(connection, "a")
    assert len(odd.headers) == 3
    assert {each["authorization"] for each in odd.headers} == {"Bearer t"}
    assert odd.headers[-1]["mcp-protocol-version"] == "2025-06-18"


async def test_a_cancelled_call_is_cancelled_at_the_server(connect: Connect, odd: OddHttp) -> None:
    connection = connect(McpServer(url=odd.url))
    waiting = asyncio.create_task(call(connection, "wait"))
    await _until(lambda: odd.calls() == ["wait"])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until(lambda: "notifications/cancelled" in odd.methods())
    asked = next(each for each in odd.got if each["method"] == "tools/call")
    notice = next(each for each in odd.got if each["method"] == "notifications/cancelled")
    assert notice["params"]["requestId"] == asked["id"]


async def test_a_call_without_an_answer_ends_in_time(connect: Connect, odd: OddHttp) -> None:
    connection = connect(McpServer(url=odd.url, timeout=0.5))
    with pytest.raises(McpError, match=r"within 0\.5 s"):
        await call(connection, "wait")
    assert await call(connection, "a") == "a"


async def test_nobody_there_is_an_error_in_time(connect: Connect) -> None:
    connection = connect(McpServer(url=f"http://127.0.0.1:{free_port()}/mcp"))
    async with asyncio.timeout(5):
        with pytest.raises(McpError, match="does not start"):
            await connection.call("ping", {})


async def test_a_server_that_accepts_and_says_nothing_is_given_up_in_time(
    connect: Connect,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = connect(McpServer(url=f"http://127.0.0.1:{port}/mcp", timeout=0.7))
        with pytest.raises(McpError, match=r"not ready within 0\.7 s"):
            await connection.call("ping", {})
        await connection.aclose()


async def test_a_server_that_was_killed_and_came_back_is_reached_again(connect: Connect) -> None:
    port = free_port()
    connection = connect(McpServer(url=f"http://127.0.0.1:{port}/mcp"))
    with echo_over_http(port) as (_, process):
        assert (await call(connection, "status"))["pid"] == process.pid
        arguments = {"name": "slow", "arguments": {"ms": 60_000, "tag": "x"}}
        waiting = asyncio.create_task(connection.call("call_tool", arguments))
        await connection.call("ping", {})
        process.kill()
        async with asyncio.timeout(5):
            with pytest.raises(McpError):
                await waiting
    with echo_over_http(port) as (_, process):
        assert (await call(connection, "status"))["pid"] == process.pid
