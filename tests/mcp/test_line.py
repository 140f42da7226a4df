"""The direct line between two processes of one machine."""

from __future__ import annotations

import asyncio
import sys

import pytest

from noetic_ray.actors.mcp_line import Line, LineLost, LineServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has such sockets")


async def test_answers_find_their_calls_and_large_ones_pass() -> None:
    async def answer(payload: bytes) -> bytes:
        await asyncio.sleep(0.001 * (10 - payload[0]))
        return payload * 100_000

    server = LineServer(answer)
    line = await Line.open(await server.open())
    assert line is not None
    calls = [line.ask(str(n), bytes([n])) for n in range(10)]
    assert await asyncio.gather(*calls) == [bytes([n]) * 100_000 for n in range(10)]
    line.close()
    server.close()


async def test_a_cancelled_call_is_cancelled_at_the_other_end() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def answer(payload: bytes) -> bytes:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return payload

    server = LineServer(answer)
    line = await Line.open(await server.open())
    assert line is not None
    call = asyncio.create_task(line.ask("a", b""))
    await started.wait()
    call.cancel()
    async with asyncio.timeout(5):
        await cancelled.wait()
    line.close()
    server.close()


async def test_calls_fail_when_the_other_end_hangs_up() -> None:
    started = asyncio.Event()

    async def answer(payload: bytes) -> bytes:
        started.set()
        await asyncio.Event().wait()
        return payload

    server = LineServer(answer)
    line = await Line.open(await server.open())
    assert line is not None
    call = asyncio.create_task(line.ask("a", b""))
    await started.wait()
    server.close()
    with pytest.raises(LineLost):
        await call
    with pytest.raises(LineLost):
        await line.ask("b", b"")
    assert line.lost


async def test_where_nobody_listens_there_is_no_line() -> None:
    assert await Line.open("noetic-nobody") is None
    assert await Line.open(None) is None
