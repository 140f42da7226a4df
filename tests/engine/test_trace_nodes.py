"""A node of the trace: its end, its facts, its span, and who may touch it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import noetic_ray as nr
from tests.conftest import unique
from tests.support.marks import mark, marked, text_of, wait_for

Make = Callable[..., nr.Harness]


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def mortal(exporter: InMemorySpanExporter, request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness on Ray whose context actors the tests kill, and whose spans they read."""
    request.getfixturevalue("ray_cluster")
    name = unique("mortal-nodes")
    with nr.Harness(name, kill_after=0.5, exporter=exporter) as harness:
        yield harness


def by_label(run: nr.Run[Any]) -> dict[str, Any]:
    return {node.label: node for node in run.trace()}


def told_of(run: nr.Run[Any], label: str) -> list[tuple[str, dict[str, Any]]]:
    """The events about one node after its start, without `trace.`, with their data."""
    id = by_label(run)[label].id
    return [
        (event.type.removeprefix("trace."), event.data)
        for event in run.events()
        if event.type.startswith("trace.")
        and id in (event.data.get("node_id"), *event.data.get("node_ids", ()))
        and event.type != "trace.node_started"
    ]


# -- how it ends ---------------------------------------------------------------------------------


@nr.step
async def ends_in_all_ways(_: Any, ctx: nr.Context) -> list[Any]:
    add = ctx.trace.add
    add(None, label="with output").complete({"result": "success", "count": 42})
    add(None, label="set before").set_output({"a": 1}).complete()
    add(None, label="with none").set_output(1).complete(None)
    add(None, label="without").complete()
    twice = add(None, label="twice").complete("x")
    ended = twice.ended_at
    twice.complete("y").fail("no")
    failed = add(None, label="failed").set_output("kept").fail("timeout")
    failed.complete("x").fail("again")
    add(None, label="raised").fail(ValueError("bad value"))
    still = ctx.trace.get_current_nodes()
    return [
        (twice.status, twice.output, twice.ended_at == ended),
        (failed.status, failed.output, failed.record.error),
        [node.label for node in still],
    ]


def test_a_node_ends_once_with_its_output_or_its_error(
    harness: nr.Harness, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "noetic_ray"):
        run = harness.start(ends_in_all_ways)
        assert run.result(30) == [
            ("completed", "x", True),
            ("failed", "kept", "timeout"),
            ["raised"],
        ]
    nodes = by_label(run)
    outcomes = {label: (node.status, node.output, node.error) for label, node in nodes.items()}
    assert outcomes == {
        "with output": ("completed", {"result": "success", "count": 42}, None),
        "set before": ("completed", {"a": 1}, None),
        "with none": ("completed", None, None),
        "without": ("completed", None, None),
        "twice": ("completed", "x", None),
        "failed": ("failed", "kept", "timeout"),
        "raised": ("failed", None, "ValueError: bad value"),
    }
    for node in nodes.values():
        assert node.created_at == node.started_at <= node.ended_at
    told = {label: told_of(run, label) for label in nodes}
    ((kind, data),) = told["with output"]
    assert kind == "node_completed"
    assert (data["status"], data["output"]) == ("completed", {"result": "success", "count": 42})
    assert data["duration"] >= 0
    assert told["set before"][-1][1]["output"] == {"a": 1}
    assert told["with none"][-1][1]["output"] is None
    assert "output" not in told["without"][0][1]
    assert [kind for kind, _ in told["twice"]] == ["node_completed"]
    kinds = [kind for kind, _ in told["failed"]]
    assert kinds == ["node_updated", "log", "node_failed"]
    line, end = told["failed"][1][1], told["failed"][2][1]
    assert (line["level"], "timeout" in line["message"]) == ("error", True)
    assert (end["status"], end["error"], end["duration"] >= 0) == ("failed", "timeout", True)
    if backend == "inline":
        warned = [each.getMessage() for each in caplog.records if "already" in each.getMessage()]
        assert len(warned) == 4
        assert "twice" in warned[0]
        assert "completed already" in warned[0]


@nr.step
async def changes_after_the_end(_: Any, ctx: nr.Context) -> bool:
    node = ctx.trace.add(None, label="node", metadata={"from": "start"}).complete("x")
    ended = node.ended_at
    node.set_metadata("duration", 1500).set_metadata("cache_hit", True).set_metadata("duration", 9)
    node.set_output("y").set_output({"z": [1]}).info("late", {"a": 1})
    with pytest.raises(TypeError):
        node.set_metadata("alone")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        node.fail()  # type: ignore[call-arg]
    with pytest.raises(nr.TraceError):
        node.set_metadata(3, 1)  # type: ignore[arg-type]
    return node.ended_at == ended and node.output == {"z": [1]} and node.status == "completed"


def test_output_and_metadata_may_change_after_the_end(harness: nr.Harness) -> None:
    run = harness.start(changes_after_the_end)
    assert run.result(30)
    (node,) = run.trace()
    assert (node.status, node.output) == ("completed", {"z": [1]})
    assert node.metadata == {"from": "start", "duration": 9, "cache_hit": True}
    assert [line.message for line in node.logs] == ["late"]
    kinds = [kind for kind, _ in told_of(run, "node")]
    assert kinds == ["node_completed", *["node_updated"] * 5, "log"]
    assert told_of(run, "node")[1][1]["metadata"] == {"duration": 1500}


@nr.step
async def works_on_five(_: Any, ctx: nr.Context) -> None:
    nodes = ctx.trace.parallel([{"input": n, "option": {"label": f"w{n}"}} for n in range(5)])

    async def work(n: int) -> None:
        nodes[n].info(f"begin {n}")
        await asyncio.sleep(0)
        nodes[n].set_metadata("worker_id", n)
        await asyncio.sleep(0)
        nodes[n].complete({"worker": n})

    await asyncio.gather(*(work(n) for n in range(5)))


def test_workers_with_a_node_each_do_not_mix(harness: nr.Harness) -> None:
    run = harness.start(works_on_five)
    run.result(30)
    nodes = by_label(run)
    for n in range(5):
        node = nodes[f"w{n}"]
        assert (node.output, node.metadata) == ({"worker": n}, {"worker_id": n})
        assert [line.message for line in node.logs] == [f"begin {n}"]


class Odd:
    """Something JSON cannot say."""

    def __repr__(self) -> str:
        return "<odd>"


@nr.step
async def traces_odd_values(_: Any, ctx: nr.Context) -> None:
    node = ctx.trace.add({"when": Odd(), "set": {1}}, label="odd", metadata={"x": float("nan")})
    node.info("line", Odd()).set_output(b"\x00\xff").set_metadata("o", Odd())
    given = {"n": 1}
    other = ctx.trace.add(given, label="later", metadata=given)
    given["n"] = 2
    other.set_output(given)
    given["n"] = 3


def test_any_value_can_be_traced_as_it_was(harness: nr.Harness) -> None:
    run = harness.start(traces_odd_values)
    run.result(30)
    nodes = by_label(run)
    assert nodes["odd"].input == {"when": "<odd>", "set": [1]}
    assert nodes["odd"].metadata == {"x": "NaN", "o": "<odd>"}
    assert nodes["odd"].logs[0].data == "<odd>"
    assert nodes["odd"].output == "AP8="
    later = nodes["later"]
    assert (later.input, later.metadata, later.output) == ({"n": 1}, {"n": 1}, {"n": 2})


# -- how its context's end ends it ---------------------------------------------------------------


@nr.step
async def leaves_nodes_open(folder: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="done").complete("x")
    ctx.trace.add(None, label="failed").fail("own reason")
    open_one = ctx.trace.add(None, label="open").set_output("half")
    open_one.add(None, label="below")
    for child in (ends_well, ends_badly):
        with contextlib.suppress(nr.NoeticError):
            await ctx.spawn(child)
    waiting = ctx.detach(waits_with_a_node, folder)
    while not marked(folder, "there"):
        await asyncio.sleep(0.005)
    waiting.abort("child not needed")
    with contextlib.suppress(nr.Cancelled):
        await waiting
    mark(folder, "now")
    await asyncio.sleep(60)


@nr.step
async def ends_well(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="of one that completed")


@nr.step
async def ends_badly(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="of one that failed")
    raise ValueError("child failed")


@nr.step
async def waits_with_a_node(folder: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="of one that was aborted")
    mark(folder, "there")
    await asyncio.sleep(60)


def test_nodes_end_as_their_context_does(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(leaves_nodes_open, str(tmp_path))
    wait_for(tmp_path, "now")
    before = by_label(run)
    assert before["open"].status == "running"
    run.abort("client left")
    nodes = by_label(run)
    outcomes = {label: (node.status, node.error) for label, node in nodes.items()}
    failed = outcomes.pop("of one that failed")
    assert failed[0] == "failed"
    assert "child failed" in failed[1]
    assert outcomes == {
        "done": ("completed", None),
        "failed": ("failed", "own reason"),
        "open": ("failed", "client left"),
        "below": ("failed", "client left"),
        "of one that completed": ("completed", None),
        "of one that was aborted": ("failed", "child not needed"),
    }
    assert nodes["open"].output == "half"
    assert nodes["done"].output == "x"
    ends = [event for event in run.events() if event.type == "run.ended"]
    assert [event.data["status"] for event in ends] == ["cancelled"]
    assert all(node.ended_at for node in nodes.values())


def test_a_run_that_completes_ends_once_with_all_nodes_completed(harness: nr.Harness) -> None:
    run = harness.start(ends_well)
    run.result(30)
    kinds = [event.type for event in run.events()]
    assert kinds.count("run.ended") == 1
    assert kinds.index("trace.node_completed") < kinds.index("run.ended")
    (node,) = run.trace()
    assert node.status == "completed"


@nr.step
async def fails_with_nodes(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="root")
    await ctx.run(fails_inside)


@nr.step
async def fails_inside(_: Any, ctx: nr.Context) -> None:
    raise ValueError("no")


@nr.step
async def completes_early(_: Any, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="root")
    ctx.complete("early")
    await ctx.run(ends_well)


def test_nodes_of_a_run_that_fails_or_completes_early(harness: nr.Harness) -> None:
    run = harness.start(fails_with_nodes)
    with pytest.raises(nr.StepFailed):
        run.result(30)
    (node,) = run.trace()
    assert node.status == "failed"
    assert "no" in (node.error or "")
    run = harness.start(completes_early)
    assert run.result(30) == "early"
    (node,) = run.trace()
    assert node.status == "completed"


# -- when its process dies -----------------------------------------------------------------------


@nr.step
async def has_a_victim(folder: str, ctx: nr.Context) -> str:
    ctx.trace.add(None, label="root")
    try:
        await ctx.spawn(is_killed, folder)
    except nr.ContextLost as lost:
        return lost.context_id
    return "not lost"


@nr.step
async def is_killed(folder: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="done").complete()
    ctx.trace.add(None, label="open")
    await asyncio.gather(
        ctx.spawn(stays, (folder, "here"), placement="inline"),
        ctx.spawn(stays, (folder, "elsewhere")),
        tells_and_waits(folder, ctx),
    )


@nr.step
async def stays(given: tuple[str, str], ctx: nr.Context) -> None:
    folder, name = given
    ctx.trace.add(None, label=name)
    await ctx.checkpoint()
    mark(folder, name, os.getpid())
    await asyncio.sleep(60)


async def tells_and_waits(folder: str, ctx: nr.Context) -> None:
    await ctx.checkpoint()
    mark(folder, "victim", os.getpid())
    await asyncio.sleep(60)


def test_nodes_of_lost_contexts_fail(mortal: nr.Harness, tmp_path: Path) -> None:
    run = mortal.start(has_a_victim, str(tmp_path))
    wait_for(tmp_path, "victim", "here", "elsewhere")
    assert text_of(tmp_path, "victim") == text_of(tmp_path, "here")
    os.kill(int(text_of(tmp_path, "victim")), signal.SIGKILL)
    lost_id = run.result(30)
    nodes = by_label(run)
    assert nodes["open"].context_id == lost_id
    assert (nodes["root"].status, nodes["done"].status) == ("completed", "completed")
    assert nodes["open"].status == "failed"
    assert (nodes["open"].error or "").startswith("context lost")
    assert (nodes["elsewhere"].status, nodes["elsewhere"].error) == ("failed", "parent lost")


def test_nodes_of_a_lost_root_and_of_children_in_its_process_fail(
    mortal: nr.Harness, tmp_path: Path
) -> None:
    run = mortal.start(is_killed, str(tmp_path))
    wait_for(tmp_path, "victim", "here", "elsewhere")
    os.kill(int(text_of(tmp_path, "victim")), signal.SIGKILL)
    with pytest.raises(nr.ContextLost):
        run.result(30)
    assert {label: node.status for label, node in by_label(run).items()} == {
        "done": "completed",
        "open": "failed",
        "here": "failed",
        "elsewhere": "failed",
    }


@nr.step
async def does_not_let_go(folder: str, ctx: nr.Context) -> None:
    ctx.trace.add(None, label="stubborn")
    await ctx.checkpoint()
    mark(folder, "there")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


def fails_after_the_patience(harness: nr.Harness, folder: Path) -> tuple[int, int]:
    """How many were killed and abandoned when an abort was ignored."""
    run = harness.start(does_not_let_go, str(folder))
    wait_for(folder, "there")
    report = run.abort("enough")
    (node,) = run.trace()
    assert node.status == "failed"
    assert node.error == "enough" or (node.error or "").startswith("context lost")
    return report.killed, report.abandoned


def test_nodes_of_a_context_that_is_killed_fail(mortal: nr.Harness, tmp_path: Path) -> None:
    assert fails_after_the_patience(mortal, tmp_path) == (1, 0)


def test_nodes_of_a_context_that_is_abandoned_fail(make_harness: Make, tmp_path: Path) -> None:
    harness = make_harness(placement="inline", kill_after=0.3)
    assert fails_after_the_patience(harness, tmp_path) == (0, 1)


# -- nodes of other contexts ---------------------------------------------------------------------


@nr.step
async def lets_a_child_end_its_node(_: Any, ctx: nr.Context) -> list[Any]:
    node = ctx.trace.add(None, label="shared").set_output("old")
    await ctx.checkpoint()
    child_node = await ctx.spawn(ends_a_node_from_elsewhere, node.id)
    seen = await ctx.trace.get_node(node.id)
    assert seen is not None
    told = [seen.status, seen.output, seen.metadata.get("by"), seen == node, node.status]
    node.complete("too late")
    theirs = await ctx.trace.get_node(child_node)
    assert theirs is not None
    told += [theirs.status, theirs.output]
    theirs.set_metadata("seen", True).set_output("new").info("from above")
    ctx.trace.add(None, label="next")
    return told


@nr.step
async def ends_a_node_from_elsewhere(id: str, ctx: nr.Context) -> str:
    own = ctx.trace.add(None, label="own").complete("done")
    node = await ctx.trace.get_node(id)
    assert node is not None
    assert (node.status, node.output, [each.label for each in node.children]) == (
        "running",
        "old",
        ["own"],
    )
    node.info("from below").set_metadata("by", "child")
    node.add(None, label="below it")
    node.complete("from below")
    assert ctx.trace.get_current_nodes() == [own]
    await ctx.checkpoint()
    return own.id


def test_a_node_of_another_context_can_be_ended_there(harness: nr.Harness) -> None:
    run = harness.start(lets_a_child_end_its_node)
    assert run.result(30) == [
        *("completed", "from below", "child", True, "completed"),
        *("completed", "done"),
    ]
    nodes = by_label(run)
    shared = nodes["shared"]
    assert (shared.status, shared.output, shared.metadata) == (
        "completed",
        "from below",
        {"by": "child"},
    )
    assert [line.message for line in shared.logs] == ["from below"]
    ended = [kind for kind, _ in told_of(run, "shared") if kind == "node_completed"]
    assert len(ended) == 1, "its own context has heard of the end"
    assert nodes["below it"].parent_ids == nodes["own"].parent_ids == [shared.id]
    assert (nodes["own"].output, nodes["own"].metadata) == ("new", {"seen": True})
    assert nodes["next"].parent_ids == [shared.id]


@nr.step
async def sets_output_meanwhile(folder: str, ctx: nr.Context) -> None:
    node = ctx.trace.add(None, label="shared").set_output("old")
    await ctx.checkpoint()
    child = ctx.detach(completes_with_what_it_saw, (folder, node.id))
    while not marked(folder, "seen"):
        await asyncio.sleep(0.005)
    node.set_output("new")
    await ctx.checkpoint()
    mark(folder, "go")
    await child


@nr.step
async def completes_with_what_it_saw(given: tuple[str, str], ctx: nr.Context) -> None:
    folder, id = given
    node = await ctx.trace.get_node(id)
    mark(folder, "seen")
    while not marked(folder, "go"):
        await asyncio.sleep(0.005)
    assert node is not None
    node.complete()


def test_ending_another_s_node_without_an_output_leaves_its_output(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(sets_output_meanwhile, str(tmp_path))
    run.result(30)
    (node,) = run.trace()
    assert (node.status, node.output) == ("completed", "new")


@nr.step
async def asks_for_nodes_just_made(_: Any, ctx: nr.Context) -> list[bool]:
    above = ctx.trace.add(None, label="above").id
    seen, below = await ctx.spawn(looks_up, above)
    return [seen, await ctx.trace.get_node(below) is not None]


@nr.step
async def looks_up(id: str, ctx: nr.Context) -> tuple[bool, str]:
    own = ctx.trace.add(None, label="below").id
    return await ctx.trace.get_node(id) is not None, own


def test_what_was_made_before_a_child_began_or_ended_is_found(ray_harness: nr.Harness) -> None:
    assert ray_harness.run(asks_for_nodes_just_made) == [True, True]


# -- spans ---------------------------------------------------------------------------------------


@nr.step
async def traces_in_steps(_: Any, ctx: nr.Context) -> dict[str, tuple[str, str]]:
    told = {"root": ids_here(ctx)}
    ctx.trace.add(None, label="root")
    told |= await ctx.run(traces_inside)
    told |= await ctx.spawn(traces_below)
    return told


@nr.step
async def traces_inside(_: Any, ctx: nr.Context) -> dict[str, tuple[str, str]]:
    ctx.trace.add(None, label="inside")
    return {"inside": ids_here(ctx)}


@nr.step
def traces_below(_: Any, ctx: nr.Context) -> dict[str, tuple[str, str]]:
    ctx.sync.trace.add(None, label="below")
    return {"below": ids_here(ctx)}


def ids_here(ctx: nr.Context) -> tuple[str, str]:
    span = ctx.span.get_span_context()
    return f"{span.trace_id:032x}", f"{span.span_id:016x}"


def expect_spans_and_nodes(harness: nr.Harness, exporter: InMemorySpanExporter) -> None:
    run = harness.start(traces_in_steps)
    steps = run.result(30)
    nodes = by_label(run)
    assert {label: (node.trace_id, node.span_id) for label, node in nodes.items()} == steps
    assert len({trace_id for trace_id, _ in steps.values()}) == 1
    assert len({span_id for _, span_id in steps.values()}) == 3
    spans = {
        f"{span.context.span_id:016x}": span
        for span in exporter.get_finished_spans()
        if span.context is not None
    }
    for label, node in nodes.items():
        marks = [event for event in spans[node.span_id].events if event.name == "noetic.trace.node"]
        assert [dict(event.attributes or {}) for event in marks] == [
            {"noetic.trace.node.id": node.id, "noetic.trace.node.label": label}
        ]
        assert marks[0].timestamp <= time.time_ns()


def test_a_node_and_the_span_of_its_step_name_each_other(
    mortal: nr.Harness, exporter: InMemorySpanExporter, make_harness: Make
) -> None:
    expect_spans_and_nodes(mortal, exporter)
    here = InMemorySpanExporter()
    expect_spans_and_nodes(make_harness(placement="inline", exporter=here), here)


def test_nodes_have_span_ids_without_an_exporter(harness: nr.Harness) -> None:
    run = harness.start(traces_in_steps)
    steps = run.result(30)
    assert {each.label: (each.trace_id, each.span_id) for each in run.trace()} == steps
