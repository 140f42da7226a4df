"""Loops: when they stop, what goes round, failures, inboxes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique


@nr.step
async def plus_one(n: int, ctx: nr.Context) -> int:
    ctx.state["ran"] = ctx.state.get("ran", 0) + 1
    return n + 1


@nr.step
async def counted(step: nr.Step[Any, Any], ctx: nr.Context) -> dict[str, Any]:
    """Run a loop over 0 and say how it ended and how often its body ran."""
    found: dict[str, Any] = {}
    try:
        found["output"] = await ctx.run(step, 0)
    except nr.NoeticError as error:
        found["error"] = error
    return {**found, "ran": ctx.state.get("ran", 0), "inputs": ctx.state.get("inputs")}


def test_outputs_are_the_next_inputs(harness: nr.Harness) -> None:
    assert harness.run(nr.loop("l", plus_one, nr.until.max_steps(4)), 0) == 4
    two = nr.loop("l", [plus_one, plus_one], nr.until.max_steps(4))
    assert harness.run(two, 0) == 8


def test_none_is_an_output_like_any_other(harness: nr.Harness) -> None:
    nothing = nr.run_code("nothing", lambda _: None)
    assert harness.run(nr.loop("l", nothing, nr.until.max_steps(2)), 1) is None


def test_a_loop_without_an_end_fails_at_its_limit(harness: nr.Harness) -> None:
    found = harness.run(counted, nr.loop("l", plus_one, nr.until.never(), max_iterations=7))
    assert found["ran"] == 7
    error = found["error"]
    assert isinstance(error, nr.StepFailed)
    assert error.step_id == "l"
    assert "7 iterations" in error.cause.message


def test_the_usual_limit_is_a_thousand(harness: nr.Harness) -> None:
    found = harness.run(counted, nr.loop("l", plus_one, nr.until.never()))
    assert (found["ran"], found["error"].kind) == (1000, "step_failed")


@nr.step
async def looks(_: Any, ctx: nr.Context) -> list[Any]:
    seen: list[Any] = []

    def judge(snapshot: nr.Snapshot) -> bool:
        seen.append((snapshot.step_count, snapshot.last_output, list(snapshot.history)))
        return snapshot.step_count == 5

    await ctx.run(nr.loop("l", plus_one, nr.until.custom(judge), max_history=3), 0)
    return seen


def test_a_snapshot_has_the_newest_outputs(harness: nr.Harness) -> None:
    seen = harness.run(looks)
    assert [count for count, _, _ in seen] == [1, 2, 3, 4, 5]
    assert seen[-1] == (5, 5, [3, 4, 5])
    assert seen[1] == (2, 2, [1, 2])


def test_a_predicate_that_raises_stops_the_loop(harness: nr.Harness) -> None:
    def broken(snapshot: nr.Snapshot) -> bool:
        raise ValueError("no idea")

    assert harness.run(nr.loop("l", plus_one, nr.until.custom(broken)), 0) == 1


def test_what_one_run_remembers_another_does_not(harness: nr.Harness) -> None:
    same = nr.run_code("same", lambda _: "same")
    step = nr.loop("l", same, nr.until.converged(), max_iterations=5)
    assert harness.run(step, 0) == "same"
    run = harness.start(step, 0)
    assert run.result() == "same"
    bodies = [e for e in run.events() if e.type == "step.completed" and e.data["step"] == "same"]
    assert len(bodies) == 2


def test_feedback_or_prepare_next_makes_the_next_input(harness: nr.Harness) -> None:
    def checks(output: str) -> tuple[bool, str]:
        return output == "better", "better"

    repeat = nr.run_code("repeat", lambda text: text)
    assert harness.run(nr.loop("l", repeat, nr.until.verified(checks)), "bad") == "better"

    def prepare(output: int, verdict: nr.Verdict, ctx: nr.Context) -> int:
        return output * 10

    step = nr.loop("l", plus_one, nr.until.max_steps(3), prepare_next=prepare)
    assert harness.run(step, 0) == 111


# -- errors --------------------------------------------------------------------------------------


@nr.step
async def always_fails(n: Any, ctx: nr.Context) -> None:
    ctx.state["ran"] = ctx.state.get("ran", 0) + 1
    ctx.state.setdefault("inputs", []).append(n)
    raise ValueError("no")


@nr.step
async def fails_on_even_tries(n: Any, ctx: nr.Context) -> Any:
    ran = ctx.state["ran"] = ctx.state.get("ran", 0) + 1
    ctx.state.setdefault("inputs", []).append(n)
    if ran % 2 == 0:
        raise ValueError("even")
    return n + 1


def _on_error(answer: str) -> Any:
    return lambda error, ctx: answer


def test_without_on_error_a_failure_ends_the_loop(harness: nr.Harness) -> None:
    found = harness.run(counted, nr.loop("l", always_fails, nr.until.never()))
    assert found["ran"] == 1
    assert found["error"].step_id == "always_fails"


def test_retries_count_as_iterations(harness: nr.Harness) -> None:
    step = nr.loop(
        "l", always_fails, nr.until.never(), max_iterations=3, on_error=_on_error("retry")
    )
    found = harness.run(counted, step)
    assert (found["ran"], found["inputs"]) == (3, [0, 0, 0])
    assert (found["error"].step_id, found["error"].kind) == ("l", "step_failed")


def test_a_retry_repeats_the_same_input(harness: nr.Harness) -> None:
    step = nr.loop("l", fails_on_even_tries, nr.until.max_steps(2), on_error=_on_error("retry"))
    found = harness.run(counted, step)
    assert (found["output"], found["inputs"]) == (2, [0, 1, 1])


def test_skipping_the_first_iteration_tries_it_again(harness: nr.Harness) -> None:
    step = nr.loop(
        "l", always_fails, nr.until.never(), max_iterations=3, on_error=_on_error("skip")
    )
    assert harness.run(counted, step)["inputs"] == [0, 0, 0]


def test_a_later_skip_goes_on_from_the_last_output(harness: nr.Harness) -> None:
    until = nr.until.custom(_two_successes)
    step = nr.loop("l", fails_on_even_tries, until, on_error=_on_error("skip"))
    found = harness.run(counted, step)
    assert (found["output"], found["inputs"]) == (2, [0, 1, 1])


def _two_successes(snapshot: nr.Snapshot) -> bool:
    return snapshot.step_count == 2 and len(snapshot.history) == 3


def test_abort_as_an_answer_raises_the_error(harness: nr.Harness) -> None:
    found = harness.run(
        counted, nr.loop("l", always_fails, nr.until.never(), on_error=_on_error("abort"))
    )
    assert (found["ran"], found["error"].step_id) == (1, "always_fails")


def test_on_error_is_given_the_error_and_the_context(harness: nr.Harness) -> None:
    async def look(error: nr.NoeticError, ctx: nr.Context) -> str:
        ctx.state["inputs"] = [error.kind, ctx.depth]
        return "abort"

    found = harness.run(counted, nr.loop("l", always_fails, nr.until.never(), on_error=look))
    assert found["inputs"] == ["step_failed", 0]


@nr.step
async def raises_cancelled(_: Any, ctx: nr.Context) -> None:
    ctx.state["ran"] = ctx.state.get("ran", 0) + 1
    raise nr.Cancelled("mine")


@nr.step
async def raises_config_error(_: Any, ctx: nr.Context) -> None:
    ctx.state["ran"] = ctx.state.get("ran", 0) + 1
    raise nr.ConfigError("MINE", "set up wrong")


@pytest.mark.parametrize("answer", ["retry", "skip"])
@pytest.mark.parametrize(
    ("body", "kind"), [(raises_cancelled, "cancelled"), (raises_config_error, "config_error")]
)
def test_on_error_is_not_asked_about_cancellations_and_wrong_setups(
    harness: nr.Harness, answer: str, body: Any, kind: str
) -> None:
    step = nr.loop("l", body, nr.until.never(), max_iterations=3, on_error=_on_error(answer))
    found = harness.run(counted, step)
    assert (found["ran"], found["error"].kind) == (1, kind)


@nr.step
async def aborts_in_the_second(marks: str, ctx: nr.Context) -> str:
    with open(marks, "a") as out:
        out.write("x")
    with open(marks) as written:
        if len(written.read()) == 2:
            ctx.abort("second")
    return marks


def test_an_abort_in_the_body_ends_the_loop(harness: nr.Harness, tmp_path: Any) -> None:
    marks = tmp_path / "marks"
    step = nr.loop("l", aborts_in_the_second, nr.until.max_steps(10), on_error=_on_error("retry"))
    with pytest.raises(nr.Cancelled, match="second"):
        harness.run(step, str(marks))
    assert marks.read_text() == "xx"


# -- inbox ---------------------------------------------------------------------------------------


def _inbox(name: str) -> nr.Channel[Any]:
    return nr.channel(name, str, mode="queue", external=True)


@nr.step
async def log_texts(_: Any, ctx: nr.Context) -> list[tuple[str, str]]:
    return [(item.role, item.content[0].text) for item in ctx.item_log]  # type: ignore[union-attr]


def test_a_message_in_the_inbox_keeps_the_loop_going(harness: nr.Harness) -> None:
    box = _inbox(unique("inbox"))
    for text in ("one more", ""):
        harness.channel(box).send(text)
    step = nr.loop("l", log_texts, nr.until.max_steps(1), inbox=box)
    assert harness.run(step) == [("developer", "one more"), ("developer", "")]


def test_a_parked_loop_waits_for_a_message(harness: nr.Harness) -> None:
    box = _inbox(unique("inbox"))
    step = nr.loop("l", log_texts, nr.until.max_steps(1), inbox=box, park_timeout=1.0)
    run = harness.start(step)
    for event in run.events():
        if event.type == "step.completed":
            break
    harness.channel(box).send("late")
    assert run.result() == [("developer", "late")]


def test_a_parked_loop_stops_when_nothing_comes(harness: nr.Harness) -> None:
    box = _inbox(unique("inbox"))
    step = nr.loop("l", log_texts, nr.until.max_steps(1), inbox=box, park_timeout=0.05)
    assert harness.run(step) == []


def test_an_abort_ends_a_parked_loop_and_adds_no_item(harness: nr.Harness) -> None:
    box = _inbox(unique("inbox"))
    step = nr.loop("l", log_texts, nr.until.max_steps(1), inbox=box, park_timeout=None)
    run = harness.start(step)
    for event in run.events():
        if event.type == "step.completed":
            break
    begun = time.monotonic()
    run.abort("stop")
    assert time.monotonic() - begun < 5
    with pytest.raises(nr.Cancelled, match="stop"):
        run.result()
    assert run.items() == []


def test_a_loop_stops_without_asking_an_inbox_when_until_says_go_on(harness: nr.Harness) -> None:
    box = _inbox(unique("inbox"))
    harness.channel(box).send("later")
    step = nr.loop("l", log_texts, nr.until.max_steps(3), inbox=box)
    found = harness.run(step)
    assert found == [("developer", "later")]


# -- other containers ------------------------------------------------------------------------------


def test_conditional_runs_what_its_route_picks(harness: nr.Harness) -> None:
    step = nr.conditional("c", lambda n, ctx: plus_one if n > 0 else None)
    assert harness.run(step, 1) == 2
    assert harness.run(step, 0) == 0

    async def wrong(n: int, ctx: nr.Context) -> Any:
        await asyncio.sleep(0)
        return "no step"

    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.conditional("c", wrong), 1)
    assert caught.value.cause.type == "TypeError"


def test_a_sequence_hands_on_its_outputs(harness: nr.Harness) -> None:
    assert harness.run(nr.sequence("s", [plus_one, plus_one]), 1) == 3
    assert harness.run(nr.sequence("s", []), 1) == 1


def test_an_error_of_ours_passes_a_loop_unchanged(harness: nr.Harness) -> None:
    def raises(_: Any) -> None:
        raise nr.ChannelTimeout("box", 2.0)

    step = nr.loop("l", nr.sequence("s", [nr.run_code("r", raises)]), nr.until.never())
    with pytest.raises(nr.ChannelTimeout) as caught:
        harness.run(step)
    assert (caught.value.channel_name, caught.value.timeout) == ("box", 2.0)
