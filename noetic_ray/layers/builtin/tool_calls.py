"""Shows what tools were called lately and how that went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetic_ray.errors import ConfigError
from noetic_ray.items import FunctionCallItem, FunctionCallOutputItem, Item
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope, check_layer
from noetic_ray.layers.builtin.rendering import clipped, tagged_lines
from noetic_ray.layers.hooks import RecallParams, StoreParams, Update
from noetic_ray.layers.provides import layer_data

ARGUMENTS, OUTPUT = 120, 160


class ToolCalls(ContextLayer[Any]):
    """Show the last `max_calls` tool calls of this context: arguments, outcome, output, clipped.

    `calls` are those, oldest first, as dicts of texts: `call_id`, `name`, `arguments`, `outcome`
    (ok, failed, or pending before there is an output) and `output`; `count` is how many there were
    in all. For agents whose history is cut short.

    Example: `Harness(..., layers=[nr.layers.history(10), nr.layers.tool_calls()])`.

    State: {"calls": [a dict each, oldest first], "count": how many there were}.
    """

    def __init__(
        self,
        max_calls: int = 20,
        *,
        id: str = "tool_calls",
        slot: float = slots.TOOL_CALLS,
        scope: Scope = "execution",
        budget: BudgetWish = None,
    ) -> None:
        if not isinstance(max_calls, int) or isinstance(max_calls, bool) or max_calls < 1:
            raise ConfigError(
                "INVALID_LAYER",
                f"max_calls of layer {id!r} is {max_calls!r}",
                "Give a whole number, at least 1.",
            )
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.max_calls = max_calls
        self.provides = {"calls": layer_data(_calls), "count": layer_data(_count)}
        check_layer(self)

    async def recall(self, params: RecallParams) -> str | None:
        """One line a call, the newest first."""
        lines = (
            f"- {call['name']}({call['arguments']}) {call['outcome']}: {call['output']}"
            for call in reversed(_calls(params.state))
        )
        return tagged_lines("tool_calls", lines, params.budget) or None

    async def store(self, params: StoreParams) -> Update | None:
        """Write down the calls of the step."""
        calls = _calls(params.state)
        made = _written(calls, params.new_items)
        if made is None:
            return None
        count = _count(params.state) + made
        return Update({"calls": calls[-self.max_calls :], "count": count})


def _calls(state: Any) -> list[dict[str, str]]:
    return [dict(call) for call in state["calls"]] if state else []


def _count(state: Any) -> int:
    return int(state["count"]) if state else 0


def _written(calls: list[dict[str, str]], items: Sequence[Item]) -> int | None:
    """Add calls and outputs to the list; how many calls are new, None when nothing happened."""
    pending = {call["call_id"]: call for call in calls if call["outcome"] == "pending"}
    made, ended = 0, 0
    for item in items:
        if isinstance(item, FunctionCallItem):
            call = _call(item)
            calls.append(call)
            pending[item.call_id] = call
            made += 1
        elif isinstance(item, FunctionCallOutputItem) and item.call_id in pending:
            call = pending.pop(item.call_id)
            call["outcome"] = "ok" if item.status == "completed" else "failed"
            call["output"] = clipped(item.output, OUTPUT)
            ended += 1
    return made if made or ended else None


def _call(item: FunctionCallItem) -> dict[str, str]:
    return {
        "call_id": item.call_id,
        "name": item.name,
        "arguments": clipped(item.arguments, ARGUMENTS),
        "outcome": "pending",
        "output": "",
    }
