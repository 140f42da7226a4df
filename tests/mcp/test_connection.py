"""A connection to a well-behaved server."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest

from noetic_ray.errors import McpError
from noetic_ray.mcp.connection import Connection
from noetic_ray.mcp.results import tool_result
from noetic_ray.mcp.servers import McpServer
from tests.mcp.conftest import Connect
from tests.support.mcp_servers import children_with, echo_over_http, echo_server


async def call(connection: Connection, tool: str, **arguments: Any) -> Any:
    return tool_result(
        await connection.call("call_tool", {"name": tool, "arguments": arguments})
    ).value


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> Any:
    """The echo server over both transports."""
    if request.param == "stdio":
        yield echo_server()
        return
    with echo_over_http() as (url, _):
        yield McpServer(url=url)


async def test_everything_a_server_offers_is_there(server: McpServer, connect: Connect) -> None:
    connection = connect(server)
    tools = await connection.call("list_tools", {})
    assert {"ping", "status", "echo"} <= {tool["name"] for tool in tools["tools"]}
    resources = await connection.call("list_resources", {})
    assert {each["name"] for each in resources["resources"]} == {"info", "health"}
    prompts = await connection.call("list_prompts", {})
    assert {each["name"] for each in prompts["prompts"]} == {"test_connection", "test_echo"}
    read = await connection.call("read_resource", {"uri": "echo://health?check=all"})
    assert read["contents"][0]["uri"] == "echo://health?check=all"
    assert read["contents"][0]["text"] == '{"check": "all"}'
    arguments = {"name": "test_echo", "arguments": {"message": 5}}
    prompt = await connection.call("get_prompt", arguments)
    assert prompt["messages"][0]["content"]["text"] == "Echo this: 5"
    assert await connection.call("ping", {}) == {}


async def test_values_of_tools(server: McpServer, connect: Connect) -> None:
    connection = connect(server)
    assert await call(connection, "ping", count=3, message="test") == {
        "message": "test",
        "count": 3,
    }
    assert await call(connection, "text") == "plain words"
    assert await call(connection, "nil") is None
    assert await call(connection, "two") == [{"n": 1}, "second"]
    assert (await call(connection, "pic"))["mimeType"] == "image/png"
    assert await call(connection, "number") == 7
    assert await call(connection, "numbers") == [1, 2]
    assert (await call(connection, "document")).text == "inside"


async def test_a_tool_that_raises_is_an_answer_and_not_an_error(
    server: McpServer, connect: Connect
) -> None:
    raw = await connect(server).call("call_tool", {"name": "boom"})
    result = tool_result(raw)
    assert result.is_error
    assert "kaput" in result.text


async def test_what_a_server_refuses_is_an_error(server: McpServer, connect: Connect) -> None:
    connection = connect(server)
    with pytest.raises(McpError, match="Unknown resource") as caught:
        await connection.call("read_resource", {"uri": "echo://nope"})
    assert (caught.value.client, caught.value.code) == ("test", -32602)
    with pytest.raises(McpError, match="nope"):
        await connection.call("get_prompt", {"name": "nope"})


async def test_answers_find_their_callers(server: McpServer, connect: Connect) -> None:
    connection = connect(server)
    said = [f"text {n}" for n in range(20)]
    answers = await asyncio.gather(*[call(connection, "echo", text=each) for each in said])
    assert answers == said


async def test_requests_run_side_by_side(connect: Connect) -> None:
    connection = connect(echo_server())
    await connection.call("ping", {})
    clock = asyncio.get_running_loop()
    started = clock.time()
    names = ("a", "b", "c")
    calls = [call(connection, "slow", ms=500, tag=tag) for tag in names]
    assert await asyncio.gather(*calls) == ["a", "b", "c"]
    assert clock.time() - started < 1.4


async def test_callers_share_one_start(connect: Connect) -> None:
    connection = connect(echo_server())
    found = await asyncio.gather(*[call(connection, "status") for _ in range(5)])
    assert len({each["pid"] for each in found}) == 1


async def test_a_connection_closes_from_another_task_than_it_opened_in(
    server: McpServer,
) -> None:
    first, second = Connection("first", server), Connection("second", server)
    for connection in (first, second):
        await asyncio.create_task(connection.call("ping", {}))
    for connection in (first, second):
        await asyncio.create_task(call(connection, "ping"))
    for connection in (first, second):
        await asyncio.create_task(connection.aclose())
    with pytest.raises(McpError, match="closed"):
        await first.call("ping", {})


async def test_closing_ends_the_process_and_the_calls_under_way(connect: Connect) -> None:
    connection = connect(echo_server())
    pid = (await call(connection, "status"))["pid"]
    waiting = asyncio.create_task(call(connection, "slow", ms=60_000, tag="x"))
    await call(connection, "ping")
    await connection.aclose()
    with pytest.raises(McpError, match="closed during tools/call"):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_only_safe_variables_reach_a_server(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    connection = connect(echo_server(env={"MINE": "1"}))
    assert await call(connection, "variable", name="A_TOKEN") is None
    assert await call(connection, "variable", name="MINE") == 1
    assert await call(connection, "variable", name="PATH")


async def test_a_published_server_works(connect: Connect) -> None:
    connection = connect(McpServer(command=sys.executable, args=["-m", "mcp_server_time"]))
    listed = await connection.call("list_tools", {})
    assert {"get_current_time", "convert_time"} <= {each["name"] for each in listed["tools"]}
    assert "datetime" in await call(connection, "get_current_time", timezone="Europe/Berlin")


async def test_nothing_starts_before_the_first_request(connect: Connect) -> None:
    before = children_with("echo.py")
    connect(echo_server())
    assert children_with("echo.py") == before
