"""The end of a server: streams end, runs are aborted, the harness closes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

import noetic_ray as nr
from noetic_ray.serve.server import listen
from tests.serve.conftest import Live
from tests.support.wait import wait_until

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
    assert "event: error" in rest


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


def test_a_port_that_is_taken_is_a_config_error(live: Live) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        listen("127.0.0.1", live.port)
    assert caught.value.code == "CANNOT_LISTEN"
