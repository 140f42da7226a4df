"""A span of ours as an OpenTelemetry Span, and as the SDK's once it has ended."""

from __future__ import annotations

import enum
import os
import pickle
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from noetic_ray.engine.spans import context_span_id
from noetic_ray.tracing.export import readable, resource_for
from noetic_ray.tracing.otel import RecordSpan
from noetic_ray.tracing.records import CLIENT, FinishedSpan, SpanRecord, new_trace_id


class Colour(enum.StrEnum):
    RED = "red"


def open_span(**options: Any) -> tuple[RecordSpan, SpanRecord, list[FinishedSpan]]:
    ended: list[FinishedSpan] = []
    record = SpanRecord(ended.append, "work", new_trace_id(), 7, **options)
    return RecordSpan(record), record, ended


def test_a_span_has_the_ids_of_its_record() -> None:
    span, record, _ = open_span()
    context = span.get_span_context()
    assert (context.trace_id, context.span_id) == (record.trace_id, record.span_id)
    assert context.is_valid
    assert context.trace_flags.sampled


def test_spans_of_the_sdk_can_be_started_below_ours() -> None:
    span, record, _ = open_span()
    tracer = TracerProvider().get_tracer("mine")
    inner = tracer.start_span("inner", context=trace.set_span_in_context(span))
    assert inner.get_span_context().trace_id == record.trace_id
    assert inner.parent.span_id == record.span_id  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("text", "text"),
        (3, 3),
        (0.5, 0.5),
        (True, True),
        (b"raw", b"raw"),
        (["a", "b"], ("a", "b")),
        ((1, 2.5), (1, 2.5)),
        ([], ()),
        (Colour.RED, "red"),
        ([Colour.RED], ("red",)),
    ],
)
def test_attribute_values_are_kept_in_plain_types(given: Any, kept: Any) -> None:
    span, record, _ = open_span()
    span.set_attribute("key", given)
    assert record.attributes is not None
    found = record.attributes["key"]
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize("value", [object(), {"a": 1}, [object()], {1}, [None]])
def test_other_values_are_dropped_with_a_warning(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    span, record, _ = open_span()
    span.set_attribute("key", value)
    assert not record.attributes
    assert "'key' is dropped" in caplog.text


def test_none_is_no_attribute_and_no_reason_for_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    span, record, _ = open_span()
    span.set_attribute("key", None)
    assert not record.attributes
    assert not caplog.records


def test_nothing_changes_after_the_end() -> None:
    span, record, ended = open_span()
    span.end()
    span.set_attribute("a", 1)
    span.add_event("late")
    span.add_link(SpanContext(1, 2, is_remote=True))
    span.update_name("late")
    span.set_status(StatusCode.ERROR, "late")
    span.end()
    assert not span.is_recording()
    assert not ended
    record.close("completed")
    record.close("failed")
    (only,) = ended
    assert (only.name, only.status, only.events, only.links) == ("work", 0, (), ())
    assert only.attributes == {"noetic.outcome": "completed"}


def test_an_end_chosen_by_the_user_is_the_end() -> None:
    span, record, ended = open_span()
    span.end(record.start + 5)
    record.close("completed")
    assert ended[0].end == record.start + 5


def test_a_status_follows_the_rules_of_opentelemetry() -> None:
    span, record, _ = open_span()
    span.set_status(Status(StatusCode.ERROR, "why"))
    span.set_status(StatusCode.UNSET)
    assert (record.status, record.description) == (2, "why")
    span.set_status(StatusCode.OK)
    span.set_status(StatusCode.ERROR, "too late")
    assert (record.status, record.description) == (1, None)


def test_a_failure_is_status_error_with_reason_and_type() -> None:
    _, record, ended = open_span()
    record.close("failed", "broken", "ValueError")
    assert (ended[0].status, ended[0].description) == (2, "broken")
    assert ended[0].attributes == {"noetic.outcome": "failed", "error.type": "ValueError"}


def test_a_finished_span_becomes_one_of_the_sdk() -> None:
    span, record, ended = open_span(kind=CLIENT)
    span.add_link(SpanContext(11, 12, is_remote=True), {"why": "resumed"})
    span.add_event("e", {"n": 1}, 99)
    span.record_exception(KeyError("k"), {"more": True})
    record.close("completed")
    travelled = FinishedSpan(*pickle.loads(pickle.dumps(tuple(ended[0]))))
    made = readable(travelled, resource_for("agents"))
    assert (made.name, made.kind, made.parent.span_id) == ("work", SpanKind.CLIENT, 7)
    assert made.context.span_id == record.span_id
    (link,) = made.links
    assert (link.context.trace_id, link.context.span_id) == (11, 12)
    assert dict(link.attributes) == {"why": "resumed"}
    first, second = made.events
    assert (first.name, first.timestamp, dict(first.attributes)) == ("e", 99, {"n": 1})
    facts = dict(second.attributes)
    assert facts["exception.type"] == "KeyError"
    assert facts["more"] is True
    assert "KeyError: 'k'" in facts["exception.stacktrace"]
    assert made.resource.attributes["service.name"] == "agents"
    assert made.instrumentation_scope.name == "noetic_ray"
    made.to_json()


def test_a_service_named_by_the_environment_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,team=x")
    found = resource_for("ours").attributes
    assert (found["service.name"], found["team"]) == ("theirs", "x")


def test_the_span_id_of_a_context_follows_from_its_id() -> None:
    id = "0199e1a0-7b3c-7def-8123-456789abcdef"
    assert context_span_id(id) == 0x8123_4567_89AB_CDEF
    chosen = {context_span_id(name) for name in ("run-1", "run-2", "x" * 36)}
    assert len(chosen) == 3
    assert all(0 < each < 2**64 for each in chosen)
    assert context_span_id("run-1") in chosen


def test_a_forked_process_has_span_ids_of_its_own() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, str(SpanRecord(None, "", 1, 0).span_id).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = int(os.read(reader, 100))
    assert theirs != SpanRecord(None, "", 1, 0).span_id
    os.close(reader)
    os.close(writer)
