"""The events of a run as a stream that can be taken up again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from noetic_ray.serve import following
from tests.serve import agents
from tests.serve.conftest import Live
from tests.support.wait import stays


def read(live: Live, id: str, **options: Any) -> list[dict[str, Any]]:
    return parse(live.http.get(f"/v1/runs/{id}/events", **options).text)


def parse(raw: str) -> list[dict[str, Any]]:
    """Events as `EventSource` would give them."""
    found = []
    for block in raw.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line[:1] != ":" and line)
        if fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


def test_all_events_to_the_end_in_order(live: Live) -> None:
    id = live.start("team", "hi")
    events = read(live, id)
    assert [int(event["id"]) for event in events] == list(range(1, len(events) + 1))
    assert events[0]["event"] == "run.started"
    assert events[-1]["event"] == "run.ended"
    assert events[-1]["data"]["data"]["status"] == "completed"
    assert all(event["data"]["run_id"] == id for event in events)
    assert all(str(event["data"]["seq"]) == event["id"] for event in events)


def test_they_are_a_stream_nobody_keeps(live: Live) -> None:
    id = live.start("silent")
    answer = live.http.get(f"/v1/runs/{id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_reader_comes_back_without_loss_or_duplicate(live: Live, how: str) -> None:
    id = live.start("teller", "hi")
    live.wait_for(id, "completed")
    whole = read(live, id)
    for cut in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        options: dict[str, Any] = {"params": {"since": cut}}
        if how == "header":
            options = {"headers": {"Last-Event-ID": str(cut)}, "params": {"since": 0}}
        assert whole[:cut] + read(live, id, **options) == whole


def test_a_reader_who_is_cut_off_in_the_middle_of_a_run(live: Live) -> None:
    id = live.start("listens")
    with live.http.stream("GET", f"/v1/runs/{id}/events") as answer:
        seen: list[str] = []
        for line in answer.iter_lines():
            seen.append(line)
            if line.startswith("event: step.started"):
                break
    first = [line[4:] for line in seen if line.startswith("id: ")]
    live.post(f"/v1/runs/{id}/abort")
    rest = read(live, id, headers={"Last-Event-ID": first[-1]})
    ids = [int(each) for each in first] + [int(event["id"]) for event in rest]
    assert ids == list(range(1, len(ids) + 1))
    assert rest[-1]["event"] == "run.ended"


def test_watching_does_not_touch_the_run(live: Live) -> None:
    id = live.start("waits")
    with live.http.stream("GET", f"/v1/runs/{id}/events") as answer:
        next(answer.iter_lines())
    assert live.status(id) == "running"


def test_pieces_of_answers_when_asked_for(make_live: Callable[..., Live]) -> None:
    live = make_live(agents.told, channels=[agents.notes])
    id = live.start("told", "number")
    with live.http.stream("GET", f"/v1/runs/{id}/events", params={"deltas": "1"}) as answer:
        lines = answer.iter_lines()
        held = [next(lines)]
        while not held[-1].startswith("event: step.started"):
            held.append(next(lines))
        # Within a second the run hears that somebody reads along.
        assert stays(lambda: live.service.entry(id).run.status == "running", 1.5)
        httpx.post(f"{live.url}/v1/runs/{id}/channels/notes", json={"value": 7})
        held += lines
    events = parse("\n".join(held))
    pieces = [event for event in events if event["event"] == "model.delta"]
    assert "".join(piece["data"]["data"]["text"] for piece in pieces) == "echo: number 7"
    assert not any("id" in piece for piece in pieces)
    numbered = [int(event["id"]) for event in events if "id" in event]
    assert numbered == list(range(1, len(numbered) + 1))
    assert not any(event["event"] == "model.delta" for event in read(live, id))


def test_errors_in_events_have_no_traceback(live: Live) -> None:
    events = read(live, live.start("broken"))
    failed = [event for event in events if "error" in event["data"]["data"]]
    assert failed
    assert "no luck" in json.dumps(failed)
    assert "traceback" not in json.dumps(events).lower()


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "9" * 30, "\u0661"])
def test_a_wrong_number_is_a_bad_request(live: Live, wrong: str) -> None:
    id = live.start("silent")
    answer = live.http.get(f"/v1/runs/{id}/events", params={"since": wrong})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "since"


def test_a_number_beyond_the_end_of_an_ended_run_ends_at_once(live: Live) -> None:
    id = live.start("silent")
    live.wait_for(id, "completed")
    answer = live.http.get(f"/v1/runs/{id}/events", params={"since": 10**6})
    assert (answer.status_code, answer.text) == (204, "")  # so that browsers do not come back


def test_a_quiet_run_shows_signs_of_life(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT", 0.05)
    id = live.start("waits")
    with live.http.stream("GET", f"/v1/runs/{id}/events") as answer:
        lines = answer.iter_lines()
        pings = 0
        while pings < 3:
            pings += next(lines) == ": ping"
    assert pings == 3


def test_head_tells_the_type_and_does_not_follow(live: Live) -> None:
    answer = live.http.head(f"/v1/runs/{live.start('waits')}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
