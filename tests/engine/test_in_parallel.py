"""Paths side by side: order, failures, races, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from tests.conftest import unique
from tests.support.wait import wait_until

Make = Callable[..., nr.Harness]


@nr.step
async def value(given: Any, ctx: nr.Context) -> Any:
    return given


@nr.step
async def fails(_: Any, ctx: nr.Context) -> None:
    raise ValueError("bad path")


def _queue(name: str) -> nr.Channel[Any]:
    return nr.channel(name, None, mode="queue", external=True)


@nr.step
async def waits_for_a_gate(names: tuple[str, ...], ctx: nr.Context) -> str:
    await ctx.recv(_queue(names[0]), timeout=60)
    return "gated"


@nr.step
async def opens_the_gate(names: tuple[str, ...], ctx: nr.Context) -> str:
    await ctx.send(_queue(names[0]), "go")
    return "opener"


@nr.step
async def never_ends(_: Any, ctx: nr.Context) -> None:
    await asyncio.Event().wait()


# -- all -----------------------------------------------------------------------------------------


def test_outputs_come_in_path_order_whatever_ends_first(harness: nr.Harness) -> None:
    step = nr.in_parallel("p", [waits_for_a_gate, opens_the_gate])
    assert harness.run(step, (unique("gate"),)) == ["gated", "opener"]


def test_merge_gets_the_outputs_and_the_parent_s_context(harness: nr.Harness) -> None:
    step = nr.in_parallel("p", [value, value], merge=lambda results, ctx: (results, ctx.depth))
    assert harness.run(step, 7) == ([7, 7], 0)


def test_paths_may_be_computed_from_the_input(harness: nr.Harness) -> None:
    async def paths(n: int, ctx: nr.Context) -> list[Any]:
        return [nr.run_code(f"path {i}", lambda _, i=i: i) for i in range(n)]

    assert harness.run(nr.in_parallel("p", paths), 5) == [0, 1, 2, 3, 4]


def test_a_computed_path_that_is_no_step_fails_the_step(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.in_parallel("p", lambda _, ctx: ["no step"]))
    assert caught.value.cause.type == "TypeError"


@pytest.mark.parametrize("mode", ["all", "settle"])
def test_no_paths_give_no_results(harness: nr.Harness, mode: Any) -> None:
    assert harness.run(nr.in_parallel("p", [], mode)) == []
    counting = nr.in_parallel("p", [], mode, merge=lambda results, ctx: len(results))
    assert harness.run(counting) == 0


@nr.step
async def marks_the_start(names: tuple[str, str], ctx: nr.Context) -> str:
    Path(names[1], ctx.id).touch()
    await asyncio.Event().wait()
    return "unreachable"


@nr.step
async def marks_the_second_step(names: tuple[str, str], ctx: nr.Context) -> None:
    Path(names[1], "second").touch()


@nr.step
async def fails_when_the_other_runs(names: tuple[str, str], ctx: nr.Context) -> None:
    while not list(Path(names[1]).iterdir()):
        await asyncio.sleep(0.005)
    raise ValueError("first")


def test_a_failure_aborts_the_siblings_and_names_every_path(
    harness: nr.Harness, tmp_path: Path
) -> None:
    two_steps = nr.sequence("two steps", [marks_the_start, marks_the_second_step])
    step = nr.in_parallel("p", [two_steps, fails_when_the_other_runs])
    run = harness.start(step, ("", str(tmp_path)))
    with pytest.raises(nr.ParallelFailed) as caught:
        run.result()
    error = caught.value
    assert (error.kind, error.succeeded) == ("fork_partial", [])
    assert [(name, type(failed)) for name, failed in error.failed] == [
        ("two steps", nr.Cancelled),
        ("fails_when_the_other_runs", nr.StepFailed),
    ]
    assert "sibling failed" in error.failed[0].error.reason
    assert not (tmp_path / "second").exists()
    assert [child.status for child in run.tree().children] == ["cancelled", "failed"]
    assert run.status == "failed"


@nr.step
async def catches_the_failure(_: Any, ctx: nr.Context) -> Any:
    try:
        await ctx.run(nr.in_parallel("p", [fails, never_ends]))
    except nr.ParallelFailed as error:
        return ctx.aborted, await ctx.spawn(value, len(error.failed))
    return None


def test_a_failed_path_leaves_the_parent_usable(harness: nr.Harness) -> None:
    assert harness.run(catches_the_failure) == (False, 2)


def test_what_succeeded_before_a_failure_is_kept(harness: nr.Harness) -> None:
    quick = nr.run_code("quick", _six)
    step = nr.in_parallel("p", [quick, nr.run_code("late", _fail_when_told)])
    gate = unique("gate")
    run = harness.start(step, (gate,))
    for event in run.events():
        if event.type == "context.ended":
            break
    harness.channel(_queue(gate)).send("go")
    with pytest.raises(nr.ParallelFailed) as caught:
        run.result()
    assert caught.value.succeeded == [("quick", 6)]
    (failed,) = caught.value.failed
    assert failed.step_id == "late"
    assert failed.error.cause.message == "late"  # type: ignore[attr-defined]


async def _six(_: Any, ctx: nr.Context) -> int:
    return 6


async def _fail_when_told(names: tuple[str], ctx: nr.Context) -> None:
    await ctx.recv(_queue(names[0]), timeout=60)
    raise ValueError("late")


@nr.step
async def queued_path(folder: str, ctx: nr.Context) -> None:
    Path(folder, ctx.id).touch()


def test_queued_paths_are_skipped_after_a_failure(harness: nr.Harness, tmp_path: Path) -> None:
    step = nr.in_parallel("p", [fails, queued_path, queued_path], concurrency=1)
    with pytest.raises(nr.ParallelFailed) as caught:
        harness.run(step, str(tmp_path))
    kinds = [failed.error.kind for failed in caught.value.failed]
    assert kinds == ["step_failed", "cancelled", "cancelled"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["all", "settle", "race"])
def test_an_abort_of_the_parent_is_cancelled_in_every_mode(harness: nr.Harness, mode: Any) -> None:
    merged = nr.in_parallel("p", [never_ends, never_ends], mode, merge=lambda r, ctx: "merged")
    run = harness.start(merged)
    started = 0
    for event in run.events():
        started += event.type == "context.started"
        if started == 3:
            break
    report = run.abort("stop")
    assert report.settled == report.reached == 3
    with pytest.raises(nr.Cancelled, match="stop"):
        run.result()
    assert {each.status for each in run.tree().walk()} == {"cancelled"}


@nr.step
async def ignores_the_abort(_: Any, ctx: nr.Context) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "all the same"
    return ""


@pytest.mark.parametrize("mode", ["all", "settle", "race"])
def test_paths_that_succeed_in_spite_of_the_abort_change_nothing(
    harness: nr.Harness, mode: Any
) -> None:
    step = nr.in_parallel("p", [ignores_the_abort], mode, merge=lambda r, ctx: "merged")
    run = harness.start(step)
    started = 0
    for event in run.events():
        started += event.type == "step.started"
        if started == 2:
            break
    run.abort("stop")
    with pytest.raises(nr.Cancelled, match="stop"):
        run.result()


# -- settle --------------------------------------------------------------------------------------


def test_settle_reports_every_path(harness: nr.Harness) -> None:
    found = harness.run(nr.in_parallel("p", [value, fails, value], "settle"), 3)
    assert [(each.step_id, each.status, each.value) for each in found] == [
        ("value", "fulfilled", 3),
        ("fails", "rejected", None),
        ("value", "fulfilled", 3),
    ]
    assert isinstance(found[1].error, nr.StepFailed)
    assert found[0].error is None


def test_settle_of_failures_only_raises_nothing(harness: nr.Harness) -> None:
    step = nr.in_parallel(
        "p", [fails, fails], "settle", merge=lambda results, ctx: [r.status for r in results]
    )
    assert harness.run(step) == ["rejected", "rejected"]


# -- race ----------------------------------------------------------------------------------------


def test_the_first_success_wins_and_losers_are_aborted(harness: nr.Harness) -> None:
    run = harness.start(nr.in_parallel("p", [never_ends, value], "race"), "fast")
    assert run.result() == "fast"
    slow, fast = run.tree().children
    assert (slow.status, fast.status) == ("cancelled", "completed")
    reasons = [e.data["reason"] for e in run.events() if e.type == "context.aborted"]
    assert reasons == ["race lost"]


def test_failures_matter_only_when_all_fail(harness: nr.Harness) -> None:
    assert harness.run(nr.in_parallel("p", [fails, value], "race"), 1) == 1
    with pytest.raises(nr.ParallelFailed) as caught:
        harness.run(nr.in_parallel("p", [fails, fails], "race"))
    assert caught.value.succeeded == []
    assert [name for name, _ in caught.value.failed] == ["fails", "fails"]


def test_failures_of_a_race_come_in_the_order_they_happened(harness: nr.Harness) -> None:
    gate = unique("gate")
    late = nr.run_code("late", _fail_when_told)
    run = harness.start(nr.in_parallel("p", [late, fails], "race"), (gate,))
    for event in run.events():
        if event.type == "context.ended":
            break
    harness.channel(_queue(gate)).send("go")
    with pytest.raises(nr.ParallelFailed) as caught:
        run.result()
    assert [name for name, _ in caught.value.failed] == ["fails", "late"]


def test_a_race_without_paths_has_no_winner(harness: nr.Harness) -> None:
    with pytest.raises(nr.ParallelFailed) as caught:
        harness.run(nr.in_parallel("p", [], "race"))
    assert (caught.value.succeeded, caught.value.failed) == ([], [])


@nr.step
async def set_state(number: int, ctx: nr.Context) -> int:
    ctx.state["v"] = number
    return number


@nr.step
async def state_after(mode: str, ctx: nr.Context) -> Any:
    ctx.state["v"] = 0
    paths: list[Any] = [set_state, never_ends] if mode == "race" else [set_state, set_state]
    await ctx.run(nr.in_parallel("p", paths, mode), 9)  # type: ignore[call-overload]
    return ctx.state


@pytest.mark.parametrize(("mode", "left"), [("all", 0), ("settle", 0), ("race", 9)])
def test_only_a_race_winner_s_state_replaces_the_parent_s(
    harness: nr.Harness, mode: str, left: int
) -> None:
    assert harness.run(state_after, mode) == {"v": left}


@nr.step
async def empties_the_state(_: Any, ctx: nr.Context) -> None:
    ctx.state.clear()


@nr.step
async def state_after_emptying(_: Any, ctx: nr.Context) -> Any:
    ctx.state["v"] = 0
    await ctx.run(nr.in_parallel("p", [empties_the_state], "race"))
    return ctx.state


def test_a_winner_may_empty_the_state(harness: nr.Harness) -> None:
    assert harness.run(state_after_emptying) == {}


@nr.step
async def loser_with_state(names: tuple[str, str], ctx: nr.Context) -> str:
    ctx.state["v"] = "loser"
    try:
        await asyncio.Event().wait()
    finally:
        ctx.state["v"] = "loser at its end"
    return ""


@nr.step
async def race_with_a_loser(_: Any, ctx: nr.Context) -> Any:
    ctx.state["v"] = "parent"
    await ctx.run(nr.in_parallel("p", [loser_with_state, value], "race"), 1)
    return ctx.state


def test_a_loser_s_state_is_never_taken(harness: nr.Harness) -> None:
    assert harness.run(race_with_a_loser) == {"v": "parent"}


# -- concurrency ---------------------------------------------------------------------------------


@nr.step
async def counts_itself(names: tuple[str, str], ctx: nr.Context) -> int:
    """Report in, and go on when told."""
    inside, go = (_queue(name) for name in names)
    await ctx.send(inside, ctx.id)
    await ctx.recv(go, timeout=60)
    return 1


@pytest.mark.parametrize("mode", ["all", "settle"])
def test_no_more_paths_than_allowed_run_at_once(harness: nr.Harness, mode: Any) -> None:
    names = (unique("inside"), unique("go"))
    inside, go = (harness.channel(_queue(name)) for name in names)
    run = harness.start(nr.in_parallel("p", [counts_itself] * 5, mode, concurrency=2), names)
    arrivals = inside.stream()
    next(arrivals)
    for arrived in (2, 3, 4, 5):
        next(arrivals)
        assert sum(each.status == "running" for each in run.tree().children) <= 2
        assert len(run.tree().children) <= arrived
        go.send("go")
    go.send("go")
    assert len(run.result()) == 5


def test_a_failure_in_a_race_frees_its_slot(harness: nr.Harness) -> None:
    step = nr.in_parallel("p", [fails, never_ends, value], "race", concurrency=2)
    assert harness.run(step, "third") == "third"


# -- paths with children of their own --------------------------------------------------------------


@nr.step
async def lives_on(names: tuple[str, ...], ctx: nr.Context) -> str:
    await ctx.recv(_queue(names[0]), timeout=60)
    Path(names[1]).touch()
    return "ended by itself"


@nr.step
async def leaves_a_child_behind(names: tuple[str, ...], ctx: nr.Context) -> str:
    ctx.detach(lives_on, names)
    return "done"


@pytest.mark.parametrize("mode", ["all", "settle", "race"])
def test_a_path_s_detached_child_is_neither_waited_for_nor_aborted(
    harness: nr.Harness, mode: Any, tmp_path: Path
) -> None:
    names = (unique("gate"), str(tmp_path / "ended"))
    step = nr.in_parallel("p", [leaves_a_child_behind], mode, merge=lambda r, ctx: "merged")
    run = harness.start(step, names)
    assert run.result(timeout=30) == "merged"
    assert run.status == "running"
    harness.channel(_queue(names[0])).send("go")
    wait_until(lambda: run.status != "running", 30)
    assert (run.status, (tmp_path / "ended").exists()) == ("completed", True)
    assert [each.status for each in run.tree().walk()] == ["completed"] * 3


def test_detached_children_do_not_hold_a_slot(harness: nr.Harness, tmp_path: Path) -> None:
    names = (unique("gate"), str(tmp_path / "ended"))
    step = nr.in_parallel("p", [leaves_a_child_behind, value], concurrency=1)
    run = harness.start(step, names)
    assert run.result(timeout=30) == ["done", names]
    harness.channel(_queue(names[0])).send("go")
    wait_until(lambda: run.status != "running", 30)


@nr.step
async def nested(depth: int, ctx: nr.Context) -> Any:
    if depth == 0:
        return 1
    found = await ctx.run(nr.in_parallel("p", [nested, nested]), depth - 1)
    return sum(found)


def test_nested_paths(harness: nr.Harness) -> None:
    run = harness.start(nested, 4)
    assert run.result() == 16
    assert sum(1 for _ in run.tree().walk()) == 31


@nr.step
async def sees_and_appends(text: str, ctx: nr.Context) -> list[str]:
    before = [item.content[0].text for item in ctx.item_log]  # type: ignore[union-attr]
    ctx.item_log.append(nr.assistant_message(text))
    return before


@nr.step
async def shares_its_log(_: Any, ctx: nr.Context) -> tuple[Any, int]:
    ctx.item_log.append(nr.user_message("parent's"))
    found = await ctx.run(nr.in_parallel("p", [sees_and_appends, sees_and_appends]), "mine")
    return found, len(ctx.item_log)


def test_a_path_starts_with_the_parent_s_log_and_appends_to_its_own(harness: nr.Harness) -> None:
    run = harness.start(shares_its_log)
    assert run.result() == ([["parent's"], ["parent's"]], 1)
    for path in run.tree().children:
        texts = [item.content[0].text for item in run.items(path.id)]  # type: ignore[union-attr]
        assert texts == ["parent's", "mine"]
        assert len(run.items(path.id, since=1)) == 1


# -- properties ----------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What one path does: the turns of the loop it waits, and whether it fails then."""

    turns: int
    fails: bool


def _path(index: int, plan: Plan) -> nr.Step[Any, int]:
    async def follow(_: Any) -> int:
        for _turn in range(plan.turns):
            await asyncio.sleep(0)
        if plan.fails:
            raise ValueError(f"path {index}")
        return index

    return nr.run_code(f"path {index}", follow)


def _paths(plans: list[Plan]) -> list[Any]:
    return [_path(index, plan) for index, plan in enumerate(plans)]


PLANS = st.lists(st.builds(Plan, st.integers(0, 12), st.booleans()), min_size=1, max_size=7)
LIMITS = st.one_of(st.none(), st.integers(1, 4))
RELAXED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def inline(make_harness: Make) -> nr.Harness:
    return make_harness(placement="inline")


@RELAXED
@given(PLANS, LIMITS)
def test_settle_keeps_path_order_under_any_timing(
    inline: nr.Harness, plans: list[Plan], limit: int | None
) -> None:
    step = nr.in_parallel("p", _paths(plans), "settle", concurrency=limit)
    found = inline.run(step)
    assert [each.step_id for each in found] == [f"path {i}" for i in range(len(plans))]
    for index, (plan, each) in enumerate(zip(plans, found, strict=True)):
        if plan.fails:
            assert each.status == "rejected"
            assert each.error.cause.message == f"path {index}"
        else:
            assert (each.status, each.value) == ("fulfilled", index)


@RELAXED
@given(PLANS, LIMITS)
def test_all_gives_every_output_or_accounts_for_every_path(
    inline: nr.Harness, plans: list[Plan], limit: int | None
) -> None:
    step = nr.in_parallel("p", _paths(plans), concurrency=limit)
    names = [f"path {i}" for i in range(len(plans))]
    if not any(plan.fails for plan in plans):
        assert inline.run(step) == list(range(len(plans)))
        return
    with pytest.raises(nr.ParallelFailed) as caught:
        inline.run(step)
    succeeded = [each.step_id for each in caught.value.succeeded]
    failed = [each.step_id for each in caught.value.failed]
    assert sorted([*succeeded, *failed]) == sorted(names)
    assert succeeded == sorted(succeeded)
    assert failed == sorted(failed)
    genuine = [each for each in caught.value.failed if not isinstance(each.error, nr.Cancelled)]
    assert genuine
    assert all(plans[int(each.step_id.split()[1])].fails for each in genuine)


@RELAXED
@given(PLANS, LIMITS)
def test_a_race_is_won_by_a_path_that_succeeds(
    inline: nr.Harness, plans: list[Plan], limit: int | None
) -> None:
    step = nr.in_parallel("p", _paths(plans), "race", concurrency=limit)
    if any(not plan.fails for plan in plans):
        winner = inline.run(step)
        assert not plans[winner].fails
    else:
        with pytest.raises(nr.ParallelFailed) as caught:
            inline.run(step)
        assert len(caught.value.failed) == len(plans)
