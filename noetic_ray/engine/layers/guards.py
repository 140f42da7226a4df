"""Layers that judge: tool calls before they run, answers before they are logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.layers.hooks import FAILED, diagnose, keep_state, try_hook
from noetic_ray.engine.layers.stack import Active, active, those_with
from noetic_ray.errors import NoeticError
from noetic_ray.items import FunctionCallItem, FunctionCallOutputItem, Item
from noetic_ray.items import parse_item as as_item
from noetic_ray.layers.hooks import (
    UNSET,
    Allow,
    Appended,
    AppendParams,
    Deny,
    Guide,
    Judgement,
    ModelCallParams,
    Response,
    ToolCallParams,
)
from noetic_ray.log import ItemsView

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.layers.entry import LayerEntry

_ALLOWED = Allow()


async def judge_call(cell: Cell, call: FunctionCallItem, arguments: Mapping[str, Any]) -> Judgement:
    """The first denial; else what was advised, joined by newlines; else Allow."""
    ctx = cell.ctx

    def params(entry: LayerEntry) -> ToolCallParams:
        return ToolCallParams(ctx, entry.storage, entry.state, call, arguments)

    return await _judge(cell, "before_tool_call", params)


async def judge_answer(cell: Cell, response: Response) -> Judgement:
    """The same for an answer."""
    ctx = cell.ctx

    def params(entry: LayerEntry) -> ModelCallParams:
        return ModelCallParams(ctx, entry.storage, entry.state, response)

    return await _judge(cell, "after_model_call", params)


async def _judge(cell: Cell, hook: str, params: Callable[[LayerEntry], Any]) -> Judgement:
    advice: list[str] = []
    for entry in those_with(active(cell), hook):
        said = await try_hook(
            cell,
            entry,
            hook,
            lambda entry=entry: params(entry),  # type: ignore[misc]
            Allow,
            Guide,
            Deny,
        )
        if said is FAILED and hook == "before_tool_call" and _fails_closed(entry):
            return Deny(f"layer {entry.layer.id} could not judge the call")
        if isinstance(said, Deny):
            return said
        if isinstance(said, Guide):
            advice.append(said.text)
    return Guide("\n".join(advice)) if advice else _ALLOWED


def _fails_closed(entry: LayerEntry) -> bool:
    return entry.layer.on_before_tool_call_error == "deny"


class Admitted:
    """What is to be logged, and the layers whose texts have to be made again."""

    __slots__ = ("again", "items")

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.again: set[LayerEntry] = set()


async def admit(cell: Cell, items: Sequence[Item]) -> Admitted:
    """Run items through `on_item_append` in slot order; it ends where nothing is left."""
    admitted = Admitted(items)
    here = active(cell)
    for entry in those_with(here, "on_item_append"):
        if not admitted.items:
            break
        await _admit_by(cell, here, entry, admitted)
    return admitted


async def _admit_by(cell: Cell, here: Active, entry: LayerEntry, admitted: Admitted) -> None:
    ctx, items = cell.ctx, tuple(admitted.items)

    def params() -> AppendParams:
        return AppendParams(ctx, entry.storage, entry.state, items)

    answer = await try_hook(cell, entry, "on_item_append", params, Appended, list, tuple, ItemsView)
    if answer is None or answer is FAILED:
        return
    if not isinstance(answer, Appended):
        answer = Appended(answer)
    try:
        admitted.items = [as_item(item) for item in answer.items]
    except (NoeticError, TypeError) as error:
        diagnose(cell, entry.layer.id, "on_item_append", error)
        return
    if answer.state is not UNSET:
        keep_state(cell, entry, answer.state)
    if answer.rerender is not None:
        admitted.again |= _reach(here, entry, answer.rerender)


def _reach(here: Active, entry: LayerEntry, rerender: str) -> set[LayerEntry]:
    if rerender == "self":
        return {entry}
    slot = entry.layer.slot
    return {each for each in here if rerender == "all" or each.layer.slot >= slot}


def outputs_complete(before: Sequence[Item], after: Sequence[Item]) -> bool:
    """Whether every call that had an output still has one."""

    def ids(items: Sequence[Item]) -> set[str]:
        return {each.call_id for each in items if isinstance(each, FunctionCallOutputItem)}

    return ids(before) <= ids(after)
