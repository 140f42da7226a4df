"""Many streams, slow readers, and clients that vanish."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import noetic_ray as nr
from noetic_ray.serve import following
from tests.serve import agents
from tests.serve.conftest import Live
from tests.support.wait import stays, wait_until

CHAT = "/v1/chat/completions"


def body(model: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def only_run(live: Live) -> Any:
    wait_until(lambda: live.service.entries())
    (entry,) = live.service.entries()
    return entry.run


def data_of(raw: str) -> list[Any]:
    found = [line[6:] for line in raw.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in found if each != "[DONE]"]


def text_of(frames: list[Any]) -> str:
    return "".join(f["choices"][0]["delta"].get("content") or "" for f in frames if f["choices"])


async def test_two_hundred_streams_at_once_get_each_their_own_text(live: Live) -> None:
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=live.url, timeout=60.0, limits=limits) as client:

        async def one(number: int) -> str:
            asked = body("team", f"number {number}", stream=True)
            answer = await client.post(CHAT, json=asked)
            assert answer.text.endswith("data: [DONE]\n\n")
            return text_of(data_of(answer.text))

        told = await asyncio.gather(*map(one, range(200)))
    assert told == [f"they said echo: number {number}" for number in range(200)]


def test_the_first_piece_does_not_wait_for_the_rest(make_live: Callable[..., Live]) -> None:
    """The model holds back its end until its beginning has arrived."""
    live = make_live(agents.talk, Halting())
    asked = body("talk", stream=True)
    with live.http.stream("POST", CHAT, json=asked) as answer:
        lines = answer.iter_lines()
        first = next(line for line in lines if "begin" in line)
        run = only_run(live)
        assert run.status == "running"
        GO.set()
        rest = "\n".join(lines)
    assert "begin" in first
    assert "and end" in rest


GO = threading.Event()


class Halting:
    """Says half of its answer, then waits for `GO`."""

    async def generate(self, request: Any, events: Any) -> nr.ModelReply:
        GO.clear()
        events.delta("text", "begin ")
        await asyncio.to_thread(GO.wait, 20.0)
        events.delta("text", "and end")
        return nr.testing.reply("begin and end")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_aborts_its_run(live: Live, stream: bool) -> None:
    connection = _send(live, body("waits", stream=stream))
    run = only_run(live)
    wait_until(lambda: run.status == "running")
    if stream:
        assert b"200 OK" in connection.recv(4096)
    connection.close()
    wait_until(lambda: run.status == "cancelled")
    with pytest.raises(nr.Cancelled, match="client disconnected"):
        run.result()


@pytest.mark.parametrize(
    ("more", "header"), [({"detached": True}, ""), ({}, "X-Noetic-Detached: 1\r\n")]
)
def test_a_detached_run_goes_on_without_its_client(
    live: Live, more: dict[str, Any], header: str
) -> None:
    connection = _send(live, body("waits", stream=True, **more), header)
    run = only_run(live)
    assert b"200 OK" in connection.recv(4096)
    connection.close()
    assert stays(lambda: run.status == "running", 0.5)
    assert live.status(run.id) == "running"


def test_a_finished_run_is_not_aborted(live: Live) -> None:
    live.post(CHAT, body("talk", stream=True))
    assert only_run(live).status == "completed"


def _send(live: Live, asked: dict[str, Any], headers: str = "") -> socket.socket:
    """A request on a bare connection, which can be dropped at any moment."""
    raw = json.dumps(asked)
    connection = socket.create_connection(("127.0.0.1", live.port), timeout=20.0)
    connection.sendall(
        (
            f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"{headers}Content-Length: {len(raw)}\r\n\r\n{raw}"
        ).encode()
    )
    return connection


@nr.step
async def floods(text: str, ctx: nr.Context) -> str:
    """Far more than a connection holds."""
    for number in range(400):
        ctx.messages.send(f"{number:06d}" + "x" * 20_000)
    return "the end"


def test_a_slow_reader_is_behind_and_blocks_nobody(make_live: Callable[..., Live]) -> None:
    live = make_live([floods, agents.talk])
    connection = _send(live, body("floods", stream=True))
    run = only_run(live)
    wait_until(lambda: run.status == "completed")  # nobody has read a byte
    assert live.post(CHAT, body("talk")).status_code == 200
    raw = b""
    while b"[DONE]" not in raw[-4_000:]:
        raw += connection.recv(1 << 20)
    connection.close()
    text = text_of(data_of(raw.decode()))
    assert len(text) == 400 * 20_006 + len("the end")
    assert text.endswith("the end")


def test_nothing_is_lost_for_who_read_too_late_for_the_pieces(
    make_live: Callable[..., Live],
) -> None:
    """The journal forgets pieces nobody fetches; the log still has the answer."""
    live = make_live([babbles], Babbling())
    connection = _send(live, body("babbles", stream=True))
    run = only_run(live)
    wait_until(lambda: run.status == "completed")
    assert stays(lambda: run.status == "completed", 3.0)  # longer than the journal keeps pieces
    raw = b""
    while b"[DONE]" not in raw[-4_000:]:
        raw += connection.recv(1 << 20)
    connection.close()
    text = text_of(data_of(raw.decode()))
    assert text.startswith("0" * 100)
    assert text.count("the last words") == 1
    assert len(text) == 300 * 30_000 + len("the last words")


class Babbling:
    """Large pieces."""

    async def generate(self, request: Any, events: Any) -> nr.ModelReply:
        pieces = [str(number % 10) * 30_000 for number in range(300)]
        for piece in pieces:
            events.delta("text", piece)
            await asyncio.sleep(0)
        return nr.testing.reply("".join(pieces))


@nr.step
async def babbles(text: str, ctx: nr.Context) -> str:
    await ctx.run(agents.talk, text)
    return "the last words"


def test_cui_clients_get_messages_as_they_are(live: Live) -> None:
    answer = live.post(CHAT, body("shows", stream=True), params={"accept": "cui-web"})
    frames = data_of(answer.text)
    assert frames[0] == {"type": "text", "props": {"content": "Thinking. "}, "message_id": "M1"}
    assert frames[1]["delta_action"] == "replace"
    assert frames[2]["delta_action"] == "append"
    assert "".join(f["props"]["content"] for f in frames[3:]) == "echo: hi"
    assert "[DONE]" not in answer.text


def test_an_error_for_cui_clients_is_a_message(live: Live) -> None:
    answer = live.post(CHAT, body("late", stream=True), params={"accept": "cui-web"})
    last = data_of(answer.text)[-1]
    assert last["type"] == "error"
    assert last["props"]["kind"] == "step_failed"


def test_an_aborted_run_ends_its_stream_with_an_error(live: Live) -> None:
    with live.http.stream("POST", CHAT, json=body("waits", stream=True)) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if "waiting" in line)
        live.post(f"/v1/runs/{answer.headers['x-noetic-run']}/abort", {"reason": "enough"})
        last = [line for line in lines if line.startswith("data: ")][-1]
    error = json.loads(last[6:])["error"]
    assert (error["kind"], error["message"]) == ("cancelled", "cancelled: enough")


def test_a_quiet_stream_shows_signs_of_life(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT", 0.1)
    with live.http.stream("POST", CHAT, json=body("waits", stream=True)) as answer:
        assert next(line for line in answer.iter_lines() if line.startswith(":")) == ": ping"
