"""What a step finds on its context."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pydantic
import pytest

import noetic_ray as nr
from tests.conftest import unique

Make = Callable[..., nr.Harness]


@nr.step
async def fresh(_: Any, ctx: nr.Context) -> dict[str, Any]:
    return {
        "id": ctx.id,
        "run_id": ctx.run_id,
        "thread_id": ctx.thread_id,
        "resource_id": ctx.resource_id,
        "depth": ctx.depth,
        "parent": ctx.parent and ctx.parent.id,
        "state": ctx.state,
        "tokens": ctx.tokens,
        "cost": ctx.cost,
        "items": len(ctx.item_log),
        "meta": ctx.last_step_meta,
        "flags": (ctx.completed, ctx.completion_value, ctx.aborted, ctx.abort_reason),
        "steps": ctx.step_count,
        "elapsed": ctx.elapsed,
        "params": dict(ctx.params),
        "chat_id": ctx.request.chat_id,
    }


def test_a_root_context_starts_empty(harness: nr.Harness) -> None:
    run = harness.start(fresh)
    seen = run.result()
    assert seen["id"] == seen["run_id"] == run.id
    assert seen["thread_id"]
    assert (seen["depth"], seen["parent"], seen["resource_id"]) == (0, None, None)
    assert seen["state"] == {}
    assert seen["tokens"] == nr.TokenUsage(0, 0, 0, None)
    assert (seen["cost"], seen["items"], seen["meta"]) == (0, 0, None)
    assert seen["flags"] == (False, None, False, None)
    assert seen["steps"] == 1
    assert 0 <= seen["elapsed"] < 30
    assert seen["params"] == {}


def test_thread_and_resource_are_those_of_the_run(harness: nr.Harness) -> None:
    seen = harness.run(fresh, thread_id="t-1", resource_id="r-1")
    assert (seen["thread_id"], seen["resource_id"]) == ("t-1", "r-1")


def test_two_runs_have_different_threads(harness: nr.Harness) -> None:
    assert harness.run(fresh)["thread_id"] != harness.run(fresh)["thread_id"]


def test_the_request_of_the_run_reaches_a_child(harness: nr.Harness) -> None:
    seen = harness.run(nr.spawn("s", fresh), request={"chat_id": "c-9"})
    assert seen["chat_id"] == "c-9"


def test_params_are_the_harness_s_and_read_only(backend: str, make_harness: Make) -> None:
    @nr.step
    async def change(_: Any, ctx: nr.Context) -> str:
        try:
            ctx.params["a"] = 2  # type: ignore[index]
        except TypeError:
            return f"read only, a={ctx.params['a']}"
        return "changed"

    harness = make_harness(placement=backend, params={"a": 1})
    assert harness.run(nr.spawn("s", change)) == "read only, a=1"


# -- children ------------------------------------------------------------------------------------


@nr.step
async def family(_: Any, ctx: nr.Context) -> dict[str, Any]:
    paths = nr.in_parallel("paths", [fresh, fresh])
    child, (first, second) = await ctx.spawn(fresh), await ctx.run(paths)
    detached = await ctx.detach(fresh)
    other = await ctx.detach(fresh, thread_id="elsewhere")
    grandchild = await ctx.spawn(nr.spawn("s", fresh))
    return {
        "me": (ctx.id, ctx.thread_id, ctx.resource_id, ctx.step_count),
        "children": [child, first, second, detached],
        "other": other,
        "grandchild": grandchild,
    }


def _strip(seen: dict[str, Any]) -> tuple[Any, ...]:
    return seen["thread_id"], seen["resource_id"], seen["depth"], seen["items"]


def test_children_of_every_kind_inherit_thread_and_resource(harness: nr.Harness) -> None:
    found = harness.run(family, thread_id="t", resource_id="r")
    assert [_strip(child) for child in found["children"]] == [("t", "r", 1, 0)] * 4
    assert _strip(found["other"]) == ("elsewhere", "r", 1, 0)
    assert _strip(found["grandchild"]) == ("t", "r", 2, 0)
    ids = {child["id"] for child in found["children"]} | {found["me"][0]}
    assert len(ids) == 5


def test_step_count_is_not_rolled_up_from_children(harness: nr.Harness) -> None:
    found = harness.run(family)
    assert found["me"][3] == 2  # the root step and the in_parallel
    assert all(child["steps"] == 1 for child in found["children"])


@nr.step
async def about_parent(_: Any, ctx: nr.Context) -> dict[str, Any]:
    assert ctx.parent is not None
    snapshot = await ctx.parent.snapshot()
    items = await ctx.parent.items()
    later = await ctx.parent.items(since=1)
    return {
        "id": (ctx.parent.id, ctx.parent.depth, ctx.parent.thread_id),
        "texts": [item.content[0].text for item in items],  # type: ignore[union-attr]
        "later": len(later),
        "snapshot": snapshot,
        "log": len(ctx.item_log),
    }


@nr.step
async def asks_about_me(_: Any, ctx: nr.Context) -> dict[str, Any]:
    ctx.item_log.append(nr.user_message("one"))
    ctx.item_log.append(nr.user_message("two"))
    await ctx.checkpoint()
    found = await ctx.spawn(about_parent)
    return {**found, "me": (ctx.id, ctx.depth, ctx.thread_id)}


def test_a_child_sees_its_parent_from_outside(harness: nr.Harness) -> None:
    found = harness.run(asks_about_me, thread_id="th")
    assert found["id"] == found["me"]
    assert found["texts"] == ["one", "two"]
    assert found["later"] == 1
    assert found["log"] == 0
    snapshot = found["snapshot"]
    assert (snapshot.id, snapshot.depth, snapshot.status) == (found["me"][0], 0, "running")
    assert (snapshot.items, snapshot.step_count, snapshot.aborted) == (2, 1, False)


# -- counting ------------------------------------------------------------------------------------


@nr.step
async def nothing(value: Any, ctx: nr.Context) -> Any:
    return value


@nr.step
async def broken(_: Any, ctx: nr.Context) -> None:
    raise ValueError("no")


@nr.step
async def count_a_loop(_: Any, ctx: nr.Context) -> int:
    await ctx.run(nr.loop("l", [nothing, nothing], nr.until.max_steps(2)), 0)
    return ctx.step_count


@nr.step
async def count_failures(_: Any, ctx: nr.Context) -> int:
    for _attempt in range(3):
        with pytest.raises(nr.StepFailed):
            await ctx.run(broken)
    return ctx.step_count


@nr.step
async def count_refusals(report: str, ctx: nr.Context) -> None:
    ctx.abort("enough")
    for _attempt in range(3):
        try:
            await ctx.run(nothing)
        except nr.Cancelled:
            continue
    with open(report, "w") as out:
        out.write(str(ctx.step_count))


def test_containers_and_their_steps_are_counted(harness: nr.Harness) -> None:
    assert harness.run(count_a_loop) == 1 + 1 + 4


def test_failed_steps_are_counted(harness: nr.Harness) -> None:
    assert harness.run(count_failures) == 4


def test_refused_steps_are_not_counted(harness: nr.Harness, tmp_path: Any) -> None:
    report = tmp_path / "count"
    with pytest.raises(nr.Cancelled, match="enough"):
        harness.run(count_refusals, str(report))
    assert report.read_text() == "1"


@nr.step
async def deeper(depth: int, ctx: nr.Context) -> int:
    if depth == ctx.depth:
        return depth
    return await ctx.spawn(deeper, depth)


def test_contexts_may_be_sixty_three_deep(harness: nr.Harness) -> None:
    assert harness.run(deeper, 63) == 63


def test_a_context_of_depth_sixty_four_runs_no_step(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(deeper, 64)
    assert caught.value.retries_exhausted
    assert caught.value.cause.type == "RecursionError"


# -- state ---------------------------------------------------------------------------------------


@nr.step
async def put(key: str, ctx: nr.Context) -> dict[str, Any]:
    ctx.state["list"].append(key)
    ctx.state[key] = True
    return dict(ctx.state)


@nr.step
async def share_state(_: Any, ctx: nr.Context) -> dict[str, Any]:
    ctx.state["list"] = ["mine"]
    children = [await ctx.spawn(put, "spawned"), await ctx.detach(put, "detached")]
    children += await ctx.run(nr.in_parallel("p", [put, put]), "path")
    here = await ctx.run(put, "here")
    return {"children": children, "here": here, "after": dict(ctx.state)}


def test_children_work_on_copies_of_the_state(harness: nr.Harness) -> None:
    found = harness.run(share_state, state={"from": "start"})
    for child, key in zip(found["children"], ["spawned", "detached", "path", "path"], strict=True):
        assert child == {"from": "start", "list": ["mine", key], key: True}
    assert found["after"] == {"from": "start", "list": ["mine", "here"], "here": True}


def test_a_run_works_on_a_copy_of_the_state_it_is_given(harness: nr.Harness) -> None:
    mine: dict[str, Any] = {"list": []}
    assert harness.run(put, "a", state=mine) == {"list": ["a"], "a": True}
    assert harness.run(put, "b", state=mine) == {"list": ["b"], "b": True}
    assert mine == {"list": []}


@nr.step
async def grow(_: Any, ctx: nr.Context) -> Any:
    ctx.state.append(1)
    return ctx.state


@nr.step
async def grows_in_children(_: Any, ctx: nr.Context) -> Any:
    ctx.state = []
    return await ctx.spawn(grow), await ctx.spawn(grow), ctx.state


def test_an_empty_state_of_another_type_is_copied_too(harness: nr.Harness) -> None:
    assert harness.run(grows_in_children) == ([1], [1], [])


@nr.step
async def keep_a_lock(_: Any, ctx: nr.Context) -> Any:
    ctx.state["fine"] = 1
    ctx.state["the lock"] = threading.Lock()
    return await ctx.spawn(nothing)


def test_state_that_cannot_be_copied_is_named(harness: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError, match="the lock") as caught:
        harness.run(keep_a_lock)
    assert caught.value.code == "UNPICKLABLE_STATE"
    assert caught.value.hint


@nr.step
async def odd_state(_: Any, ctx: nr.Context) -> Any:
    ctx.state = [1, 2]
    return await ctx.spawn(read_state)


@nr.step
async def read_state(_: Any, ctx: nr.Context) -> Any:
    return ctx.state


def test_state_may_be_any_value(harness: nr.Harness) -> None:
    assert harness.run(odd_state) == [1, 2]
    assert harness.run(read_state, state=7) == 7


# -- the log -------------------------------------------------------------------------------------


@nr.step
async def log_rules(_: Any, ctx: nr.Context) -> dict[str, Any]:
    log = ctx.item_log
    before = log.items
    item = log.append(nr.user_message("a"))
    again = log.append(item.model_copy())
    view = log.items
    found: dict[str, Any] = {"same": again is item, "before": len(before), "len": len(log)}
    found["view"] = view is log.items
    try:
        view[0] = item  # type: ignore[index]
    except TypeError:
        found["frozen"] = True
    try:
        log.append(item.model_copy(update={"role": "developer"}))
    except nr.DuplicateItem as error:
        found["duplicate"] = error.item_id == item.id
    try:
        log.append({"type": "message", "role": "user"})
    except nr.ItemSchemaMismatch as error:
        found["mismatch"] = (error.category, error.item_type)
    log.append(nr.ExtensionItem(type="noetic:analytics", data={"n": 1}))
    found["extension"] = log[-1].type
    found["since"] = [each.type for each in log.since(1)]
    return found


def test_the_log_is_append_only(harness: nr.Harness) -> None:
    run = harness.start(log_rules)
    assert run.result() == {
        "same": True,
        "before": 0,
        "len": 1,
        "view": True,
        "frozen": True,
        "duplicate": True,
        "mismatch": ("items", "message"),
        "extension": "noetic:analytics",
        "since": ["noetic:analytics"],
    }
    assert [item.type for item in run.items()] == ["message", "noetic:analytics"]


@nr.step
async def texts(_: Any, ctx: nr.Context) -> list[str]:
    return [item.content[0].text for item in ctx.item_log]  # type: ignore[union-attr]


def test_a_run_may_start_with_items(harness: nr.Harness) -> None:
    given = [nr.user_message("a"), {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "b"}]}]  # fmt: skip
    run = harness.start(texts, items=given)
    assert run.result() == ["a", "b"]
    assert len(run.items()) == 2
    assert [item.id for item in run.items(since=1)] == [run.items()[1].id]


def test_a_spawned_child_starts_with_an_empty_log(harness: nr.Harness) -> None:
    assert harness.run(nr.spawn("s", texts), items=[nr.user_message("a")]) == []


class Point(pydantic.BaseModel):
    x: int


@nr.step
async def append_point(x: Any, ctx: nr.Context) -> int:
    ctx.item_log.append(nr.ExtensionItem(type="my:point", data={"x": x}))
    return len(ctx.item_log)


@nr.step
async def points_everywhere(_: Any, ctx: nr.Context) -> list[Any]:
    await ctx.run(append_point, 1)
    spawned = await ctx.spawn(append_point, 2)
    return [spawned, *await ctx.run(nr.in_parallel("p", [append_point, append_point]), 3)]


def test_registered_item_types_hold_in_children_and_paths(backend: str, make_harness: Make) -> None:
    harness = make_harness(placement=backend, item_types={"my:point": Point}, strict_items=True)
    assert harness.run(points_everywhere) == [1, 2, 2]
    for step in (append_point, nr.spawn("s", append_point), nr.in_parallel("p", [append_point])):
        with pytest.raises(nr.NoeticError, match="my:point"):
            harness.run(step, "no number")


def test_strict_items_refuse_unknown_types(make_harness: Make) -> None:
    with pytest.raises(nr.ItemSchemaMismatch) as caught:
        make_harness(placement="inline", strict_items=True).run(append_point, 1)
    assert (caught.value.category, caught.value.item_type) == ("items", "my:point")


# -- keys, spans ---------------------------------------------------------------------------------


@nr.step(id="flaky key", retry=nr.Retry(attempts=3, delay=0.0))
async def flaky_key(_: Any, ctx: nr.Context) -> list[str]:
    ctx.state.setdefault("keys", []).append(ctx.idempotency_key)
    if len(ctx.state["keys"]) % 3:
        raise ValueError("again")
    return list(ctx.state["keys"])


def test_the_idempotency_key_stays_over_attempts_and_differs_per_dispatch(
    harness: nr.Harness,
) -> None:
    run = harness.start(nr.sequence("two", [flaky_key, flaky_key]), run_id=None)
    keys = run.result()
    assert len(keys) == 6
    assert len(set(keys[:3])) == len(set(keys[3:])) == 1
    assert keys[0] != keys[3]
    assert all(key.startswith(f"{run.id}:") for key in keys)


@nr.step
async def spans(_: Any, ctx: nr.Context) -> tuple[bool, bool]:
    context = ctx.span.get_span_context()
    ctx.span.set_attribute("mine", 1)
    return context.is_valid, ctx.span.is_recording()


def test_the_span_is_valid_without_an_exporter(harness: nr.Harness) -> None:
    assert harness.run(spans)[0]


# -- synchronous bodies --------------------------------------------------------------------------


@nr.step
def everything_sync(name: str, ctx: nr.Context) -> dict[str, Any]:
    box = nr.channel(name, int, mode="queue")
    ctx.sync.send(box, 1)
    ctx.sync.send_many(box, [2, 3, 4])
    got = [ctx.sync.recv(box), *ctx.sync.recv_many(box, 2), ctx.sync.try_recv(box)]
    ctx.sync.checkpoint()

    async def result() -> Any:
        return await handle

    handle = ctx.sync.detach(nothing, "detached")
    return {
        "got": got,
        "empty": ctx.sync.try_recv(box, default=-1),
        "run": ctx.sync.run(nothing, "run"),
        "spawn": ctx.sync.spawn(nothing, "spawn"),
        "detached": ctx.sync.run(nr.run_code("await", lambda _: result())),
        "steps": ctx.step_count,
    }


def test_a_synchronous_body_can_do_all_an_asynchronous_can(harness: nr.Harness) -> None:
    assert harness.run(everything_sync, unique("sync")) == {
        "got": [1, 2, 3, 4],
        "empty": -1,
        "run": "run",
        "spawn": "spawn",
        "detached": "detached",
        "steps": 3,
    }


@nr.step
async def sync_on_the_loop(_: Any, ctx: nr.Context) -> None:
    ctx.sync.run(nothing)


def test_the_blocking_twin_is_refused_on_the_loop(harness: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        harness.run(sync_on_the_loop)
    assert caught.value.code == "SYNC_ON_LOOP"


@nr.step
def sync_failure(_: Any, ctx: nr.Context) -> Any:
    return ctx.sync.spawn(broken)


def test_an_error_passes_through_the_blocking_twin(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(sync_failure)
    assert caught.value.step_id == "broken"
    assert caught.value.cause.type == "ValueError"


# -- inherited logs ------------------------------------------------------------------------------

MANY = 10_000


@nr.step
async def sum_up(_: Any, ctx: nr.Context) -> tuple[int, str, str, int]:
    log = ctx.item_log
    before = (len(log), log[0].id, log[MANY - 1].id)
    log.append(nr.user_message("of the path"))
    return (*before, len(log))


@nr.step
async def inherit_many(_: Any, ctx: nr.Context) -> list[Any]:
    ids = [ctx.item_log.append(nr.user_message(f"m{i}")).id for i in range(MANY)]
    found = await ctx.run(nr.in_parallel("p", [sum_up, sum_up, sum_up]))
    assert len(ctx.item_log) == MANY
    return [ids[0], ids[-1], *found]


def test_paths_inherit_ten_thousand_items(harness: nr.Harness) -> None:
    run = harness.start(inherit_many)
    first, last, *paths = run.result(timeout=100)
    assert paths == [(MANY, first, last, MANY + 1)] * 3
    path = run.tree().children[0]
    own = run.items(path.id)
    assert len(own) == MANY + 1
    assert (own[0].id, own[MANY - 1].id) == (first, last)
    assert own[-1].content[0].text == "of the path"  # type: ignore[union-attr]
    assert [item.id for item in run.items(path.id, since=MANY)] == [own[-1].id]
    assert len(run.items()) == MANY


@nr.step
async def nested_paths(depth: int, ctx: nr.Context) -> list[str]:
    ctx.item_log.append(nr.user_message(f"level {depth}"))
    if depth < 3:
        found = await ctx.run(nr.in_parallel("p", [nested_paths]), depth + 1)
        return found[0]  # type: ignore[no-any-return]
    return [item.content[0].text for item in ctx.item_log]  # type: ignore[union-attr]


def test_the_log_of_a_path_of_a_path_is_readable_as_its_own(harness: nr.Harness) -> None:
    run = harness.start(nested_paths, 0)
    expected = [f"level {n}" for n in range(4)]
    assert run.result() == expected
    tree = run.tree()
    depth = 0
    while True:
        items = run.items(tree.id)
        assert [item.content[0].text for item in items] == expected[: depth + 1]  # type: ignore[union-attr]
        if not tree.children:
            break
        tree, depth = tree.children[0], depth + 1
    assert depth == 3


@nr.step
async def elapsed_twice(_: Any, ctx: nr.Context) -> tuple[float, float]:
    one = ctx.elapsed
    await ctx.checkpoint()
    return one, ctx.elapsed


def test_elapsed_grows(harness: nr.Harness) -> None:
    one, two = harness.run(elapsed_twice)
    assert 0 <= one <= two
    assert math.isfinite(two)
