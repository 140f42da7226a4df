"""What spans say of the work they stand for, and what they never say."""

from __future__ import annotations

import asyncio
from typing import Any

import opentelemetry.trace
import pytest
from opentelemetry.trace import StatusCode

import noetic_ray as nr
from tests.tracing.conftest import Traced
from tests.tracing.test_span_tree import add, agent_tool, leaf
from tests.tracing.traces import Trace, attributes, trace_of


def outcomes(trace: Trace) -> dict[str, tuple[Any, ...]]:
    """(status, description, outcome, error type) by span name."""
    return {
        span.name: (
            span.status.status_code.name,
            span.status.description,
            attributes(span)["noetic.outcome"],
            attributes(span).get("error.type"),
        )
        for span in trace.spans
    }


@nr.step
async def bad(_: None, ctx: nr.Context) -> None:
    raise ValueError("no luck")


@nr.step
async def forgives(_: None, ctx: nr.Context) -> str:
    try:
        await ctx.spawn(bad)
    except nr.StepFailed:
        return "forgiven"
    return "unexpected"


def test_a_failure_marks_the_spans_it_passes_and_no_others(traced: Traced) -> None:
    output, trace = traced.run(forgives)
    failed = ("ERROR", "step 'bad' failed: ValueError: no luck", "failed", "ValueError")
    assert output == "forgiven"
    assert outcomes(trace) == {
        "invoke_agent forgives": ("UNSET", None, "completed", None),
        "step forgives": ("UNSET", None, "completed", None),
        "invoke_agent bad": failed,
        "step bad": failed,
    }


started = nr.channel("tracing-started", str, mode="queue", external=True)


@nr.step
async def sleeps(_: None, ctx: nr.Context) -> None:
    await ctx.send(started, "here")
    await asyncio.Event().wait()


@nr.step
async def waits_for_sleeper(_: None, ctx: nr.Context) -> None:
    await ctx.spawn(sleeps)


def test_an_abort_marks_every_span_with_its_reason(traced: Traced) -> None:
    run = traced.harness.start(waits_for_sleeper)
    with traced.harness.channel(started).stream() as there:
        assert next(iter(there)) == "here"
    run.abort("enough")
    with pytest.raises(nr.Cancelled):
        run.result(30)
    assert outcomes(trace_of(traced.exporter, run.id)) == dict.fromkeys(
        ["invoke_agent waits_for_sleeper", "step waits_for_sleeper"],
        ("ERROR", "enough", "cancelled", "Cancelled"),
    ) | dict.fromkeys(
        ["invoke_agent sleeps", "step sleeps"], ("ERROR", "enough", "cancelled", "Cancelled")
    )


@nr.step
async def stubborn(_: None, ctx: nr.Context) -> None:
    await ctx.send(started, "here")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@nr.step
async def has_stubborn_child(_: None, ctx: nr.Context) -> None:
    await ctx.spawn(stubborn)


def test_a_child_that_had_to_be_killed_or_left_is_in_the_trace(traced: Traced) -> None:
    run = traced.harness.start(has_stubborn_child)
    with traced.harness.channel(started).stream() as there:
        assert next(iter(there)) == "here"
    report = run.abort("enough")
    assert report.killed + report.abandoned == 1
    trace = trace_of(traced.exporter, run.id)
    child = trace.one("invoke_agent stubborn")
    assert outcomes(trace)[child.name] == ("ERROR", "enough", "cancelled", "Cancelled")
    assert child.parent.span_id == trace.one("step has_stubborn_child").context.span_id


@nr.step
async def completes(_: None, ctx: nr.Context) -> None:
    ctx.complete("early")
    await ctx.run(leaf, "never")


def test_an_early_completion_is_no_failure(traced: Traced) -> None:
    output, trace = traced.run(completes)
    assert output == "early"
    assert all(attributes(span)["noetic.outcome"] == "completed" for span in trace.spans)


# Model calls and tools


def test_a_model_call_has_the_attributes_of_the_conventions(traced: Traced) -> None:
    step = nr.call_model("asks", "m1", settings={"temperature": 0.5, "max_tokens": 99})
    run = traced.harness.start(step, "hi", thread_id="thread-1")
    run.result(30)
    trace = trace_of(traced.exporter, run.id)
    chat = trace.one("chat m1")
    assert chat.kind is opentelemetry.trace.SpanKind.CLIENT
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ScriptedModel",
        "gen_ai.request.model": "m1",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.response.model": "m1-2026",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.conversation.id": "thread-1",
        "noetic.cost": 0.01,
        "noetic.run.id": run.id,
        "noetic.context.id": run.id,
        "noetic.step.id": "asks",
        "noetic.outcome": "completed",
    }
    assert attributes(trace.one("invoke_agent asks")) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": run.id,
        "gen_ai.agent.name": "asks",
        "gen_ai.conversation.id": "thread-1",
        "noetic.run.id": run.id,
        "noetic.context.id": run.id,
        "noetic.step.id": "asks",
        "noetic.outcome": "completed",
    }
    assert attributes(trace.one("step asks"))["noetic.step.kind"] == "call_model"


def test_a_failed_model_call_says_so(traced: Traced) -> None:
    _, trace = traced.fail(nr.call_model("broken", "breaks"), "hi")
    assert outcomes(trace)["chat breaks"] == ("ERROR", "no answer today", "failed", "ValueError")


def test_a_tool_call_has_the_attributes_of_the_conventions(traced: Traced) -> None:
    _, trace = traced.run(nr.call_model("calculator", "adds", tools=[add]), "hi")
    found = attributes(trace.one("execute_tool add"))
    assert found.pop("gen_ai.tool.call.id").startswith("call_")
    assert found.pop("noetic.run.id") == found.pop("noetic.context.id")
    assert found == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two numbers.",
        "sum": 5,
        "noetic.outcome": "completed",
    }


def test_a_call_of_an_unknown_tool_is_a_failed_span(traced: Traced) -> None:
    _, trace = traced.run(nr.call_model("lost", "calls_nobody", tools=[add]), "hi")
    status, said, outcome, type_ = outcomes(trace)["execute_tool nobody"]
    assert (status, outcome, type_) == ("ERROR", "failed", "UnknownTool")
    assert said.startswith("no tool named 'nobody'")


def test_arguments_of_tools_are_on_no_span(traced: Traced) -> None:
    refused = nr.call_model("refused", "adds_wrongly", tools=[add])
    asked = nr.call_model("asked", "asks_agent", tools=[agent_tool])
    direct = nr.invoke_tool("direct", add, args={"a": "SECRET-ARGUMENT", "b": 1})
    traces = [traced.run(refused, "hi")[1], traced.run(asked, "hi")[1], traced.fail(direct)[1]]
    assert outcomes(traces[0])["execute_tool add"][2] == "failed"
    assert outcomes(traces[2])["execute_tool add"][2] == "failed"
    for trace in traces:
        assert not [span.name for span in trace.spans if "SECRET" in span.to_json()]


# What users put on spans


@nr.step
async def annotates(_: None, ctx: nr.Context) -> dict[str, Any]:
    ctx.span.set_attributes({"n": 1, "tags": ["a", "b"], "odd": object()})
    ctx.span.add_event("seen", {"what": "it"})
    ctx.span.update_name("renamed")
    try:
        raise LookupError("gone")
    except LookupError as error:
        ctx.span.record_exception(error)
    context = ctx.span.get_span_context()
    return {"trace": context.trace_id, "span": context.span_id, "valid": context.is_valid}


def test_what_a_step_puts_on_its_span_is_exported(traced: Traced) -> None:
    output, trace = traced.run(annotates)
    span = trace.one("renamed")
    assert output == {"trace": trace.trace_id, "span": span.context.span_id, "valid": True}
    found = attributes(span)
    assert (found["n"], found["tags"], "odd" in found) == (1, ("a", "b"), False)
    seen, raised = span.events
    assert (seen.name, dict(seen.attributes or {})) == ("seen", {"what": "it"})
    assert raised.name == "exception"
    assert (raised.attributes or {})["exception.message"] == "gone"
    assert span.status.status_code is StatusCode.UNSET


@nr.step
async def ends_early(_: None, ctx: nr.Context) -> None:
    with opentelemetry.trace.use_span(ctx.span, end_on_exit=True):
        assert opentelemetry.trace.get_current_span().get_span_context().is_valid
    assert not ctx.span.is_recording()
    ctx.span.set_attribute("late", True)


def test_a_span_ended_by_its_step_is_exported_once_with_its_outcome(traced: Traced) -> None:
    _, trace = traced.run(ends_early)
    found = attributes(trace.one("step ends_early"))
    assert found["noetic.outcome"] == "completed"
    assert "late" not in found


@nr.step(retry=nr.Retry(3, delay=0.0))
async def tries(_: None, ctx: nr.Context) -> None:
    raise ValueError("no luck")


def test_retries_are_events_of_the_step(traced: Traced) -> None:
    _, trace = traced.fail(tries)
    events = [(e.name, dict(e.attributes or {})) for e in trace.one("step tries").events]
    assert events == [("retry", {"attempt": 2}), ("retry", {"attempt": 3})]


# Without an exporter


def test_spans_are_valid_without_an_exporter(harness: nr.Harness) -> None:
    first, second = harness.run(annotates), harness.run(annotates)
    assert first["valid"]
    assert first["trace"] != second["trace"]


def test_nothing_is_sent_without_an_exporter(harness: nr.Harness) -> None:
    harness.run(forgives)
    backend = harness._backend
    assert backend is not None
    assert backend.thread.call(backend.reader.read_spans()).last == 0
