"""The end of a server: streams end, runs are aborted, the harness closes."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

import noetic_ray as nr
from noetic_ray.serve.server import listen
from tests.serve.conftest import Live
from tests.support.wait import wait_until


@nr.step
async def floods(text: str, ctx: nr.Context) -> None:
    for _ in range(300):
        ctx.messages.send("x" * 50_000)
    await asyncio.sleep(600)


CHAT = "/v1/chat/completions"


def body(stream: bool) -> dict[str, object]:
    return {"model": "waits", "stream": stream, "messages": [{"role": "user", "content": "x"}]}


def test_open_streams_get_a_last_word(live: Live) -> None:
    with live.http.stream("POST", CHAT, json=body(True)) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if "waiting" in line)
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        last = [line for line in lines if line.startswith("data: ")][-1]
        stopping.join(10.0)
    assert json.loads(last[6:])["error"]["code"] == "shutting_down"
    (entry,) = live.service.entries()
    assert entry.run.status == "cancelled"
    with pytest.raises(nr.Cancelled, match="shutting down"):
        entry.run.result()


def test_an_open_answer_is_unavailable(live: Live) -> None:
    answers = []
    asking = threading.Thread(target=lambda: answers.append(live.post(CHAT, body(False))))
    asking.start()
    wait_until(live.service.entries)
    live.stop()
    asking.join(10.0)
    assert answers[0].status_code == 503


def test_a_watcher_of_events_is_told(live: Live) -> None:
    id = live.start("waits")
    with live.http.stream("GET", f"/v1/runs/{id}/events") as answer:
        lines = answer.iter_lines()
        next(line for line in lines if line.startswith("event: message.sent"))
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        rest = list(lines)
        stopping.join(10.0)
    assert "event: problem" in rest


def test_detached_runs_end_with_the_server_too(live: Live) -> None:
    id = live.start("waits")
    run = live.service.entry(id).run
    live.stop()
    assert run.status == "cancelled"


def test_a_harness_of_somebody_else_stays_open(live: Live) -> None:
    live.stop()
    assert live.harness.run(nr.run_code("one", lambda n: 1)) == 1


def test_a_harness_that_was_handed_over_is_closed(make_live: Callable[..., Live]) -> None:
    live = make_live(close_harness=True)
    live.stop()
    with pytest.raises(nr.ConfigError, match="HARNESS_CLOSED"):
        live.harness.run(nr.run_code("one", lambda n: 1))


def test_a_reader_who_reads_nothing_does_not_hold_up_the_end(
    make_live: Callable[..., Live],
) -> None:
    live = make_live([floods])
    raw = json.dumps({"stream": True, "messages": [{"role": "user", "content": "x"}]})
    with socket.create_connection(("127.0.0.1", live.port), timeout=10.0) as connection:
        connection.sendall(
            f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(raw)}\r\n\r\n{raw}".encode()
        )
        wait_until(live.service.entries)
        started = time.monotonic()
        live.stop()
    assert time.monotonic() - started < 8.0


def test_a_harness_that_closes_under_a_stream_ends_it(live: Live) -> None:
    with live.http.stream("POST", CHAT, json=body(True)) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if "waiting" in line)
        live.harness.close()
        last = [line for line in lines if line.startswith("data: ")][-1]
    error = json.loads(last[6:])["error"]
    assert error["kind"] in ("cancelled", "config_error")


def test_a_port_that_is_taken_is_a_config_error(live: Live) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        listen("127.0.0.1", live.port)
    assert caught.value.code == "CANNOT_LISTEN"
