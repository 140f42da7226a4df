"""The spans of the engine's work: one per context, step, model call and tool call.

Attributes are collected only when somebody exports them.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noetic_ray.context import current_frame
from noetic_ray.errors import Cancelled, StepFailed
from noetic_ray.tracing.genai import request_attributes
from noetic_ray.tracing.records import CLIENT, SpanRecord
from noetic_ray.tracing.values import clean_value

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.spec import ContextSpec
    from noetic_ray.models.protocol import ModelReply
    from noetic_ray.tools import Tool

_UUID_LENGTH = 36
_BAD_ARGUMENTS = "ToolArgumentsError"


def context_span(sink: Any, spec: ContextSpec) -> SpanRecord:
    """A context's span. Its id follows from the context's, so a parent can report a lost child."""
    scope, step_id = spec.scope, spec.step.id
    span = SpanRecord(
        sink,
        f"invoke_agent {step_id}",
        scope.trace_id,
        spec.parent_span,
        span_id=context_span_id(spec.id),
    )
    if sink is not None:
        span.attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": spec.id,
            "gen_ai.agent.name": step_id,
            "gen_ai.conversation.id": spec.thread_id,
            "noetic.run.id": scope.run_id,
            "noetic.context.id": spec.id,
            "noetic.step.id": step_id,
        }
    return span


def context_span_id(context_id: str) -> int:
    """The last 64 bits of a UUIDv7, 62 of which are random; of another id a hash."""
    if len(context_id) == _UUID_LENGTH:
        try:
            return int(context_id[19:23] + context_id[24:], 16) or 1
        except ValueError:
            pass  # a run id somebody chose
    return int.from_bytes(blake2b(context_id.encode(), digest_size=8).digest()) or 1


def step_span(cell: Cell, step: Any, parent: SpanRecord) -> SpanRecord:
    """The span of one dispatch."""
    sink, scope = cell.rt.span_sink, cell.spec.scope
    span = SpanRecord(sink, f"step {step.id}", scope.trace_id, parent.span_id)
    if sink is not None:
        span.attributes = {
            "noetic.run.id": scope.run_id,
            "noetic.context.id": cell.ctx.id,
            "noetic.step.id": step.id,
            "noetic.step.kind": step.kind,
        }
    return span


def chat_span(cell: Cell, step: Any, model: str) -> SpanRecord:
    """The span of one round of a model call."""
    rt = cell.rt
    sink = rt.span_sink
    span = SpanRecord(sink, f"chat {model}", cell.spec.scope.trace_id, _parent_id(cell), CLIENT)
    if sink is not None:
        known = rt.span_facts.get(step)
        if known is None:
            known = rt.span_facts[step] = request_attributes(rt.config.model, step)
        span.attributes = {
            **known,
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": cell.ctx.thread_id,
            "noetic.run.id": cell.spec.scope.run_id,
            "noetic.context.id": cell.ctx.id,
        }
    return span


def close_chat(span: SpanRecord, reply: ModelReply) -> None:
    """A round was answered."""
    usage = reply.usage
    if usage is not None:
        span.set("gen_ai.usage.input_tokens", usage.input_tokens)
        span.set("gen_ai.usage.output_tokens", usage.output_tokens)
        span.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
        span.set("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)
    _put(span, "gen_ai.response.model", reply.model)
    _put(span, "gen_ai.response.id", reply.response_id)
    _put(span, "gen_ai.response.finish_reasons", reply.finish_reasons or None)
    _put(span, "noetic.cost", reply.cost)
    span.close("completed")


def _put(span: SpanRecord, key: str, value: Any) -> None:
    """Set what a provider said, which may be anything."""
    if value is not None:
        span.set(key, clean_value(key, value))


def tool_span(cell: Cell, name: str, call_id: str | None, tool: Tool | None) -> SpanRecord:
    """The span of one tool call: who was called, never with what."""
    sink, scope = cell.rt.span_sink, cell.spec.scope
    span = SpanRecord(sink, f"execute_tool {name}", scope.trace_id, _parent_id(cell))
    if sink is not None:
        span.attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "noetic.run.id": scope.run_id,
            "noetic.context.id": cell.ctx.id,
        }
        span.set("gen_ai.tool.call.id", call_id)
        if tool is not None:
            span.set("gen_ai.tool.description", tool.description or None)
    return span


def close_failed(span: SpanRecord, error: BaseException, outcome: str = "failed") -> None:
    """What a span was for did not succeed: `failed`, `cancelled` or `lost`."""
    reason, type_ = failure(error)
    span.close(outcome, reason, type_)


def close_cut(cell: Cell, span: SpanRecord, error: BaseException) -> None:
    """Like `close_failed`, but an abort of the context is what counts, with its reason."""
    if cell.ctx.aborted:
        close_failed(span, Cancelled(cell.ctx.abort_reason), "cancelled")
    elif isinstance(error, asyncio.CancelledError | GeneratorExit):
        close_failed(span, error, "cancelled")
    else:
        close_failed(span, error)


def failure(error: BaseException) -> tuple[str, str]:
    """(what to say, type) of an error. The arguments a model wrote for a tool are not repeated."""
    if isinstance(error, Cancelled):
        return error.reason, "Cancelled"
    type_ = error.cause.type if isinstance(error, StepFailed) else type(error).__name__
    said = str(error) or type_
    if type_.endswith(_BAD_ARGUMENTS):
        said = said.partition("\nReceived: ")[0]
    return said, type_


def _parent_id(cell: Cell) -> int:
    frame = current_frame.get()
    span: SpanRecord = cell.span if frame is None else frame.span
    return span.span_id
