"""Values sent to a run's channels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import noetic_ray as nr
from noetic_ray.serve import make_app
from tests.serve import agents
from tests.serve.conftest import Live


@pytest.fixture
def served(make_live: Callable[..., Live]) -> Live:
    return make_live(agents.listens, channels=[agents.notes])


def test_a_value_reaches_the_run(served: Live) -> None:
    id = served.start("listens")
    answer = served.post(f"/v1/runs/{id}/channels/notes", {"value": 7})
    assert answer.status_code == 202
    assert answer.json() == {"channel": "notes", "accepted": True}
    assert served.wait_for(id, "completed")["output"] == 7


def test_a_value_that_does_not_fit_is_unprocessable(served: Live) -> None:
    id = served.start("listens")
    answer = served.post(f"/v1/runs/{id}/channels/notes", {"value": "many"})
    assert answer.status_code == 422
    assert answer.json()["error"]["kind"] == "channel_schema_error"
    assert served.status(id) == "running"


def test_a_body_without_a_value_is_unprocessable(served: Live) -> None:
    id = served.start("listens")
    assert served.post(f"/v1/runs/{id}/channels/notes", {}).status_code == 422


def test_an_unknown_channel_is_not_found(served: Live) -> None:
    id = served.start("listens")
    answer = served.post(f"/v1/runs/{id}/channels/other", {"value": 7})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "channel_not_found"


def test_a_channel_closes_with_its_run(served: Live) -> None:
    id = served.start("listens")
    served.post(f"/v1/runs/{id}/channels/notes", {"value": 7})
    served.wait_for(id, "completed")
    answer = served.post(f"/v1/runs/{id}/channels/notes", {"value": 8})
    assert answer.status_code == 409
    assert answer.json()["error"]["kind"] == "channel_closed"


def test_a_channel_for_contexts_only_is_refused(
    make_harness: Callable[..., nr.Harness],
) -> None:
    inner = nr.channel("inner", int, mode="queue")
    with pytest.raises(nr.ConfigError) as caught:
        make_app(make_harness(placement="inline"), agents.talk, channels=[inner])
    assert caught.value.code == "CHANNEL_NOT_EXTERNAL"
