"""What a driver can do with a run and with a harness."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.wait import wait_until

Make = Callable[..., nr.Harness]


@nr.step
async def echo(value: Any, ctx: nr.Context) -> Any:
    return value


@nr.step
async def fails(_: Any, ctx: nr.Context) -> None:
    raise ValueError("no")


@nr.step
async def never_ends(_: Any, ctx: nr.Context) -> None:
    await asyncio.Event().wait()


def _gate(name: str) -> nr.Channel[Any]:
    return nr.channel(name, str, mode="queue", external=True)


@nr.step
async def waits(name: str, ctx: nr.Context) -> str:
    ctx.item_log.append(nr.user_message("waiting"))
    return await ctx.recv(_gate(name), timeout=60)


# -- results -------------------------------------------------------------------------------------


def test_running_out_of_patience_leaves_the_run_alone(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(waits, gate)
    with pytest.raises(TimeoutError):
        run.result(timeout=0.05)
    assert run.status == "running"
    harness.channel(_gate(gate)).send("go")
    assert run.result() == "go"
    wait_until(lambda: run.status == "completed", 10)


def test_a_result_may_be_fetched_again(harness: nr.Harness) -> None:
    run = harness.start(echo, 1)
    assert [run.result() for _ in range(3)] == [1, 1, 1]
    failing = harness.start(fails)
    for _ in range(3):
        with pytest.raises(nr.StepFailed):
            failing.result()


async def test_a_run_is_awaitable_on_any_loop(harness: nr.Harness) -> None:
    run = await harness.astart(echo, 1)
    assert await run == 1
    assert await run.aresult(timeout=1) == 1
    assert await harness.arun(echo, 2) == 2
    assert await asyncio.gather(*(harness.arun(echo, n) for n in range(5))) == [0, 1, 2, 3, 4]
    with pytest.raises(nr.StepFailed):
        await harness.arun(fails)


async def test_cancelling_an_awaited_result_leaves_the_run_alone(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = await harness.astart(waits, gate)
    with pytest.raises(TimeoutError):
        await run.aresult(timeout=0.05)
    assert run.status == "running"
    harness.channel(_gate(gate)).send("go")
    assert await run == "go"


async def test_cancelling_arun_aborts_the_run(harness: nr.Harness) -> None:
    id = unique("run")
    task = asyncio.create_task(harness.arun(never_ends, run_id=id))

    def started() -> bool:
        return any(info.id == id and info.contexts for info in harness.runs())

    await asyncio.to_thread(wait_until, started, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    infos = {info.id: info.status for info in await asyncio.to_thread(harness.runs)}
    assert infos[id] == "cancelled"


def test_many_threads_may_use_one_harness(harness: nr.Harness) -> None:
    found: list[Any] = []

    def work(n: int) -> None:
        found.append((n, harness.run(echo, n)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [(n, n) for n in range(12)]


def test_the_blocking_call_works_inside_a_running_loop(harness: nr.Harness) -> None:
    async def cell() -> list[Any]:
        return [harness.run(echo, 1), harness.run(echo, 2), await harness.arun(echo, 3)]

    assert asyncio.run(cell()) == [1, 2, 3]


# -- time limit of a run -------------------------------------------------------------------------


def test_a_run_past_its_time_is_aborted(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", never_ends), timeout=0.1)
    with pytest.raises(nr.StepFailed) as caught:
        run.result(timeout=30)
    assert (caught.value.step_id, caught.value.cause.type) == ("s", "TimeoutError")
    wait_until(lambda: run.status != "running", 30)
    assert {each.status for each in run.tree().walk()} == {"cancelled"}


def test_a_run_within_its_time_is_left_alone(harness: nr.Harness) -> None:
    assert harness.run(echo, 1, timeout=60) == 1


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_run_s_time_is_above_zero(harness: nr.Harness, timeout: float) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        harness.start(echo, 1, timeout=timeout)
    assert caught.value.code == "INVALID_TIMEOUT"


# -- status, tree, response ----------------------------------------------------------------------


def test_status_goes_from_running_to_the_outcome(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(waits, gate)
    assert run.status == "running"
    harness.channel(_gate(gate)).send("go")
    run.result()
    wait_until(lambda: run.status == "completed", 10)
    failing = harness.start(fails)
    with pytest.raises(nr.StepFailed):
        failing.result()
    wait_until(lambda: failing.status == "failed", 10)


def test_a_live_tree_shows_what_runs(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(nr.spawn("s", waits), gate)
    wait_until(lambda: [each.items for each in run.tree().walk()] == [0, 1], 30)
    tree = run.tree()
    assert (tree.id, tree.step, tree.status, tree.depth) == (run.id, "s", "running", 0)
    (child,) = tree.children
    assert (child.step, child.status, child.depth) == ("waits", "running", 1)
    assert child.elapsed >= 0
    assert child.pid
    assert child.node
    rows = run.rows()
    assert [(row.id, row.parent_id) for row in rows] == [(tree.id, None), (child.id, tree.id)]
    assert [item.content[0].text for item in run.items(child.id)] == ["waiting"]  # type: ignore[union-attr]
    harness.channel(_gate(gate)).send("go")
    run.result()
    assert [each.status for each in run.tree().walk()] == ["completed", "completed"]


def test_the_response_of_a_failed_run_has_its_error(harness: nr.Harness) -> None:
    good = harness.start(echo, 5).response()
    assert (good.output, good.error, good.text, good.items) == (5, None, "", ())
    bad = harness.start(fails).response()
    assert isinstance(bad.error, nr.StepFailed)
    assert bad.output is None


def test_the_list_of_runs_has_figures(harness: nr.Harness) -> None:
    run = harness.start(nr.in_parallel("p", [echo, echo]), 1)
    run.result()
    wait_until(lambda: run.status == "completed", 10)
    run.tree()
    info = next(info for info in harness.runs() if info.id == run.id)
    assert (info.status, info.step, info.contexts, info.cost) == ("completed", "p", 3, 0)
    assert info.started_at is not None
    assert info.ended_at is not None
    assert info.started_at <= info.ended_at


# -- events --------------------------------------------------------------------------------------


def test_events_are_numbered_from_one_and_end_with_the_run(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", echo), 1)
    events = list(run.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].type, events[-1].type) == ("run.started", "run.ended")
    assert {event.run_id for event in events} == {run.id}
    assert events[0].data["step"] == "s"
    assert events[-1].data["status"] == "completed"
    own = [event.type for event in events if event.context_id == run.id]
    assert own == [
        "run.started",
        "context.started",
        "step.started",
        "step.completed",
        "context.ended",
        "run.ended",
    ]


def test_a_late_reader_gets_the_same_history(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", echo), 1)
    first = list(run.events())
    assert list(run.events()) == first
    assert list(run.events(since=3)) == first[3:]
    assert list(run.events(since=first[-1].seq or 0)) == []


async def test_events_can_be_followed_asynchronously(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = await harness.astart(waits, gate)
    types = []
    async for event in run.aevents():
        types.append(event.type)
        if event.type == "item.appended":
            harness.channel(_gate(gate)).send("go")
    assert types[-1] == "run.ended"
    assert types.index("item.appended") < types.index("step.completed")
    assert await run.aitems()
    assert (await run.atree()).status == "completed"


def test_events_follow_a_live_run(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(waits, gate)
    seen = []
    for event in run.events():
        seen.append(event.type)
        if event.type == "item.appended":
            harness.channel(_gate(gate)).send("go")
    assert seen[-1] == "run.ended"


def test_a_failed_run_s_last_event_has_the_error(harness: nr.Harness) -> None:
    run = harness.start(fails)
    last = list(run.events())[-1]
    assert (last.type, last.data["status"]) == ("run.ended", "failed")
    assert last.data["error"]["fields"]["step_id"] == "fails"


# -- arguments -----------------------------------------------------------------------------------


def test_a_run_id_is_taken_once(harness: nr.Harness) -> None:
    id = unique("run")
    assert harness.start(echo, 1, run_id=id).id == id
    for _ in range(2):
        with pytest.raises(nr.ConfigError) as caught:
            harness.start(echo, 2, run_id=id)
        assert caught.value.code == "RUN_ID_TAKEN"


def test_a_run_id_is_taken_once_by_many_at_once(harness: nr.Harness) -> None:
    id = unique("run")
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait(30)
        try:
            outcomes.append(harness.start(echo, 1, run_id=id).id)
        except nr.ConfigError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == sorted([id, *["RUN_ID_TAKEN"] * 7])


@pytest.mark.parametrize("run_id", ["", "  ", 5])
def test_a_run_id_is_a_text(harness: nr.Harness, run_id: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        harness.start(echo, 1, run_id=run_id)
    assert caught.value.code == "INVALID_RUN_ID"


def test_a_wrong_call_is_a_type_error(harness: nr.Harness) -> None:
    with pytest.raises(TypeError):
        harness.start(len, [1])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        harness.start(echo, 1, unknown=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        harness.run(echo, 1, unknown=2)


def test_what_is_no_item_is_refused_at_the_start(harness: nr.Harness) -> None:
    with pytest.raises(nr.ItemSchemaMismatch):
        harness.start(echo, 1, items=[{"role": "user"}])


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"kill_after": -1}, "INVALID_KILL_AFTER"),
    ({"kill_after": "5"}, "INVALID_KILL_AFTER"),
    ({"tools": [len]}, "INVALID_TOOL"),
    ({"model_provider": object()}, "INVALID_MODEL_PROVIDER"),
    ({"address": "ray://head:10001"}, "RAY_CLIENT_REFUSED"),
]


@pytest.mark.parametrize(("options", "code"), SETTINGS)
def test_wrong_settings_are_refused_where_they_are_written(
    options: dict[str, Any], code: str
) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.Harness("wrong", **options)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_a_harness_has_a_name(name: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.Harness(name)
    assert caught.value.code == "EMPTY_HARNESS_NAME"


BUILT: list[tuple[Callable[[], Any], str]] = [
    (lambda: nr.run_code("", echo.execute), "EMPTY_STEP_ID"),
    (lambda: nr.Retry(attempts=0), "INVALID_RETRY"),
    (lambda: nr.loop("l", echo, nr.until.never(), max_iterations=0), "INVALID_MAX_ITERATIONS"),
    (lambda: nr.loop("l", echo, None), "MISSING_UNTIL_PREDICATE"),
    (lambda: nr.loop("l", [], nr.until.never()), "MISSING_LOOP_BODY"),
    (lambda: nr.spawn("s", None), "MISSING_CHILD_STEP"),
    (lambda: nr.in_parallel("p", [echo], concurrency=0), "INVALID_CONCURRENCY"),
    (lambda: nr.in_parallel("p", [echo], "some"), "UNKNOWN_MODE"),  # type: ignore[call-overload]
    (lambda: nr.every("e", echo, 0), "INVALID_INTERVAL"),
    (lambda: nr.every("e", echo, 1, jitter=-1), "INVALID_JITTER"),
    (lambda: nr.call_model("m", "x", max_rounds=0), "INVALID_MAX_ROUNDS"),
]


@pytest.mark.parametrize(("build", "code"), BUILT, ids=[code for _, code in BUILT])
def test_wrong_options_of_steps_are_refused_where_they_are_written(
    build: Callable[[], Any], code: str
) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        build()
    assert caught.value.code == code


# -- values that cannot travel ---------------------------------------------------------------------


@nr.step
async def gives_a_lock(_: Any, ctx: nr.Context) -> Any:
    return {"deep": [threading.Lock()]}


@nr.step
async def spawns_with_a_lock(_: Any, ctx: nr.Context) -> Any:
    return await ctx.spawn(echo, threading.Lock())


@nr.step
async def wins_with_a_lock(_: Any, ctx: nr.Context) -> str:
    ctx.state["lock"] = threading.Lock()
    return "won"


@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: nr.spawn("s", step)])
def test_an_output_that_cannot_travel_is_named(ray_harness: nr.Harness, wrap: Any) -> None:
    run = ray_harness.start(wrap(gives_a_lock))
    with pytest.raises(nr.StepFailed) as caught:
        run.result(timeout=60)
    assert caught.value.step_id == "gives_a_lock"
    assert "a dict" in caught.value.cause.message
    wait_until(lambda: run.status == "failed", 10)


def test_an_input_that_cannot_travel_is_named(ray_harness: nr.Harness) -> None:
    for run in (
        ray_harness.start(echo, threading.Lock()),
        ray_harness.start(spawns_with_a_lock),
    ):
        with pytest.raises(nr.ConfigError) as caught:
            run.result(timeout=60)
        assert caught.value.code == "UNPICKLABLE_VALUE"
        assert "the input of step 'echo'" in str(caught.value)


def test_a_state_that_cannot_be_copied_is_refused_at_the_start(harness: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError, match=r"state\['the lock'\]") as caught:
        harness.start(echo, 1, state={"fine": 1, "the lock": threading.Lock()})
    assert caught.value.code == "UNPICKLABLE_STATE"


def test_a_winner_s_state_that_cannot_travel_is_named(ray_harness: nr.Harness) -> None:
    race = nr.in_parallel("p", [wins_with_a_lock], "race")
    with pytest.raises(nr.ParallelFailed, match=r"wins_with_a_lock: the state .* cannot be sent"):
        ray_harness.start(race).result(timeout=60)


@nr.step
async def spawns_three(_: Any, ctx: nr.Context) -> list[Any]:
    inputs = [1, threading.Lock(), 3]
    spawns = (ctx.spawn(echo, each) for each in inputs)
    return await asyncio.gather(*spawns, return_exceptions=True)


def test_the_others_go_on_when_one_input_cannot_travel(ray_harness: nr.Harness) -> None:
    first, refused, third = ray_harness.run(spawns_three)
    assert (first, third) == (1, 3)
    assert isinstance(refused, nr.ConfigError)


def test_a_harness_or_a_run_in_a_step_is_refused(harness: nr.Harness) -> None:
    run = harness.start(echo, 1)
    lock = threading.Lock()
    for name, held in (("harness", harness), ("run", run), ("lock", lock)):

        async def body(_: Any, held: Any = held) -> str:
            return str(held)

        with pytest.raises(nr.ConfigError) as caught:
            harness.run(nr.run_code("holds", body))
        assert caught.value.code == "UNPICKLABLE_CAPTURE"
        assert "held" in str(caught.value), name
        assert "holds" in str(caught.value)
    run.result()


# -- closed --------------------------------------------------------------------------------------


@pytest.fixture
def closed(backend: str, make_harness: Make) -> tuple[nr.Harness, nr.Run[Any], nr.Run[Any]]:
    harness = make_harness(placement=backend)
    done, failed = harness.start(echo, 7), harness.start(fails)
    assert done.result() == 7
    with pytest.raises(nr.StepFailed):
        failed.result()
    harness.close()
    return harness, done, failed


def test_fetched_results_stay_readable_and_all_else_says_closed(closed: Any) -> None:
    harness, done, failed = closed
    assert (done.result(), done.status) == (7, "completed")
    with pytest.raises(nr.StepFailed):
        failed.result()
    assert failed.status == "failed"
    refused: list[Callable[[], Any]] = [
        lambda: harness.run(echo, 1),
        lambda: harness.start(echo, 1),
        lambda: harness.map(echo, [1]),
        harness.open,
        harness.runs,
        harness.approvals,
        lambda: harness.approve("x"),
        lambda: harness.deny("x"),
        lambda: harness.channel(_gate("gate")),
        done.tree,
        done.rows,
        done.items,
        done.response,
        lambda: next(done.events()),
        lambda: asyncio.run(harness.arun(echo, 1)),
        lambda: asyncio.run(done.atree()),
        lambda: asyncio.run(done.aitems()),
    ]
    for call in refused:
        with pytest.raises(nr.ConfigError) as caught:
            call()
        assert caught.value.code == "HARNESS_CLOSED"
    assert done.abort().reached == 0
    harness.close()
    assert "closed" in repr(harness)


def test_closing_aborts_what_runs(backend: str, make_harness: Make) -> None:
    harness = make_harness(placement=backend)
    run = harness.start(nr.spawn("s", never_ends))
    for event in run.events():
        if event.type == "step.started":
            break
    harness.close()
    with pytest.raises(nr.Cancelled, match="closed"):
        run.result(timeout=5)
    assert run.status == "cancelled"


def test_a_name_opened_again_closes_the_old_harness(make_harness: Make) -> None:
    name = unique("again")
    first = nr.Harness(name, placement="inline").open()
    run = first.start(echo, 1)
    assert run.result() == 1
    with nr.Harness(name, placement="inline") as second:
        assert second.run(echo, 2) == 2
        with pytest.raises(nr.ConfigError) as caught:
            first.run(echo, 3)
        assert caught.value.code == "HARNESS_CLOSED"
    assert run.result() == 1


# -- map -----------------------------------------------------------------------------------------


@nr.step
async def odd_ones_fail(n: int, ctx: nr.Context) -> int:
    if n % 2:
        raise ValueError(str(n))
    return n


def test_map_keeps_order_and_collects_failures(harness: nr.Harness) -> None:
    assert harness.map(echo, range(20), concurrency=3) == list(range(20))
    found = harness.map(odd_ones_fail, range(4), on_error="collect")
    assert [each.value for each in found] == [0, None, 2, None]
    with pytest.raises(nr.ParallelFailed):
        harness.map(odd_ones_fail, range(4))
    assert harness.map(echo, []) == []


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"on_error": "ignore"}])
def test_wrong_options_of_map_are_refused(harness: nr.Harness, options: dict[str, Any]) -> None:
    with pytest.raises(nr.ConfigError):
        harness.map(echo, [1], **options)
