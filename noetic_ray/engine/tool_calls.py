"""The tool calls of a round, and a tool run as a step.

The calls of one round run side by side; their outputs are logged in call order when all have
ended. A call that is unknown, malformed or fails gets an error output and the conversation goes
on. When the context is aborted meanwhile, finished calls keep their output and the others get one
that says they were cancelled, so that the log stays usable.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from noetic_ray.canonical import to_json_bytes
from noetic_ray.context import Frame, current_frame
from noetic_ray.engine.approvals import ask_approval
from noetic_ray.engine.cell import Cell
from noetic_ray.engine.children import spawn
from noetic_ray.engine.code import in_thread
from noetic_ray.engine.layers.functions import layer_tools
from noetic_ray.engine.layers.guards import admit, judge_call, outputs_complete
from noetic_ray.engine.layers.hooks import diagnose
from noetic_ray.engine.layers.stack import active, those_with
from noetic_ray.engine.mcp_tools import mcp_tools_of
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.spans import close_cut, close_failed, tool_span
from noetic_ray.engine.tasks import being_cancelled, engine_task
from noetic_ray.errors import (
    ErrorRecord,
    NoeticError,
    SteeringDenied,
    StepFailed,
    to_wire,
)
from noetic_ray.items import FunctionCallItem, FunctionCallOutputItem, Item, Status
from noetic_ray.layers.hooks import Deny, Guide
from noetic_ray.mcp.tools import McpTools
from noetic_ray.models.protocol import ToolSpec
from noetic_ray.steps.assistant import AssistantReply
from noetic_ray.tools import StepTool, Tool, ToolArgumentsError, tool_output, wire_names
from noetic_ray.tracing.records import SpanRecord
from noetic_ray.usage import estimate_tokens

if TYPE_CHECKING:
    from noetic_ray.engine.layers.entry import LayerEntry
    from noetic_ray.layers.base import ContextLayer

CANCELLED_OUTPUT = "cancelled: the call was cut off before it finished"


class Toolbox:
    """A step's tools by the names a model sees."""

    __slots__ = ("_tokens", "by_name", "layers", "specs")

    def __init__(self, tools: Iterable[Tool], layers: tuple[Any, ...] = ()) -> None:
        self.layers = layers
        self._tokens: int | None = None
        self.by_name = wire_names(tools)
        self.specs: Sequence[ToolSpec] = tuple(
            ToolSpec(name, tool.description, tool.parameters) for name, tool in self.by_name.items()
        )

    @classmethod
    async def ready(cls, cell: Cell, step: Any) -> Toolbox:
        """The box for a step, the tools of MCP servers in it."""
        tools = cell.rt.config.tools if step.tools is None else step.tools
        return cls.of(cell, step, await mcp_tools_of(cell, tools))

    @classmethod
    def of(cls, cell: Cell, step: Any, of_servers: tuple[Tool, ...] = ()) -> Toolbox:
        """The box for a step, made once per process."""
        boxes: WeakKeyDictionary[Any, dict[tuple[int, ...], Toolbox]] = cell.rt.toolboxes
        of_step = boxes.get(step)
        if of_step is None:
            of_step = boxes[step] = {}
        layers = _offering(cell, step)
        key = tuple(map(id, (*layers, *of_servers)))
        box = of_step.get(key)
        if box is None:
            tools = cell.rt.config.tools if step.tools is None else step.tools
            own = (tool for tool in tools if not isinstance(tool, McpTools))
            box = of_step[key] = cls((*own, *layer_tools(layers), *of_servers), layers)
        return box

    @property
    def tokens(self) -> int:
        """What the tools cost in a request, an estimate."""
        if self._tokens is None:
            self._tokens = sum(
                estimate_tokens(to_json_bytes(_sent(spec)).decode()) for spec in self.specs
            )
        return self._tokens

    def find(self, name: str) -> Tool | None:
        """The tool a call means; its own name is accepted beside the wire name."""
        tool = self.by_name.get(name)
        if tool is not None:
            return tool
        return next((each for each in self.by_name.values() if each.name == name), None)


def _sent(spec: ToolSpec) -> tuple[str, str, Any]:
    return spec.name, spec.description, spec.parameters


def _offering(cell: Cell, step: Any) -> tuple[ContextLayer[Any], ...]:
    """The active layers whose functions a step offers."""
    entries = active(cell)
    wanted = step.layer_tools
    if not entries or wanted is None:
        return ()
    live = (entry.layer for entry in entries if entry.live and entry.layer.provides)
    return tuple(layer for layer in live if not wanted or layer.id in wanted)


class _Ended(NamedTuple):
    output: str
    status: Status = "completed"


async def run_calls(
    cell: Cell, step: Any, toolbox: Toolbox, calls: Sequence[FunctionCallItem]
) -> set[LayerEntry]:
    """Run the calls of a round and log their outputs in call order.

    Returns the layers whose texts have to be made again.
    """
    ended: list[_Ended | None] = [None] * len(calls)

    async def one(index: int) -> None:
        ended[index] = await _call(cell, step, toolbox, calls[index])

    try:
        if len(calls) == 1:
            await one(0)
        else:
            await _side_by_side(cell, [one(i) for i in range(len(calls))])
    except BaseException:
        if not cell.closed:
            _log_outputs(cell, calls, ended)
        raise
    return await _admit_outputs(cell, calls, ended)


async def _admit_outputs(
    cell: Cell, calls: Sequence[FunctionCallItem], ended: Sequence[_Ended | None]
) -> set[LayerEntry]:
    """Log the outputs as the layers leave them; each call keeps its output."""
    outputs = _outputs(calls, ended)
    items: Sequence[Item] = outputs
    again: set[LayerEntry] = set()
    try:
        admitted = await admit(cell, outputs)
        again = admitted.again
        if outputs_complete(outputs, admitted.items):
            items = admitted.items
        else:
            error = ValueError("an output of a tool call was left out; all were logged as they are")
            diagnose(cell, "layers", "on_item_append", error)
    finally:
        if not cell.closed:
            for item in items:
                cell.ctx.item_log.append(item)
    return again


def leave_calls(cell: Cell, calls: Sequence[FunctionCallItem], said: str) -> None:
    """Log why calls were not run, so that each has its output."""
    if calls:
        _log_outputs(cell, calls, [_Ended(said, "failed")] * len(calls))


def _log_outputs(
    cell: Cell, calls: Sequence[FunctionCallItem], ended: Sequence[_Ended | None]
) -> None:
    for item in _outputs(calls, ended):
        cell.ctx.item_log.append(item)


def _outputs(
    calls: Sequence[FunctionCallItem], ended: Sequence[_Ended | None]
) -> list[FunctionCallOutputItem]:
    items = []
    for call, end in zip(calls, ended, strict=True):
        output, status = end or _Ended(CANCELLED_OUTPUT, "incomplete")
        item = FunctionCallOutputItem(call_id=call.call_id, output=output, status=status)
        items.append(item)
    return items


async def _side_by_side(cell: Cell, calls: Sequence[Any]) -> None:
    """Run coroutines as tasks of the context; none outlives this call."""
    tasks = [engine_task(cell.rt.loop, call) for call in calls]
    for task in tasks:
        cell.adopt(task)
    try:
        await asyncio.wait(tasks)
    finally:
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        while left:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError:
                for task in left:
                    task.cancel()
            left = [task for task in left if not task.done()]
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            raise task.exception()  # type: ignore[misc]


async def _call(cell: Cell, step: Any, toolbox: Toolbox, call: FunctionCallItem) -> _Ended:
    tool = toolbox.find(call.name)
    span = tool_span(cell, call.name, call.call_id, tool)
    if step.emit:
        cell.emit("tool.started", {"call_id": call.call_id, "tool": call.name})
    try:
        if tool is None:
            known = ", ".join(toolbox.by_name) or "none"
            return _error(cell, step, call, span, f"no tool named {call.name!r}; known: {known}")
        if call.status == "incomplete":
            return _error(cell, step, call, span, "the call was cut off and not run; ask again")
        try:
            arguments = tool.validate(tool.parse(call.arguments))
        except ToolArgumentsError as error:
            return _error(cell, step, call, span, str(error), error)
        refusal = await _refused(cell, tool, call, arguments)
        if refusal is not None:
            return _error(cell, step, call, span, refusal.guidance or str(refusal), refusal)
        if tool.needs_approval:
            await ask_approval(cell, tool.name, arguments)
        output = tool_output(await _perform(cell, tool, arguments, call.call_id, span))
    except BaseException as error:
        return _failed(cell, step, call, span, error)
    span.close("completed")
    if step.emit:
        cell.emit("tool.completed", {"call_id": call.call_id, "tool": call.name})
    return _Ended(output)


async def _refused(
    cell: Cell, tool: Tool, call: FunctionCallItem, arguments: Mapping[str, Any]
) -> SteeringDenied | None:
    """Why the layers do not let a call pass, if they do not; they see the tool's own name."""
    if not those_with(active(cell), "before_tool_call"):
        return None
    known = call if call.name == tool.name else call.model_copy(update={"name": tool.name})
    verdict = await judge_call(cell, known, arguments)
    return SteeringDenied(verdict.text) if isinstance(verdict, Deny | Guide) else None


def _failed(
    cell: Cell, step: Any, call: FunctionCallItem, span: SpanRecord, error: BaseException
) -> _Ended:
    """A tool's own failure is the model's business; an abort or completion is the context's."""
    stopping = cell.ctx.aborted or isinstance(error, (Completed, GeneratorExit))
    if stopping or (isinstance(error, asyncio.CancelledError) and being_cancelled()):
        if isinstance(error, Completed):
            span.close("completed")
        else:
            close_cut(cell, span, error)
        raise error
    said = str(error) if isinstance(error, NoeticError) else f"{type(error).__name__}: {error}"
    return _error(cell, step, call, span, said, error)


def _error(
    cell: Cell,
    step: Any,
    call: FunctionCallItem,
    span: SpanRecord,
    said: str,
    error: BaseException | None = None,
) -> _Ended:
    if error is None:
        span.close("failed", said, "UnknownTool")
    else:
        close_failed(span, error)
    if step.emit:
        data = {"call_id": call.call_id, "tool": call.name, "error": _record(said, error)}
        cell.emit("tool.failed", data)
    return _Ended(f"error: {said}", "failed")


def _record(said: str, error: BaseException | None) -> dict[str, Any]:
    if isinstance(error, NoeticError):
        return to_wire(error)
    if error is not None:
        record = ErrorRecord.of(error)
        return {"type": record.type, "message": record.message, "traceback": record.traceback}
    return {"type": "UnknownTool", "message": said}


async def _perform(
    cell: Cell, tool: Tool, arguments: dict[str, Any], key: str, span: SpanRecord
) -> Any:
    """Run a tool's function, or the agent behind it in a child context."""
    outer = current_frame.get() or cell.ctx._root_frame
    assert outer is not None
    path = f"{outer.path}/{tool.name}@{key}"
    frame = Frame(cell.ctx, outer.step_id, path, span, outer.layers)
    token = current_frame.set(frame)
    try:
        if isinstance(tool, StepTool):
            output = await spawn(cell, tool.step, arguments["input"], path=frame.path)
            return output.text if isinstance(output, AssistantReply) else output
        if tool.is_async:
            return await tool.invoke(arguments, cell.ctx)
        value = await in_thread(cell, tool.invoke, arguments, cell.ctx)
        return await value if inspect.isawaitable(value) else value
    finally:
        current_frame.reset(token)


async def invoke_tool(cell: Cell, step: Any, input: Any) -> Any:
    """A tool as a step: preset arguments win over the input, and its errors are raised."""
    tool: Tool = step.tool
    arguments = _arguments(step, input)
    span = tool_span(cell, tool.name, None, tool)
    try:
        kwargs = tool.validate(arguments)
        written = to_json_bytes(arguments).decode()
        call = FunctionCallItem(call_id="0", name=tool.name, arguments=written)
        refusal = await _refused(cell, tool, call, kwargs)
        if refusal is not None:
            raise refusal
        if tool.needs_approval:
            await ask_approval(cell, tool.name, kwargs)
        output = await _perform(cell, tool, kwargs, "0", span)
    except BaseException as error:
        if isinstance(error, Completed):
            span.close("completed")
        else:
            close_cut(cell, span, error)
        raise
    span.close("completed")
    return output


def _arguments(step: Any, input: Any) -> dict[str, Any]:
    if step.args is not None:
        return dict(step.args)
    if input is None:
        return {}
    if isinstance(input, dict):
        return input
    if hasattr(input, "model_dump"):
        return dict(input.model_dump())
    error = TypeError(f"a tool takes its arguments as a dict, not {type(input).__name__}")
    raise StepFailed(step.id, ErrorRecord.of(error), False)
