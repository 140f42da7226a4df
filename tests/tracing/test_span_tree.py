"""One trace per run, with a span for everything, each below what caused it."""

from __future__ import annotations

import asyncio
import random
import threading

import opentelemetry.trace
import pytest
from opentelemetry.sdk.trace import TracerProvider

import noetic_ray as nr
from tests.tracing.conftest import Traced
from tests.tracing.traces import attributes, trace_of


@nr.step
async def leaf(name: str, ctx: nr.Context) -> str:
    ctx.span.set_attribute("leaf", name)
    return name


@nr.step
def in_thread(name: str, ctx: nr.Context) -> str:
    assert isinstance(ctx.span, opentelemetry.trace.Span)
    ctx.span.set_attribute("thread", threading.current_thread().name)
    return ctx.sync.spawn(leaf, name)


@nr.step
async def branches(_: None, ctx: nr.Context) -> list[str]:
    here = await ctx.run(leaf, "here")
    spawned = await asyncio.gather(*(ctx.spawn(in_thread, str(n)) for n in range(3)))
    return [here, *spawned]


def test_contexts_steps_and_threads_make_one_tree(traced: Traced) -> None:
    output, trace = traced.run(branches)
    assert output == ["here", "0", "1", "2"]
    threaded = ["    invoke_agent in_thread", "      step in_thread"]
    below = ["        invoke_agent leaf", "          step leaf"]
    assert trace.tree() == [
        "invoke_agent branches",
        "  step branches",
        *[*threaded, *below] * 3,
        "    step leaf",
    ]
    leaves = [attributes(span)["leaf"] for span in trace.all("step leaf")]
    assert sorted(leaves) == ["0", "1", "2", "here"]
    threads = {attributes(span)["thread"] for span in trace.all("step in_thread")}
    assert threads == {"noetic-sync"}
    assert all(span.status.is_ok for span in trace.spans)
    assert {attributes(span)["noetic.outcome"] for span in trace.spans} == {"completed"}


def test_times_of_a_child_lie_within_those_of_its_parent(traced: Traced) -> None:
    _, trace = traced.run(branches)
    by_id = {span.context.span_id: span for span in trace.spans}
    for span in trace.spans:
        outer = by_id.get(span.parent.span_id) if span.parent else None
        if outer is not None:
            assert outer.start_time <= span.start_time <= span.end_time <= outer.end_time


paths = nr.in_parallel("paths", [leaf, leaf, leaf])
one_by_one = nr.in_parallel("one_by_one", [leaf, in_thread, leaf, leaf], concurrency=1)


@pytest.mark.parametrize("step", [paths, one_by_one], ids=lambda step: step.id)
def test_parallel_paths_are_below_their_step(traced: Traced, step: nr.Step) -> None:
    _, trace = traced.run(step, "x")
    parallel = trace.one(f"step {step.id}").context.span_id
    inside = [s for s in trace.spans if s.parent and s.parent.span_id == parallel]
    assert len(inside) == len(step.paths)
    assert {span.name.partition(" ")[0] for span in inside} == {"invoke_agent"}


@nr.tool
def add(a: int, b: int, ctx: nr.Context) -> int:
    """Add two numbers."""
    assert isinstance(ctx.span, opentelemetry.trace.Span)
    ctx.span.set_attribute("sum", a + b)
    return a + b


calculator = nr.call_model("calculator", "adds", tools=[add])
nested = nr.sequence("nested", [nr.call_model("echo", "echo"), calculator])


def test_model_calls_and_tools_are_below_their_step(traced: Traced) -> None:
    output, trace = traced.run(nested, "hi")
    assert output == "5"
    assert trace.tree() == [
        "invoke_agent nested",
        "  step nested",
        "    step calculator",
        "      chat adds",
        "      chat adds",
        "      execute_tool add",
        "    step echo",
        "      chat echo",
    ]
    assert attributes(trace.one("execute_tool add"))["sum"] == 5


@nr.step
async def add_agent(_: str, ctx: nr.Context) -> int:
    return 5


agent_tool = nr.as_tool(add_agent, name="add", description="Adds.")


def test_an_agent_used_as_a_tool_is_below_the_call(traced: Traced) -> None:
    asker = nr.call_model("asker", "asks_agent", tools=[agent_tool])
    _, trace = traced.run(asker, "hi")
    assert trace.tree() == [
        "invoke_agent asker",
        "  step asker",
        "    chat asks_agent",
        "    chat asks_agent",
        "    execute_tool add",
        "      invoke_agent add_agent",
        "        step add_agent",
    ]


gate = nr.channel("tracing-gate", str, mode="queue", external=True)


@nr.step
async def waits(_: None, ctx: nr.Context) -> str:
    return await ctx.recv(gate)


@nr.step
async def detaches(_: None, ctx: nr.Context) -> str:
    ctx.detach(waits)
    return await ctx.spawn(leaf, "attached")


def test_a_detached_child_is_in_the_trace_of_its_run(traced: Traced) -> None:
    run = traced.harness.start(detaches)
    assert run.result(60) == "attached"
    early = trace_of(traced.exporter, run.id)
    assert early.tree() == [
        "invoke_agent detaches",
        "  step detaches",
        "    invoke_agent leaf",
        "      step leaf",
    ]
    traced.harness.channel(gate).send("go")
    assert [event.type for event in run.events()][-1] == "run.ended"
    run.tree()
    assert "    invoke_agent waits" in trace_of(traced.exporter, run.id).tree()


def test_the_current_span_of_the_driver_is_the_parent_and_stays_current(traced: Traced) -> None:
    tracer = TracerProvider().get_tracer("driver")
    with tracer.start_as_current_span("outside") as outside:
        _, trace = traced.run(leaf, "x")
        assert opentelemetry.trace.get_current_span() is outside
    assert trace.trace_id == outside.get_span_context().trace_id
    (root,) = trace.roots()
    assert root.name == "invoke_agent leaf"
    assert root.parent.span_id == outside.get_span_context().span_id


async def test_the_current_span_counts_for_an_awaited_run_too(traced: Traced) -> None:
    tracer = TracerProvider().get_tracer("driver")
    with tracer.start_as_current_span("outside") as outside:
        run = await traced.harness.astart(leaf, "x")
        await run
        assert opentelemetry.trace.get_current_span() is outside
    ours = outside.get_span_context()
    spans = [s for s in traced.exporter.get_finished_spans() if s.context.trace_id == ours.trace_id]
    assert {span.name for span in spans} == {"invoke_agent leaf", "step leaf"}


def test_two_runs_are_two_traces(traced: Traced) -> None:
    first, second = traced.run(leaf, "a")[1], traced.run(leaf, "b")[1]
    assert first.trace_id != second.trace_id
    assert first.roots()[0].parent is None


@nr.step
async def seeds(_: int, ctx: nr.Context) -> int:
    random.seed(0)
    return ctx.depth


def test_user_code_that_seeds_random_numbers_does_not_repeat_span_ids(traced: Traced) -> None:
    step = nr.in_parallel("all_seed", [seeds] * 4)
    assert len(traced.run(step, 0)[1].spans) == 2 + 2 * 4
