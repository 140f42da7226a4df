"""Runs one step in a context: the checks, the record, the span and the hooks around each kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from noetic_ray.context import Context, Frame, current_frame
from noetic_ray.engine import assistant, code, flow, model_call, parallel, tool_calls
from noetic_ray.engine.cell import Cell
from noetic_ray.engine.children import spawn
from noetic_ray.engine.layers.remains import tear_down
from noetic_ray.engine.layers.stack import enter
from noetic_ray.engine.outcome import Completed, translate
from noetic_ray.engine.spans import close_cut, step_span
from noetic_ray.engine.window.preview import preview
from noetic_ray.errors import Cancelled, ErrorRecord, NoeticError, StepFailed, to_wire

MAX_DEPTH = 64

Handler = Callable[[Cell, Any, Any], Awaitable[Any]]


async def _spawn(cell: Cell, step: Any, input: Any) -> Any:
    return await spawn(cell, step.child, input, step.timeout, step.placement, layers=step.layers)


async def _with_context(cell: Cell, step: Any, input: Any) -> Any:
    """Run the child in this context, with more layers active inside it."""
    await enter(cell, step.layers)
    return await cell.rt.dispatch(cell.ctx, step.child, input)


async def _tear_down(cell: Cell, step: Any, input: Any) -> None:
    """Run the last hooks of what aborted contexts left behind."""
    await tear_down(cell, input)


HANDLERS: dict[str, Handler] = {
    "run_code": code.run_code,
    "call_model": model_call.call_model,
    "assistant": assistant.assistant,
    "delegated": assistant.delegated,
    "invoke_tool": tool_calls.invoke_tool,
    "conditional": flow.conditional,
    "sequence": flow.sequence,
    "loop": flow.loop,
    "every": flow.every,
    "in_parallel": parallel.in_parallel,
    "map": parallel.map_inputs,
    "spawn": _spawn,
    "with_context": _with_context,
    "preview": preview,
    "tear_down": _tear_down,
}


async def dispatch(ctx: Context, step: Any, input: Any) -> Any:
    """Run `step` in `ctx` and return its output."""
    cell: Cell = ctx._services.cell  # type: ignore[attr-defined]
    _admit(cell, step)
    outer = current_frame.get()
    if outer is None or outer.context is not ctx:
        outer = ctx._root_frame
    assert outer is not None
    ctx.step_count += 1
    frame = _open_frame(cell, step, outer)
    token = current_frame.set(frame)
    try:
        output = await _run(cell, step, input)
        if ctx.aborted:
            raise Cancelled(ctx.abort_reason)
    except BaseException as error:
        raised = translate(ctx, step.id, error)
        _failed(cell, step, frame, raised)
        if raised is error:
            raise
        raise raised from None
    finally:
        current_frame.reset(token)
    _completed(cell, step, frame)
    if ctx.completed and outer is not ctx._root_frame:
        raise Completed
    return output


def _admit(cell: Cell, step: Any) -> None:
    ctx = cell.ctx
    if ctx.depth >= MAX_DEPTH:
        reason = RecursionError(f"contexts may be nested {MAX_DEPTH} deep")
        raise StepFailed(step.id, ErrorRecord.of(reason), True)
    if ctx.aborted or cell.closed:
        raise Cancelled(ctx.abort_reason)
    if ctx.completed:
        raise Completed


def _open_frame(cell: Cell, step: Any, outer: Frame) -> Frame:
    span = step_span(cell, step, outer.span)
    frame = Frame(cell.ctx, step.id, outer.next_path(step.id), span, outer.layers)
    if _speaks(step):
        cell.emit("step.started", {"step": step.id, "kind": step.kind, "path": frame.path})
    return frame


def _speaks(step: Any) -> bool:
    """Whether a step's own events are wanted; only model steps can leave them out."""
    return getattr(step, "emit", True)


async def _run(cell: Cell, step: Any, input: Any) -> Any:
    config = cell.rt.config
    if config.before_step is not None:
        await flow.callback(cell, config.before_step, step, cell.ctx)
    output = await HANDLERS[step.kind](cell, step, input)
    if config.after_step is not None:
        await flow.callback(cell, config.after_step, step, output, cell.ctx)
    return output


def _completed(cell: Cell, step: Any, frame: Frame) -> None:
    if _speaks(step):
        cell.emit("step.completed", {"step": step.id, "path": frame.path})
    frame.span.close("completed")


def _failed(cell: Cell, step: Any, frame: Frame, error: BaseException) -> None:
    if isinstance(error, Completed):
        _completed(cell, step, frame)
        return
    if _speaks(step):
        data: dict[str, Any] = {"step": step.id, "path": frame.path}
        data["error"] = to_wire(error) if isinstance(error, NoeticError) else {"kind": "cancelled"}
        cell.emit("step.failed", data)
    close_cut(cell, frame.span, error)
