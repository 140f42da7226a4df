"""The run's tree of nodes: how it grows, in one context and across contexts and processes."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.marks import mark, marked, wait_for

Records = dict[str, Any]


def by_label(run: nr.Run[Any]) -> Records:
    """The nodes of a run by their labels, which are unique in it."""
    nodes = run.trace().nodes
    found = {node.label: node for node in nodes}
    assert len(found) == len(nodes)
    return found


def parents(nodes: Records) -> dict[str, list[str]]:
    """Labels of the parents of each node."""
    names = {node.id: label for label, node in nodes.items()}
    return {label: [names[id] for id in node.parent_ids] for label, node in nodes.items()}


def statuses(nodes: Records) -> dict[str, str]:
    return {label: node.status for label, node in nodes.items()}


def node_events(run: nr.Run[Any]) -> list[str]:
    """What happened to nodes, in order: `started A`, ..."""
    names: dict[str, str] = {}
    told = []
    for event in run.events():
        if event.type.startswith("trace.node_"):
            names.setdefault(event.data["node_id"], event.data.get("label", ""))
            told.append(f"{event.type.removeprefix('trace.node_')} {names[event.data['node_id']]}")
    return told


def labels(nodes: Any) -> list[str]:
    return [node.label for node in nodes]


# -- one after the other -------------------------------------------------------------------------


@nr.step
async def adds_its_first(_: Any, ctx: nr.Context) -> dict[str, Any]:
    trace = ctx.trace
    empty = await trace.get_root_node(), trace.get_current_nodes(), await trace.get_node("none")
    node = trace.add(
        "test input",
        label="First Node",
        type="test",
        icon="star",
        description="says what",
        metadata={"k": [1, 2]},
    )
    root = await trace.get_root_node()
    assert root is not None
    return {
        "empty": empty,
        "same": root is node and (await trace.get_node(node.id)) is node,
        "current": trace.get_current_nodes() == [node],
        "facts": (root.label, root.type, root.icon, root.description, root.metadata, root.input),
        "place": (root.parent_ids, root.status, root.output, root.ended_at),
        "times": root.created_at == root.started_at,
        "id": node.id,
        "unknown": await trace.get_node("123456789012"),
    }


def test_the_first_node_is_the_root(harness: nr.Harness) -> None:
    run = harness.start(adds_its_first)
    told = run.result(30)
    assert told["empty"] == (None, [], None)
    assert told["same"]
    assert told["current"]
    facts = ("First Node", "test", "star", "says what", {"k": [1, 2]}, "test input")
    assert told["facts"] == facts
    assert told["place"] == ([], "running", None, None)
    assert told["times"]
    assert told["unknown"] is None
    assert len(told["id"]) == 12
    assert set(told["id"]) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
    view = run.trace()
    root = view.root
    assert root is not None
    assert view.nodes == [root]
    assert (root.id, root.context_id, root.status) == (told["id"], run.id, "completed")
    assert (root.label, root.input, root.metadata) == ("First Node", "test input", {"k": [1, 2]})


def test_nothing_was_traced(harness: nr.Harness) -> None:
    run = harness.start(traces_nothing)
    run.result(30)
    view = run.trace()
    assert (view.root, view.nodes, view.spaces) == (None, [], [])
    assert next(event.type for event in run.events()) == "run.started"


@nr.step
async def traces_nothing(_: Any, ctx: nr.Context) -> None:
    ctx.trace.info("nobody hears")


@nr.step
async def adds_in_a_row(count: int, ctx: nr.Context) -> list[str]:
    nodes = [ctx.trace.add(n, label=f"n{n}") for n in range(count)]
    current = ctx.trace.get_current_nodes()
    assert current == [nodes[-1]]
    return [node.status for node in nodes]


def test_each_node_completes_the_one_before_and_stands_below_it(harness: nr.Harness) -> None:
    run = harness.start(adds_in_a_row, 10)
    assert run.result(30) == ["completed"] * 9 + ["running"]
    nodes = by_label(run)
    assert parents(nodes) == {"n0": [], **{f"n{n}": [f"n{n - 1}"] for n in range(1, 10)}}
    assert labels(run.trace()) == [f"n{n}" for n in range(10)]
    assert node_events(run)[:3] == ["started n0", "completed n0", "started n1"]
    assert node_events(run)[-2:] == ["started n9", "completed n9"]
    starts = [event for event in run.events() if event.type == "trace.node_started"]
    assert [event.data["input"] for event in starts] == list(range(10))
    assert set(starts[0].data) == {
        *("node_id", "parent_ids", "label", "type", "icon", "description", "metadata", "input"),
        *("trace_id", "span_id"),
    }


@nr.step
async def adds_after_ends(_: Any, ctx: nr.Context) -> None:
    trace = ctx.trace
    trace.add(None, label="failed").fail("no")
    trace.add(None, label="completed").complete({"result": "manual"})
    trace.add(None, label="with output").set_output({"kept": True})
    trace.add(None, label="last")


def test_nodes_that_ended_before_the_next_are_left_as_they_are(harness: nr.Harness) -> None:
    run = harness.start(adds_after_ends)
    run.result(30)
    nodes = by_label(run)
    assert statuses(nodes) == {
        "failed": "failed",
        "completed": "completed",
        "with output": "completed",
        "last": "completed",
    }
    assert parents(nodes)["completed"] == ["failed"]
    assert nodes["failed"].error == "no"
    assert nodes["completed"].output == {"result": "manual"}
    assert nodes["with output"].output == {"kept": True}
    told = node_events(run)
    assert told.count("completed completed") == 1
    assert "completed failed" not in told


# -- side by side --------------------------------------------------------------------------------


def three(*names: str) -> list[Any]:
    return [nr.ParallelInput({"n": name}, {"label": name, "type": "api"}) for name in names]


@nr.step
async def forks_and_joins(_: Any, ctx: nr.Context) -> dict[str, Any]:
    trace = ctx.trace
    told: dict[str, Any] = {}
    trace.add(None, label="root")
    middle = trace.parallel(three("a", "b", "c"))
    told["order"] = labels(middle)
    told["running"] = [node.status for node in middle]
    told["current"] = trace.get_current_nodes() == middle
    for node in middle:
        node.complete(node.label)
    told["still current"] = trace.get_current_nodes() == middle
    merge = trace.add(None, label="merge")
    told["joined"] = merge.parent_ids == [node.id for node in middle]
    told["now"] = trace.get_current_nodes() == [merge]
    root = await trace.get_root_node()
    assert root is not None
    told["below"] = [(child.label, labels(child.children)) for child in root.children]
    told["get"] = labels((await trace.get_node(root.id)).children)  # type: ignore[union-attr]
    inner = trace.parallel([nr.ParallelInput(1, nr.TraceNodeOption("x")), {"input": 2}])
    twice = trace.parallel([{"input": 3, "option": {"label": "z"}}])
    told["nested"] = twice[0].parent_ids == [node.id for node in inner]
    inner[1].set_metadata("named", True)
    return told


def test_parallel_nodes_stand_below_all_current_ones_and_are_joined(harness: nr.Harness) -> None:
    run = harness.start(forks_and_joins)
    assert run.result(30) == {
        "order": ["a", "b", "c"],
        "running": ["running"] * 3,
        "current": True,
        "still current": True,
        "joined": True,
        "now": True,
        "below": [("a", ["merge"]), ("b", ["merge"]), ("c", ["merge"])],
        "get": ["a", "b", "c"],
        "nested": True,
    }
    nodes = by_label(run)
    assert parents(nodes) == {
        "root": [],
        **{key: ["root"] for key in "abc"},
        "merge": ["a", "b", "c"],
        "x": ["merge"],
        "": ["merge"],
        "z": ["x", ""],
    }
    assert set(statuses(nodes).values()) == {"completed"}
    assert nodes["a"].children[0] is nodes["c"].children[0] is nodes["merge"]
    assert nodes[""].metadata == {"named": True}
    assert (nodes["a"].output, nodes["a"].input, nodes["a"].type) == ("a", {"n": "a"}, "api")
    told = node_events(run)
    assert told[:5] == ["started root", "completed root", "started a", "started b", "started c"]
    assert sum(each.startswith("started ") for each in told) == len(nodes)


@nr.step
async def gets_parallel_wrong(_: Any, ctx: nr.Context) -> tuple[list[str], bool]:
    trace: Any = ctx.trace
    root = trace.add(None, label="root")
    wrong = [
        [],
        "text",
        {"input": 1},
        3,
        [nr.ParallelInput(1), 3],
        [{"option": {}}],
        [{"input": 1, "label": "x"}],
        [{"input": 1, "option": {"label": 3}}],
    ]
    said = []
    for each in wrong:
        with pytest.raises(nr.TraceError) as refused:
            trace.parallel(each)
        said.append(str(refused.value))
    with pytest.raises(nr.TraceError):
        trace.add(1, label=2)
    with pytest.raises(nr.TraceError):
        trace.add(1, metadata=[1])
    with pytest.raises(TypeError):
        trace.add()
    return said, trace.get_current_nodes() == [root] and root.status == "running"


def test_a_malformed_parallel_changes_nothing(harness: nr.Harness) -> None:
    run = harness.start(gets_parallel_wrong)
    said, unchanged = run.result(30)
    assert unchanged
    assert "at least one" in said[0]
    clues = ["list", "list", "list", "dict", "`input`", "`label`", "`label`"]
    assert all(clue in each for clue, each in zip(clues, said[1:], strict=True))
    assert labels(run.trace()) == ["root"]


@nr.step
async def starts_side_by_side(_: Any, ctx: nr.Context) -> int:
    nodes = ctx.trace.parallel(three("a", "b"))
    ctx.trace.add(None, label="join")
    return len(nodes)


def test_parallel_may_come_first(harness: nr.Harness) -> None:
    run = harness.start(starts_side_by_side)
    assert run.result(30) == 2
    assert parents(by_label(run)) == {"a": [], "b": [], "join": ["a", "b"]}
    root = run.trace().root
    assert root is not None
    assert root.label == "a"


@nr.step
async def adds_below_a_node(_: Any, ctx: nr.Context) -> bool:
    top = ctx.trace.add(None, label="top")
    inner = top.add("i", label="inner", type="t", metadata={"a": 1})
    pair = inner.parallel(three("p", "q"))
    none = top.parallel([])
    ctx.trace.info("to top")
    still = top.status == inner.status == "running" and none == [] and len(pair) == 2
    return still and ctx.trace.get_current_nodes() == [top]


def test_a_node_s_own_children_move_nothing(harness: nr.Harness) -> None:
    run = harness.start(adds_below_a_node)
    assert run.result(30)
    nodes = by_label(run)
    assert parents(nodes) == {"top": [], "inner": ["top"], "p": ["inner"], "q": ["inner"]}
    assert set(statuses(nodes).values()) == {"completed"}, "the end completes them too"
    assert [line.message for line in nodes["top"].logs] == ["to top"]
    assert nodes["inner"].logs == []


# -- logs ----------------------------------------------------------------------------------------


@nr.step
async def logs_where_it_stands(_: Any, ctx: nr.Context) -> bool:
    trace = ctx.trace
    trace.info("before the first node")
    trace.add(None, label="A")
    chained = trace.info("one").debug("two") is trace
    trace.add(None, label="B")
    trace.warn("three").error("four", None).info("100% of %s", {"step": 1})
    pair = trace.parallel(three("p", "q"))
    trace.info("both", [1])
    pair[0].info("own").warn("own too", 0).complete().error("after the end", "x").debug("d")
    return chained


def test_lines_go_to_the_current_nodes(harness: nr.Harness) -> None:
    run = harness.start(logs_where_it_stands)
    assert run.result(30)
    nodes = by_label(run)
    lines = {
        label: [(line.level, line.message, line.data) for line in node.logs]
        for label, node in nodes.items()
    }
    assert lines == {
        "A": [("info", "one", None), ("debug", "two", None)],
        "B": [
            ("warn", "three", None),
            ("error", "four", None),
            ("info", "100% of %s", {"step": 1}),
        ],
        "p": [
            ("info", "both", [1]),
            ("info", "own", None),
            ("warn", "own too", 0),
            ("error", "after the end", "x"),
            ("debug", "d", None),
        ],
        "q": [("info", "both", [1])],
    }
    assert nodes["p"].logs[0].time == nodes["q"].logs[0].time
    assert nodes["p"].status == "completed"
    events = [event.data for event in run.events() if event.type == "trace.log"]
    assert events[0]["node_ids"] == []
    assert "data" not in events[1]
    both = [each for each in events if each["message"] == "both"]
    assert both == [
        {
            "node_ids": [nodes["p"].id, nodes["q"].id],
            "level": "info",
            "message": "both",
            "data": [1],
        }
    ]


@nr.step
async def logs_from_tasks(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="root")

    async def work(n: int) -> None:
        ctx.trace.info(f"{n} info")
        await asyncio.sleep(0)
        ctx.trace.debug(f"{n} debug")
        await asyncio.sleep(0)
        ctx.trace.warn(f"{n} warn")

    await asyncio.gather(*(work(n) for n in range(50)))


def test_no_line_of_fifty_tasks_is_lost(harness: nr.Harness) -> None:
    run = harness.start(logs_from_tasks)
    run.result(30)
    lines = [line.message for line in by_label(run)["root"].logs]
    assert len(lines) == len(set(lines)) == 150


# -- threads and tasks ---------------------------------------------------------------------------


@nr.step
def adds_from_threads(each: int, ctx: nr.Context) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: ctx.trace.add(n, label=f"t{n}"), range(8 * each)))


@nr.step
async def adds_from_tasks(_: Any, ctx: nr.Context) -> None:
    async def add(n: int) -> None:
        await asyncio.sleep(0)
        ctx.trace.add(n, label=f"t{n}")

    await asyncio.gather(*(add(n) for n in range(8)))


@pytest.mark.parametrize(("step", "given", "count"), [(adds_from_threads, 5, 40),
                                                      (adds_from_tasks, None, 8)])  # fmt: skip
def test_adds_at_once_make_one_chain(
    harness: nr.Harness, step: Any, given: Any, count: int
) -> None:
    run = harness.start(step, given)
    run.result(30)
    nodes = run.trace().nodes
    assert len(nodes) == count
    assert sorted(node.label for node in nodes) == sorted(f"t{n}" for n in range(count))
    assert nodes[0].parent_ids == []
    for before, node in itertools.pairwise(nodes):
        assert node.parent_ids == [before.id]
        assert labels(before.children) == [node.label]
    started = [each for each in node_events(run) if each.startswith("started")]
    assert len(started) == count


@nr.step
def traces_from_a_thread(_: Any, ctx: nr.Context) -> dict[str, Any]:
    trace = ctx.sync.trace
    none = trace.get_root_node(), trace.get_node("none"), trace.get_current_nodes()
    root = trace.add({"a": 1}, label="root", type="t", icon="i", description="d", metadata={"m": 1})
    chained = trace.info("one").debug("two").warn("three").error("four", 4) is trace
    pair = trace.parallel(three("a", "b"))
    found = trace.get_node(root.id)
    top = trace.get_root_node()
    assert found is not None
    assert top is not None
    return {
        "none": none == (None, None, []),
        "chained": chained,
        "current": trace.get_current_nodes() == pair == ctx.trace.get_current_nodes(),
        "found": (found == root == top, found.status, labels(found.children)),
        "logs": [(line.level, line.data) for line in found.logs],
        "facts": (found.label, found.type, found.icon, found.description, found.metadata),
    }


def test_synchronous_bodies_trace_and_ask(harness: nr.Harness) -> None:
    run = harness.start(traces_from_a_thread)
    assert run.result(30) == {
        "none": True,
        "chained": True,
        "current": True,
        "found": (True, "completed", ["a", "b"]),
        "logs": [("info", None), ("debug", None), ("warn", None), ("error", 4)],
        "facts": ("root", "t", "i", "d", {"m": 1}),
    }
    assert parents(by_label(run)) == {"root": [], "a": ["root"], "b": ["root"]}


@nr.step
async def asks_at_once(_: Any, ctx: nr.Context) -> list[int]:
    node = ctx.trace.add(None, label="root").info("one").info("two")
    asked = [ctx.trace.get_node(node.id) for _ in range(5)]
    found = await asyncio.gather(ctx.trace.get_root_node(), *asked)
    return [len(each.logs) for each in found if each is not None]


def test_several_questions_at_once_get_the_same_answer(harness: nr.Harness) -> None:
    assert harness.run(asks_at_once) == [2] * 6


@nr.step
async def blocks_on_the_loop(_: Any, ctx: nr.Context) -> str:
    with pytest.raises(nr.ConfigError) as refused:
        ctx.sync.trace.get_root_node()
    return refused.value.code


def test_blocking_questions_are_refused_on_the_loop(harness: nr.Harness) -> None:
    assert harness.run(blocks_on_the_loop) == "SYNC_ON_LOOP"


# -- across contexts -----------------------------------------------------------------------------


@nr.step
async def hands_down(_: Any, ctx: nr.Context) -> list[str]:
    before = await ctx.spawn(adds_one, "root level")
    ctx.trace.parallel(three("a", "b"))
    below = await ctx.spawn(passes_down_without_tracing, "below both")
    ctx.trace.add(None, label="c")
    await asyncio.gather(ctx.spawn(adds_two, "x"), ctx.spawn(adds_two, "y"))
    own = labels(ctx.trace.get_current_nodes())
    ctx.trace.add(None, label="end")
    return [before, below, *own]


@nr.step
async def passes_down_without_tracing(label: str, ctx: nr.Context) -> str:
    ctx.trace.info("to those above")
    return await ctx.spawn(adds_one, label)


@nr.step
async def adds_one(label: str, ctx: nr.Context) -> str:
    assert ctx.trace.get_current_nodes() == []
    ctx.trace.add(None, label=label)
    return ctx.id


@nr.step
async def adds_two(label: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label=label)
    ctx.trace.add(None, label=f"{label}2")


def test_a_child_begins_below_the_nodes_its_parent_stood_at(harness: nr.Harness) -> None:
    run = harness.start(hands_down)
    before, below, current = run.result(30)
    assert current == "c", "a child moves its parent's place not at all"
    nodes = by_label(run)
    assert parents(nodes) == {
        "root level": [],
        "a": [],
        "b": [],
        "below both": ["a", "b"],
        "c": ["a", "b"],
        "x": ["c"],
        "x2": ["x"],
        "y": ["c"],
        "y2": ["y"],
        "end": ["c"],
    }
    assert nodes["root level"].context_id == before
    assert nodes["below both"].context_id == below
    assert nodes["end"].context_id == run.id
    assert set(statuses(nodes).values()) == {"completed"}
    assert [line.message for line in nodes["a"].logs] == ["to those above"]
    assert [line.message for line in nodes["b"].logs] == ["to those above"]
    root = run.trace().root
    assert root is not None
    assert root.label == "root level"


@nr.step
async def builds_with_twenty(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="root")
    await asyncio.gather(*(ctx.spawn(builds_a_part, n) for n in range(20)))
    ctx.trace.add(None, label="end")


@nr.step
async def builds_a_part(n: int, ctx: nr.Context) -> None:
    ctx.trace.add(n, label=f"{n} start")
    ctx.trace.parallel(three(f"{n} left", f"{n} right"))
    await ctx.spawn(adds_one, f"{n} below")
    ctx.trace.info(f"{n} says")
    ctx.trace.add(n, label=f"{n} join").complete(n)


def test_twenty_children_build_one_tree(harness: nr.Harness) -> None:
    run = harness.start(builds_with_twenty)
    run.result(60)
    nodes = by_label(run)
    expected: dict[str, list[str]] = {"root": [], "end": ["root"]}
    for n in range(20):
        both = [f"{n} left", f"{n} right"]
        expected[f"{n} start"] = ["root"]
        expected |= {key: [f"{n} start"] for key in both}
        expected[f"{n} below"] = expected[f"{n} join"] = both
    assert parents(nodes) == expected
    assert set(statuses(nodes).values()) == {"completed"}
    assert len(nodes["root"].children) == 21
    for n in range(20):
        assert [line.message for line in nodes[f"{n} left"].logs] == [f"{n} says"]
        assert nodes[f"{n} join"].output == n
    starts = [each for each in node_events(run) if each.startswith("started")]
    assert len(starts) == len(set(starts)) == 102
    root = run.trace().root
    assert root is not None
    assert len(list(root.walk())) == 102


@nr.step
async def shows_its_tree_while_it_works(folder: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="working")
    ctx.release()
    mark(folder, "there")
    while not marked(folder, "go"):
        await asyncio.sleep(0.005)


def test_the_trace_of_a_run_that_goes_on(harness: nr.Harness, tmp_path: Any) -> None:
    run = harness.start(shows_its_tree_while_it_works, str(tmp_path))
    wait_for(tmp_path, "there")
    for event in run.events():
        if event.type == "trace.node_started":
            break
    (node,) = run.trace()
    assert (node.status, node.ended_at) == ("running", None)
    mark(tmp_path, "go")
    run.result(30)
    (node,) = run.trace()
    assert node.status == "completed"
    assert "working" in str(run.trace())
