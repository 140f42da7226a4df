"""Model calls that fail, are cut off or are aborted: what stays in the log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr

Talk = nr.Harness


def _ask(model: str, **more: Any) -> Any:
    return nr.call_model("ask", model, **more)


def _partial(run: nr.Run[Any]) -> list[tuple[str, str, str]]:
    return [(i.role, i.content[0].text, i.status) for i in run.items()]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "partial"),
    [
        ("streams_then_fails", "the beginning"),
        ("fails_with_partial", "what had come"),
        ("fails_after_a_discarded_attempt", "second"),
    ],
)
def test_the_text_of_a_failed_call_is_logged_once_as_incomplete(
    talk: Talk, model: str, partial: str
) -> None:
    run = talk.start(_ask(model), "hi")
    with pytest.raises(nr.ModelFailed) as caught:
        run.result()
    assert caught.value.base_url == "http://m"
    assert _partial(run) == [("user", "hi", "completed"), ("assistant", partial, "incomplete")]
    kinds = [event.type for event in run.events() if event.type.startswith("model.")]
    assert kinds[-1] == "model.failed"


def test_the_error_of_a_model_arrives_with_its_fields(talk: Talk) -> None:
    with pytest.raises(nr.ModelFailed) as caught:
        talk.run(nr.spawn("s", _ask("fails_with_partial")), "hi")
    error = caught.value
    assert (error.status, error.attempts, error.partial) == (500, 5, "what had come")
    assert error.retryable
    assert "server error" in str(error)


def test_a_rate_limit_arrives_with_its_delay(talk: Talk) -> None:
    run = talk.start(_ask("rate_limited"), "hi")
    with pytest.raises(nr.ModelRateLimited) as caught:
        run.result()
    assert (caught.value.kind, caught.value.retry_after) == ("model_rate_limit", 90.0)
    assert _partial(run) == [("user", "hi", "completed")]


def test_a_discarded_attempt_leaves_nothing_behind(talk: Talk) -> None:
    run = talk.start(_ask("succeeds_after_a_discarded_attempt"), "hi")
    assert run.result() == "kept"
    assert _partial(run)[1:] == [("assistant", "kept", "completed")]
    (retried,) = [event for event in run.events() if event.type == "model.retried"]
    assert retried.data["attempt"] == 1
    assert retried.data["discarded"]
    assert retried.data["error"]["fields"]["partial"] == "thrown away"


def _wait_for(run: nr.Run[Any], type: str) -> None:
    for event in run.events(deltas=True):
        if event.type == type:
            return


def test_an_abort_cuts_the_call_and_keeps_its_text(talk: Talk) -> None:
    run = talk.start(_ask("streams_then_hangs"), "hi")
    _wait_for(run, "model.started")
    report = run.abort("enough")
    assert report.settled == 1
    with pytest.raises(nr.Cancelled, match="enough"):
        run.result()
    assert _partial(run)[1:] == [("assistant", "half a sentence", "incomplete")]
    assert run.usage == nr.TokenUsage()


@nr.step
async def gives_up_waiting(step: nr.Step[Any, Any], ctx: nr.Context) -> str:
    try:
        await asyncio.wait_for(ctx.run(step, "hi"), 0.1)
    except TimeoutError:
        return "gave up"
    return ""


def test_a_call_somebody_stopped_waiting_for_is_cut_too(talk: Talk) -> None:
    run = talk.start(gives_up_waiting, _ask("streams_then_hangs"))
    assert run.result() == "gave up"
    assert _partial(run)[1:] == [("assistant", "half a sentence", "incomplete")]
    assert run.status == "completed"


def test_what_a_provider_raises_besides_is_the_cause_of_a_failed_step(talk: Talk) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        talk.run(_ask("broken_provider"), "hi")
    assert (caught.value.step_id, caught.value.cause.type) == ("ask", "KeyError")


def test_a_cancellation_a_provider_raises_by_itself_is_a_failure(talk: Talk) -> None:
    run = talk.start(_ask("raises_cancelled_error"), "hi")
    with pytest.raises(nr.StepFailed) as caught:
        run.result()
    assert caught.value.cause.type.endswith("CancelledError")
    assert run.status == "failed"


def test_a_reader_of_deltas_gets_them_live(talk: Talk, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run = talk.start(_ask("streams_when_told", settings={"go": str(go)}), "hi")
    pieces = []
    for event in run.events(deltas=True):
        if event.type == "model.started":
            go.touch()
        if event.type == "model.delta":
            pieces.append((event.seq, event.context_id, event.data))
    assert pieces == [
        (None, run.id, {"kind": "text", "text": "one "}),
        (None, run.id, {"kind": "reasoning", "text": "hm"}),
        (None, run.id, {"kind": "text", "text": "two"}),
    ]
    assert "model.delta" not in {event.type for event in run.events()}
