"""Reading what an in-memory exporter got."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Trace:
    """The spans of one run."""

    def __init__(self, spans: Iterable[ReadableSpan], run_id: str) -> None:
        found = list(spans)
        traces = {s.context.trace_id for s in found if attributes(s).get("noetic.run.id") == run_id}
        assert len(traces) == 1, f"run {run_id} is in {len(traces)} traces"
        (self.trace_id,) = traces
        self.spans = [span for span in found if span.context.trace_id == self.trace_id]
        ids = [span.context.span_id for span in self.spans]
        assert len(ids) == len(set(ids)), "a span was exported twice"

    def one(self, name: str) -> ReadableSpan:
        """The only span of that name."""
        (span,) = self.all(name)
        return span

    def all(self, name: str) -> list[ReadableSpan]:
        """The spans of that name in order of their start."""
        return sorted((s for s in self.spans if s.name == name), key=lambda s: s.start_time or 0)

    def roots(self) -> list[ReadableSpan]:
        """Spans without a parent in this trace."""
        ids = {span.context.span_id for span in self.spans}
        return [s for s in self.spans if s.parent is None or s.parent.span_id not in ids]

    def tree(self) -> list[str]:
        """The names, indented by depth; siblings in order of their names."""
        return list(self._lines(self.roots(), 0))

    def _lines(self, spans: Sequence[ReadableSpan], depth: int) -> Iterable[str]:
        for span in sorted(spans, key=lambda s: (s.name, s.start_time or 0)):
            yield "  " * depth + span.name
            inside = [
                s for s in self.spans if s.parent and s.parent.span_id == span.context.span_id
            ]
            yield from self._lines(inside, depth + 1)


def trace_of(exporter: InMemorySpanExporter, run_id: str) -> Trace:
    """What the exporter has of a run."""
    return Trace(exporter.get_finished_spans(), run_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes as a dict."""
    return dict(span.attributes or {})
