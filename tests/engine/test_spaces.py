"""Spaces: key-value data that all contexts of a run share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import noetic_ray as nr
from tests.support.marks import mark, wait_for

OPTION: dict[str, Any] = {
    "label": "Context Memory",
    "type": "context",
    "icon": "database",
    "description": "d",
    "metadata": {"a": [1]},
}


def space_events(run: nr.Run[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (event.type.removeprefix("space."), event.data)
        for event in run.events()
        if event.type.startswith("space.")
    ]


class Odd:
    """Something that neither JSON nor a pickle can hold."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return "<odd>"


async def refusal(call: Callable[[], Any]) -> str:
    try:
        return f"not refused: {await call()!r}"
    except nr.TraceError as refused:
        return str(refused)


# -- one context ---------------------------------------------------------------------------------


@nr.step
async def makes_spaces(_: Any, ctx: nr.Context) -> dict[str, Any]:
    trace = ctx.trace
    none = await trace.get_space("context"), await trace.has_space("x"), await trace.list_spaces()
    space = await trace.create_space(**OPTION)
    by_type = await trace.get_space("context")
    plain = await trace.create_space()
    named = await trace.create_space(id="named", type="context")
    twice = [await trace.create_space(label="same") for _ in range(2)]
    told = {
        "none": none == (None, False, []),
        "facts": (space.label, space.type, space.icon, space.description, space.metadata),
        "ids": len({space.id, plain.id, named.id, *(each.id for each in twice)}),
        "plain": (plain.label, plain.type, plain.metadata, await plain.keys()),
        "by type": by_type == space,
        "by id": await trace.get_space(space.id) == space,
        "ambiguous": await trace.get_space("context"),
        "listed": await trace.list_spaces() == [space, plain, named, *twice],
        "taken": await refusal(lambda: trace.create_space(id="named")),
        "wrong": await refusal(lambda: trace.create_space(label=3)),  # type: ignore[arg-type]
        "empty id": await refusal(lambda: trace.create_space(id="")),
    }
    await named.set("k", 1)
    await trace.delete_space("named")
    await trace.delete_space("named")
    await trace.delete_space("unknown")
    told["gone"] = (
        await trace.has_space("named"),
        named in await trace.list_spaces(),
        await refusal(lambda: named.set("k", 2)),
        await named.get("k"),
        await named.has("k"),
        await named.keys(),
    )
    await named.delete("k")
    await named.clear()
    again = await trace.create_space(id="named", label="again")
    told["again"] = (await again.keys(), await again.get("k"))
    return told


def test_spaces_are_made_found_and_deleted(harness: nr.Harness) -> None:
    run = harness.start(makes_spaces)
    told = run.result(30)
    assert told["none"]
    assert told["facts"] == tuple(OPTION.values())
    assert told["ids"] == 5
    assert told["plain"] == ("", "", {}, [])
    assert told["by type"]
    assert told["by id"]
    assert told["ambiguous"] is None
    assert told["listed"]
    assert "'named' already" in told["taken"]
    assert "`label`" in told["wrong"]
    assert "id" in told["empty id"]
    exists, listed, said, *read = told["gone"]
    assert (exists, listed, read) == (False, False, [None, False, []])
    assert "was deleted" in said
    assert told["again"] == ([], None)
    kinds = [kind for kind, _ in space_events(run)]
    assert kinds == [*["created"] * 5, "set", "deleted", "created"]
    first = space_events(run)[0][1]
    assert {name: first[name] for name in OPTION} == OPTION
    records = run.trace().spaces
    assert [each.label for each in records] == ["Context Memory", "", "same", "same", "again"]
    assert records[0].metadata == {"a": [1]}


@nr.step
async def writes_keys(_: Any, ctx: nr.Context) -> dict[str, Any]:
    space = await ctx.trace.create_space(id="s")
    await (await space.set("key1", "value1")).set("key2", {"nested": "data"})
    await space.set("key3", 12345)
    await space.set("none", None)
    value = await space.get("key2")
    value["nested"] = "changed by the reader"
    told: dict[str, Any] = {
        "values": [await space.get(key) for key in ("key1", "key2", "key3", "none", "nope")],
        "default": (await space.get("nope", 7), await space.get("none", 7)),
        "has": [await space.has(key) for key in ("key1", "none", "nope")],
        "keys": await space.keys(),
        "counts": [await space.increment("n"), await space.increment("n", 2.5)],
        "no number": await refusal(lambda: space.increment("key1")),
        "key": await refusal(lambda: space.set(3, 1)),  # type: ignore[arg-type]
        "swaps": [
            await space.compare_and_set("key3", 12345, 1),
            await space.compare_and_set("key3", 12345, 2),
            await space.compare_and_set("fresh", None, "x"),
            await space.compare_and_set("key2", {"nested": "data"}, "y"),
        ],
    }
    await space.delete("key1")
    await space.delete("key1")
    told["deleted"] = await space.has("key1")
    other = await ctx.trace.get_space("s")
    assert other is not None
    await other.clear()
    told["cleared"] = (await space.keys(), await ctx.trace.has_space("s"))
    await space.set("last", {"odd": {1}, "thing": Odd()})
    return told


def test_keys_are_written_read_and_removed(harness: nr.Harness) -> None:
    run = harness.start(writes_keys)
    told = run.result(30)
    assert told["values"] == ["value1", {"nested": "data"}, 12345, None, None]
    assert told["default"] == (7, None)
    assert told["has"] == [True, True, False]
    assert told["keys"] == ["key1", "key2", "key3", "none"]
    assert told["counts"] == [1, 3.5]
    assert "'value1'" in told["no number"]
    assert "not 3" in told["key"]
    assert told["swaps"] == [True, False, True, True]
    assert told["deleted"] is False
    assert told["cleared"] == ([], True)
    events = space_events(run)
    kinds = [kind for kind, _ in events]
    assert kinds == ["created", *["set"] * 9, "removed", "cleared", "set"]
    assert events[10][1] == {"space_id": "s", "key": "key1"}
    assert events[11][1] == {"space_id": "s"}
    (record,) = run.trace().spaces
    assert record.data == {"last": {"odd": [1], "thing": "<odd>"}}


@nr.step
async def mixes_recording_and_spaces(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="root")
    for n in range(20):
        ctx.trace.info(f"before {n}")
        await space_of(ctx, n)
        ctx.messages.send(f"after {n}")


async def space_of(ctx: nr.Context, n: int) -> None:
    space = await ctx.trace.create_space(label=f"{n}")
    await space.set("n", n)


def test_what_a_context_does_keeps_its_order(harness: nr.Harness) -> None:
    run = harness.start(mixes_recording_and_spaces)
    run.result(30)
    told = [event.type for event in run.events() if event.type.startswith(("space", "message"))]
    assert told == ["space.created", "space.set", "message.sent"] * 20
    kinds = [
        event.type
        for event in run.events()
        if event.type in ("trace.log", "space.created", "space.set")
    ]
    assert kinds == ["trace.log", "space.created", "space.set"] * 20


@nr.step
def uses_spaces_from_a_thread(_: Any, ctx: nr.Context) -> dict[str, Any]:
    trace = ctx.sync.trace
    space = trace.create_space(id="s", **OPTION)
    found = trace.get_space("context")
    space.set("a", 1).set("b", [2])
    told: dict[str, Any] = {
        "none": trace.get_space("nope"),
        "found": found == space and trace.list_spaces() == [space],
        "has": (trace.has_space("s"), trace.has_space("t"), space.has("a"), space.has("z")),
        "read": (space.get("b"), space.get("z", 0), space.keys()),
        "changed": (space.increment("a", 4), space.compare_and_set("a", 5, 6), space.get("a")),
        "facts": (space.label, space.type, space.icon, space.description, space.metadata),
    }
    space.delete("a")
    told["left"] = space.keys()
    space.clear()
    trace.delete_space("s")
    try:
        space.set("a", 1)
    except nr.TraceError as refused:
        told["refused"] = refused.space_id
    return told


def test_synchronous_bodies_use_spaces(harness: nr.Harness) -> None:
    run = harness.start(uses_spaces_from_a_thread)
    assert run.result(30) == {
        "none": None,
        "found": True,
        "has": (True, False, True, False),
        "read": ([2], 0, ["a", "b"]),
        "changed": (5, True, 6),
        "facts": tuple(OPTION.values()),
        "left": ["b"],
        "refused": "s",
    }
    assert run.trace().spaces == []


# -- many contexts -------------------------------------------------------------------------------


@nr.step
async def shares_with_a_child(_: Any, ctx: nr.Context) -> Any:
    space = await ctx.trace.create_space(id="s", type="shared")
    await space.set("from", "parent")
    seen = await ctx.spawn(reads_and_answers)
    return seen, await space.get("answer"), [each.id for each in await ctx.trace.list_spaces()]


@nr.step
async def reads_and_answers(_: Any, ctx: nr.Context) -> Any:
    space = await ctx.trace.get_space("shared")
    assert space is not None
    seen = await space.get("from")
    await space.set("answer", {"by": "child"})
    await ctx.trace.create_space(id="of the child")
    return seen


def test_a_space_belongs_to_the_run(harness: nr.Harness) -> None:
    run = harness.start(shares_with_a_child)
    assert run.result(30) == ("parent", {"by": "child"}, ["s", "of the child"])
    other = harness.start(shares_with_a_child)
    assert other.result(30) == run.result()
    assert len(space_events(other)) == 4


@nr.step
async def counts_with_many(count: int, ctx: nr.Context) -> Any:
    space = await ctx.trace.create_space(id="s")
    sums = await asyncio.gather(*(ctx.spawn(increments, n) for n in range(count)))
    return sorted(sums), await space.get("n")


@nr.step
async def increments(n: int, ctx: nr.Context) -> int:
    space = await ctx.trace.get_space("s")
    assert space is not None
    return int(await space.increment("n"))


def test_no_increment_of_two_hundred_children_is_lost(harness: nr.Harness) -> None:
    run = harness.start(counts_with_many, 200)
    sums, total = run.result(60)
    assert sums == list(range(1, 201))
    assert total == 200
    values = [data["value"] for kind, data in space_events(run) if kind == "set"]
    assert values == list(range(1, 201))


@nr.step
async def races(count: int, ctx: nr.Context) -> Any:
    space = await ctx.trace.create_space(id="s")
    won = await asyncio.gather(*(ctx.spawn(tries_to_win, n) for n in range(count)))
    made = await asyncio.gather(*(refusal(make(ctx)) for _ in range(5)))
    return won, [await space.get(f"round {r}") for r in range(5)], made


def make(ctx: nr.Context) -> Callable[[], Any]:
    return lambda: ctx.trace.create_space(id="once")


@nr.step
async def tries_to_win(n: int, ctx: nr.Context) -> list[bool]:
    space = await ctx.trace.get_space("s")
    assert space is not None
    return [await space.compare_and_set(f"round {r}", None, n) for r in range(5)]


def test_each_race_has_one_winner(harness: nr.Harness) -> None:
    won, kept, made = harness.run(races, 20)
    for number, winner in enumerate(kept):
        assert [n for n in range(20) if won[n][number]] == [winner]
    assert sum(each.startswith("not refused") for each in made) == 1


@nr.step
async def writes_at_once(_: Any, ctx: nr.Context) -> Any:
    space = await ctx.trace.create_space(id="s")
    await asyncio.gather(*(space.set("k", n) for n in range(10)))
    made = await asyncio.gather(*(ctx.trace.create_space(label="x") for _ in range(10)))
    listed = {each.id for each in await ctx.trace.list_spaces()}
    return await space.get("k"), listed == {space.id, *(each.id for each in made)}


def test_writers_of_one_key_have_an_order(harness: nr.Harness) -> None:
    run = harness.start(writes_at_once)
    last, all_listed = run.result(30)
    values = [data["value"] for kind, data in space_events(run) if kind == "set"]
    assert sorted(values) == list(range(10))
    assert values[-1] == last
    assert all_listed
    assert len(run.trace().spaces) == 11


@nr.step
async def many_work_and_the_parent_completes(_: Any, ctx: nr.Context) -> str:
    ctx.trace.add(None, label="root")
    await ctx.trace.create_space(id="s")
    children = [ctx.detach(logs_and_sets, n) for n in range(10)]
    await asyncio.sleep(0.005)
    ctx.release()
    assert len(children) == 10
    return "completed"


@nr.step
async def logs_and_sets(n: int, ctx: nr.Context) -> None:
    ctx.trace.add(n, label=f"child {n}")
    space = await ctx.trace.get_space("s")
    assert space is not None
    for i in range(20):
        ctx.trace.info(f"{i}")
        await space.set(f"{n}-{i}", i)


def test_children_finish_when_their_parent_has_completed(harness: nr.Harness) -> None:
    run = harness.start(many_work_and_the_parent_completes)
    assert run.result(30) == "completed"
    assert list(run.events())[-1].type == "run.ended"  # the run is over when all have settled
    view = run.trace()
    assert len(view.spaces[0].data) == 200
    assert {node.status for node in view} == {"completed"}
    assert [len(node.logs) for node in view if node.label != "root"] == [20] * 10


# -- the end -------------------------------------------------------------------------------------


@nr.step
async def is_aborted_with_a_space(folder: str, ctx: nr.Context) -> None:
    space = await ctx.trace.create_space(id="s")
    mark(folder, "there")
    try:
        await asyncio.sleep(60)
    finally:
        try:
            await space.set("k", 1)
        except nr.Cancelled as cut:
            ctx.messages.send(f"cut: {cut.reason}")


def test_spaces_are_closed_to_an_aborted_context(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(is_aborted_with_a_space, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort("enough")
    assert [each.props["content"] for each in run.shown()] == ["cut: enough"]
    assert [each.data for each in run.trace().spaces] == [{}]


@nr.step
def leaves_a_thread_with_a_space(folder: str, ctx: nr.Context) -> str:
    space = ctx.sync.trace.create_space(id="s")

    def late() -> None:
        wait_for(folder, "over", timeout=30.0)
        try:
            said = repr(space.set("k", 1))
        except BaseException as error:
            said = type(error).__name__
        mark(folder, "late", said)

    threading.Thread(target=late, daemon=True).start()
    return "over"


def test_spaces_are_closed_when_the_context_is_over(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(leaves_a_thread_with_a_space, str(tmp_path))
    assert run.result(30) == "over"
    assert list(run.events())[-1].type == "run.ended"
    mark(tmp_path, "over")
    wait_for(tmp_path, "late")
    assert (tmp_path / "late").read_text() == "Cancelled"
    assert [each.data for each in run.trace().spaces] == [{}]


def test_spaces_of_a_run_with_a_store(
    make_harness: Callable[..., nr.Harness], tmp_path: Path
) -> None:
    harness = make_harness(placement="inline", store=str(tmp_path / "runs.db"))
    run = harness.start(shares_with_a_child)
    run.result(30)
    assert {each.id: each.data for each in run.trace().spaces} == {
        "s": {"from": "parent", "answer": {"by": "child"}},
        "of the child": {},
    }
