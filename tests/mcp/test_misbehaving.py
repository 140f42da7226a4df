"""Servers that do what they should not."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from noetic_ray.errors import McpError
from noetic_ray.mcp.connection import Connection
from noetic_ray.mcp.paging import all_pages
from noetic_ray.mcp.results import tool_result
from noetic_ray.mcp.servers import McpServer
from tests.mcp.conftest import Connect
from tests.support.mcp_servers import alive, echo_server, noted, odd_server, pids
from tests.support.wait import wait_until


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Where an odd server notes what it gets."""
    return tmp_path / "record.jsonl"


async def call(connection: Connection, tool: str, **arguments: Any) -> Any:
    return await connection.call("call_tool", {"name": tool, "arguments": arguments})


def _got(record: Path, method: str) -> list[dict[str, Any]]:
    return [
        each["got"]
        for each in noted(record)
        if "got" in each and each["got"].get("method") == method
    ]


async def _until(predicate: Any) -> None:
    await asyncio.to_thread(wait_until, predicate)


# -- deaths ----------------------------------------------------------------------------------------


async def test_a_server_that_dies_fails_its_calls_at_once_and_is_started_by_the_next(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record))
    hanging = asyncio.create_task(call(connection, "hang"))
    await _until(lambda: _got(record, "tools/call"))
    async with asyncio.timeout(5):
        with pytest.raises(McpError, match=r"exit code 9.*about to fall over"):
            await call(connection, "die")
        with pytest.raises(McpError, match="lost during tools/call, which is not sent again"):
            await hanging
    assert tool_result(await call(connection, "fine")).text.startswith("did fine")
    sent = [each["params"]["name"] for each in _got(record, "tools/call")]
    assert sent == ["hang", "die", "fine"]
    assert len(pids(record)) == 2


async def test_a_server_killed_between_calls_is_started_again(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record))
    await call(connection, "a")
    os.kill(pids(record)[0], signal.SIGKILL)
    await _until(lambda: not alive(pids(record)[0]))
    # The end of its output may not have arrived yet.
    first = await asyncio.gather(call(connection, "b"), return_exceptions=True)
    assert isinstance(first[0], dict) or "SIGKILL" in str(first[0])
    assert (await call(connection, "c"))["content"]
    assert len(pids(record)) == 2


async def test_other_servers_do_not_notice(connect: Connect, record: Path) -> None:
    dying, living = connect(odd_server(record)), connect(echo_server())
    slow = asyncio.create_task(call(living, "slow", ms=300, tag="x"))
    with pytest.raises(McpError):
        await call(dying, "die")
    assert tool_result(await slow).value == "x"


async def test_a_server_that_leaves_instead_of_starting_says_why(connect: Connect) -> None:
    with pytest.raises(McpError, match=r"exit code 3.*no configuration found"):
        await connect(odd_server(INIT="exit")).call("ping", {})


async def test_a_program_that_is_not_there_is_an_error(connect: Connect) -> None:
    for server, word in (
        (McpServer(command="no-such-program"), "no program 'no-such-program'"),
        (McpServer(command=sys.executable, cwd="/no/such/place"), "no directory"),
    ):
        with pytest.raises(McpError, match=word):
            await connect(server).call("ping", {})


async def test_callers_of_a_start_that_fails_all_hear_of_it(connect: Connect) -> None:
    connection = connect(odd_server(INIT="exit"))
    ends = await asyncio.gather(
        *[connection.call("ping", {}) for _ in range(3)], return_exceptions=True
    )
    assert all(isinstance(end, McpError) for end in ends)
    assert len({id(end) for end in ends}) == 3


async def test_a_dead_server_whose_child_holds_its_pipes_is_dead(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record, CHILD=1))
    async with asyncio.timeout(5):
        with pytest.raises(McpError, match="exit code 9"):
            await call(connection, "die")
    await connection.aclose()
    await _until(lambda: not any(map(alive, pids(record))))


# -- starting and leaving --------------------------------------------------------------------------


async def test_a_server_that_never_answers_initialize_is_given_up_in_time(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record, INIT="never", timeout=1.5))
    with pytest.raises(McpError, match=r"not ready within 1\.5 s"):
        await connection.call("ping", {})
    await _until(lambda: not any(map(alive, pids(record))))
    assert len(pids(record)) == 1


async def test_an_abort_while_connecting_leaves_no_process(connect: Connect, record: Path) -> None:
    connection = connect(odd_server(record, INIT="never"))
    waiting = asyncio.create_task(connection.call("ping", {}))
    await _until(lambda: pids(record))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until(lambda: not any(map(alive, pids(record))))


async def test_an_abort_of_one_caller_does_not_stop_the_start_for_another(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record))
    first = asyncio.create_task(connection.call("ping", {}))
    second = asyncio.create_task(connection.call("ping", {}))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == {}
    assert len(pids(record)) == 1


async def test_closing_while_connecting_is_clean(record: Path) -> None:
    connection = Connection("test", odd_server(record, INIT="never"))
    waiting = asyncio.create_task(connection.call("ping", {}))
    await _until(lambda: pids(record))
    await connection.aclose()
    with pytest.raises(McpError, match="closed before it was ready"):
        await waiting
    assert not any(map(alive, pids(record)))


async def test_a_server_that_will_not_leave_is_killed_with_its_children(record: Path) -> None:
    connection = Connection("test", odd_server(record, STUBBORN=1, CHILD=1))
    await connection.call("ping", {})
    assert len(pids(record)) == 2
    async with asyncio.timeout(5):
        await connection.aclose()
    await _until(lambda: not any(map(alive, pids(record))))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_stubborn_server_dies_with_a_client_that_is_killed(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    code = f"""
        import asyncio, pathlib
        from noetic_ray.mcp.connection import Connection
        from tests.support.mcp_servers import odd_server

        async def main():
            connection = Connection("test", odd_server(pathlib.Path({str(record)!r}), STUBBORN=1))
            await connection.call("ping", {{}})
            print("ready", flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    line = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    wait_until(lambda: not any(map(alive, pids(record))))


# -- time and cancelling ---------------------------------------------------------------------------


async def test_a_call_without_an_answer_ends_in_time_and_is_cancelled_at_the_server(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record, timeout=0.7))
    await connection.call("ping", {}, timeout=20.0)
    with pytest.raises(McpError, match=r"no answer to tools/call within 0\.7 s"):
        await call(connection, "hang")
    await _until(lambda: _got(record, "notifications/cancelled"))
    cancelled = _got(record, "notifications/cancelled")[0]["params"]["requestId"]
    assert cancelled == _got(record, "tools/call")[0]["id"]
    assert (await call(connection, "fine"))["content"]


async def test_a_cancelled_call_is_cancelled_at_the_server_and_its_late_answer_ignored(
    connect: Connect, record: Path
) -> None:
    connection = connect(odd_server(record))
    waiting = asyncio.create_task(call(connection, "late", seconds=0.6))
    await _until(lambda: _got(record, "tools/call"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until(lambda: _got(record, "notifications/cancelled"))
    notice = _got(record, "notifications/cancelled")[0]["params"]
    assert notice["requestId"] == _got(record, "tools/call")[0]["id"]
    second = await call(connection, "late", seconds=0.8)
    assert tool_result(second).text == "late"
    assert len(pids(record)) == 1


# -- noise -----------------------------------------------------------------------------------------


async def test_noise_on_standard_output_is_told_once_and_calls_work(
    connect: Connect, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    connection = connect(odd_server(BANNER=1))
    for _ in range(2):
        assert tool_result(await call(connection, "noise")).text.startswith("did noise")
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.name for each in told] == ["noetic_ray"]
    assert "Listening on stdio" in told[0].getMessage()
    assert len(told[0].getMessage()) < 500
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    assert "xxxx" not in out + err


async def test_stderr_goes_to_the_log_at_debug(
    connect: Connect, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "noetic_ray")
    with pytest.raises(McpError):
        await call(connect(odd_server()), "die")
    told = [each for each in caplog.records if "about to fall over" in each.getMessage()]
    assert told[0].levelno == logging.DEBUG
    assert "about to fall over" not in capfd.readouterr().err


# -- answers ---------------------------------------------------------------------------------------


async def test_blocks_that_the_sdk_does_not_know_are_kept_as_they_are(connect: Connect) -> None:
    connection = connect(odd_server())
    result = tool_result(await call(connection, "unknown"))
    assert result.content[0] == {"type": "hologram", "beam": {"w": 3}}
    assert result.text == "flat"
    broken = tool_result(await call(connection, "broken"))
    assert len(broken.content) == 3
    assert tool_result(await call(connection, "no_list")).value == "alone"


async def test_a_structured_answer_against_its_schema_is_kept_and_told(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "noetic_ray")
    connection = connect(odd_server())
    # The tool is on the last of three pages, and nobody has listed anything.
    result = tool_result(await call(connection, "typed"))
    assert result.structured == {"n": "three"}
    assert not result.is_error
    assert "'typed'" in caplog.text
    assert "not of type 'integer'" in caplog.text
    caplog.clear()
    assert tool_result(await call(connection, "right")).value == {"n": 3}
    assert not caplog.records


@pytest.mark.parametrize("tool", ["failed", "failed_bare"])
async def test_a_failure_keeps_text_and_structured_answer(connect: Connect, tool: str) -> None:
    result = tool_result(await call(connect(odd_server()), tool))
    assert result.is_error
    assert result.structured == {"why": "x"}


async def test_an_answer_that_cannot_be_read_is_an_error_at_once(connect: Connect) -> None:
    connection = connect(odd_server())
    with pytest.raises(McpError, match="no valid JSON-RPC message"):
        await call(connection, "scalar")
    assert "of it" in tool_result(await call(connection, "surrogate")).text


async def test_a_refusal_keeps_code_and_data(connect: Connect) -> None:
    with pytest.raises(McpError, match="not today") as caught:
        await call(connect(odd_server()), "refuse")
    assert (caught.value.code, caught.value.data) == (-32050, {"when": "tomorrow"})


async def test_large_answers_and_arguments_pass(connect: Connect) -> None:
    connection = connect(odd_server())
    assert len(tool_result(await call(connection, "big")).text) == 3_000_000
    echoed = await call(connection, "echo", text="z" * 2_000_000)
    assert len(tool_result(echoed).text) > 2_000_000


async def test_what_a_server_does_not_offer_is_an_error(connect: Connect, record: Path) -> None:
    connection = connect(odd_server(record))
    for method, arguments in (("list_prompts", {}), ("get_prompt", {"name": "p"})):
        with pytest.raises(McpError, match="offers no prompts"):
            await connection.call(method, arguments)
    assert not _got(record, "prompts/list")


async def test_pages_are_followed_and_a_cursor_that_repeats_is_an_error(connect: Connect) -> None:
    connection = connect(odd_server())

    def fetch(method: str, key: str) -> Any:
        async def page(cursor: str | None) -> tuple[list[Any], str | None]:
            raw = await connection.call(method, {"cursor": cursor})
            return raw[key], raw.get("nextCursor")

        return page

    tools = await all_pages(fetch("list_tools", "tools"), "test", "name")
    assert [each.get("name") for each in tools] == ["a", "b", "typed", "right", None]
    assert "again" not in tools[1]
    with pytest.raises(McpError, match="does not end"):
        await all_pages(fetch("list_resources", "resources"), "test", "uri")


async def test_an_abort_while_connecting_and_a_close_at_once_end_a_stubborn_server(
    record: Path,
) -> None:
    connection = Connection("test", odd_server(record, INIT="never", STUBBORN=1))
    waiting = asyncio.create_task(connection.call("ping", {}))
    await _until(lambda: pids(record))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await connection.aclose()
    assert not any(map(alive, pids(record)))
