"""Runs started, looked at and aborted over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.serve import make_app
from tests.serve import agents
from tests.serve.conftest import Live


def test_a_run_from_its_start_to_its_output(live: Live) -> None:
    answer = live.post("/v1/runs", {"agent": "talk", "input": "hi"})
    assert answer.status_code == 201
    run = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    done = live.wait_for(run["id"], "completed")
    assert done["output"] == "echo: hi"
    assert done["error"] is None
    assert done["usage"]["total"] == 15
    assert done["cost"] == pytest.approx(0.01)
    assert done["agent"] == "talk"


def test_a_run_gets_what_it_was_given(live: Live) -> None:
    id = live.start(
        "about",
        {"deep": [1, 2]},
        items=[{"type": "message", "role": "user", "content": "before"}],
        state={"n": 1},
        thread_id="t-1",
        metadata={"k": "v"},
        run_id="mine-1",
    )
    assert id == "mine-1"
    told = live.wait_for(id, "completed")["output"]
    assert told["text"] == {"deep": [1, 2]}
    assert told["thread"] == "t-1"
    assert told["metadata"] == {"k": "v"}
    assert told["state"] == {"n": 1}
    assert told["items"][0]["role"] == "user"


def test_a_run_while_it_goes_on(live: Live) -> None:
    id = live.start("waits")
    run = live.http.get(f"/v1/runs/{id}").json()
    assert run["status"] == "running"
    assert run["output"] is None
    assert run["usage"]["total"] == 0


def test_a_failed_run_tells_why_and_no_traceback(live: Live) -> None:
    run = live.wait_for(live.start("broken"), "failed")
    assert run["output"] is None
    assert run["error"]["kind"] == "step_failed"
    assert "no luck" in run["error"]["message"]
    assert "Traceback" not in str(run)


def test_a_run_that_takes_too_long(live: Live) -> None:
    run = live.wait_for(live.start("waits", timeout=0.2), "failed", "cancelled")
    assert "0.2 s" in run["error"]["message"]


def test_the_list_has_all_runs_in_order(live: Live) -> None:
    ids = [live.start("talk", "one"), live.start("silent")]
    listed = live.http.get("/v1/runs").json()["data"]
    assert [(run["id"], run["agent"]) for run in listed] == list(
        zip(ids, ["talk", "silent"], strict=True)
    )


def test_an_abort_reports_and_a_second_has_nothing_to_do(live: Live) -> None:
    id = live.start("waits")
    report = live.post(f"/v1/runs/{id}/abort", {"reason": "enough"}).json()
    assert (report["reached"], report["settled"]) == (1, 1)
    run = live.wait_for(id, "cancelled")
    assert run["error"]["message"] == "cancelled: enough"
    again = live.http.post(f"/v1/runs/{id}/abort", headers={"content-type": "application/json"})
    assert again.json()["reached"] == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/runs/none"),
        ("GET", "/v1/runs/none/events"),
        ("GET", "/v1/runs/none/messages"),
        ("GET", "/v1/runs/none/messages/M1"),
        ("GET", "/v1/runs/none/trace"),
        ("POST", "/v1/runs/none/abort"),
        ("POST", "/v1/runs/none/channels/notes"),
        ("GET", "/v1/nothing"),
        ("GET", "/v1/runs/"),
    ],
)
def test_what_is_not_there_is_not_found(standing: Live, method: str, path: str) -> None:
    answer = standing.http.request(method, path, json={} if method == "POST" else None)
    assert answer.status_code == 404
    assert answer.json()["error"]["kind"] == "not_found"


def test_another_method_is_not_allowed(standing: Live) -> None:
    answer = standing.http.delete("/v1/runs")
    assert answer.status_code == 405
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_run_id_is_taken_once(live: Live) -> None:
    live.start("talk", "x", run_id="twice")
    answer = live.post("/v1/runs", {"agent": "talk", "run_id": "twice"})
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "RUN_ID_TAKEN"


def test_one_agent_needs_no_name_and_several_do(make_live: Callable[..., Live]) -> None:
    assert make_live(agents.talk).post("/v1/runs", {"input": "x"}).status_code == 201
    answer = make_live([agents.talk, agents.team]).post("/v1/runs", {"input": "x"})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "agent"


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": "talk", "items": [{"type": "nonsense"}]},
        {"agent": "talk", "items": "text"},
        {"agent": "talk", "timeout": 0},
        {"agent": "talk", "timeout": "soon"},
        {"agent": "talk", "timeout": 10**300},
        {"agent": "talk", "run_id": "../up"},
        {"agent": "talk", "run_id": ""},
        {"agent": "talk", "thread_id": ""},
        {"agent": "talk", "thread_id": 7},
        {"agent": 7},
        {"agent": "talk", "unknown": 1},
        [],
        "text",
        None,
    ],
)
def test_a_wrong_shape_is_unprocessable(standing: Live, wrong: Any) -> None:
    answer = standing.http.post(
        "/v1/runs", content=json.dumps(wrong), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert set(answer.json()["error"]) == {"kind", "message", "type", "code", "param"}


def test_messages_as_frames_and_one_by_one(live: Live) -> None:
    id = live.start("teller", "hi")
    live.wait_for(id, "completed")
    frames = live.http.get(f"/v1/runs/{id}/messages", params={"accept": "cui"}).json()["data"]
    assert [frame.get("delta_action") for frame in frames] == [None, "replace", "append"]
    chunks = live.http.get(f"/v1/runs/{id}/messages").json()["data"]
    assert chunks[0]["object"] == "chat.completion.chunk"
    message_id = frames[0]["message_id"]
    assert "@" in message_id  # the child's
    message = live.http.get(f"/v1/runs/{id}/messages/{message_id}").json()
    assert message["props"] == {"content": "Thought. Twice. "}
    assert message["message_id"] == message_id
    assert live.http.get(f"/v1/runs/{id}/messages/M77").status_code == 404


def test_the_trace_names_its_nodes(live: Live) -> None:
    id = live.start("traces", "x")
    live.wait_for(id, "completed")
    trace = live.http.get(f"/v1/runs/{id}/trace").json()
    (node,) = trace["nodes"]
    assert trace["root"] == node["id"]
    assert (node["label"], node["output"], node["children"]) == ("look", {"found": True}, [])
    assert trace["spaces"] == []


def test_only_so_many_ended_runs_are_known(live: Live) -> None:
    live.service._keep = 5
    first = live.start("silent")
    live.wait_for(first, "completed")
    waiting = live.start("waits")
    for _ in range(30):
        live.wait_for(live.start("silent"), "completed")
    assert len(live.http.get("/v1/runs").json()["data"]) < 15
    assert live.http.get(f"/v1/runs/{first}").status_code == 404
    assert live.status(waiting) == "running"  # runs that go on are never forgotten


def test_a_closed_harness_is_said_to_be_unavailable(live: Live) -> None:
    id = live.start("waits")
    live.harness.close()
    assert live.post("/v1/runs", {"agent": "talk"}).status_code == 503
    answer = live.http.get(f"/v1/runs/{id}/messages")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "HARNESS_CLOSED"


@pytest.mark.parametrize("wrong", [None, [], {}, "talk", [lambda x: x], {"": agents.talk}, 7])
def test_what_is_no_agent_is_refused(make_harness: Callable[..., nr.Harness], wrong: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        make_app(make_harness(placement="inline"), wrong)
    assert caught.value.code == "INVALID_AGENTS"


def test_two_agents_of_one_name_need_a_dict(make_live: Callable[..., Live]) -> None:
    with pytest.raises(nr.ConfigError, match="two agents"):
        make_live([agents.talk, agents.talk])
    live = make_live({"one": agents.talk, "two": agents.talk})
    assert [each["id"] for each in live.http.get("/v1/models").json()["data"]] == ["one", "two"]
