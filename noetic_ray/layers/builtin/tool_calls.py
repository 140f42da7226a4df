"""Shows what tools were called lately and how that went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetic_ray.errors import ConfigError
from noetic_ray.items import FunctionCallItem, FunctionCallOutputItem, Item
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer
from noetic_ray.layers.builtin.rendering import clipped, tagged_lines
from noetic_ray.layers.hooks import RecallParams, StoreParams, Update
from noetic_ray.layers.provides import layer_data

ARGUMENTS, OUTPUT = 120, 160


class ToolCalls(ContextLayer[Any]):
    """State: a list of calls, oldest first."""

    scope = "execution"

    def __init__(
        self,
        max_calls: int = 20,
        *,
        id: str = "tool_calls",
        slot: float = slots.TOOL_CALLS,
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
        self.budget = budget
        self.max_calls = max_calls
        self.provides = {"calls": layer_data(_calls), "count": layer_data(_count)}

    async def recall(self, params: RecallParams) -> str | None:
        """One line a call, the newest first."""
        lines = (
            f"- {call['tool']}({call['arguments']}) {call['outcome']}: {call['output']}"
            for call in reversed(_calls(params.state))
        )
        return tagged_lines("tool_calls", lines, params.budget) or None

    async def store(self, params: StoreParams) -> Update | None:
        """Write down the calls of the step."""
        made = _made(params.new_items)
        if not made:
            return None
        count = _count(params.state) + len(made)
        calls = [*_calls(params.state), *made][-self.max_calls :]
        return Update({"calls": calls, "count": count})


def tool_calls(
    max_calls: int = 20,
    *,
    id: str = "tool_calls",
    slot: float = slots.TOOL_CALLS,
    budget: BudgetWish = None,
) -> ToolCalls:
    """Show the last `max_calls` tool calls of this context: arguments, outcome, output, clipped.

    `calls` are those, oldest first, as dicts (`tool`, `arguments`, `outcome` ok or failed,
    `output`); `count` is how many there were in all. For agents whose history is cut short.

    Example: `Harness(..., layers=[nr.layers.history(10), nr.layers.tool_calls()])`.
    """
    return ToolCalls(max_calls, id=id, slot=slot, budget=budget)


def _calls(state: Any) -> list[dict[str, str]]:
    return list(state["calls"]) if state else []


def _count(state: Any) -> int:
    return int(state["count"]) if state else 0


def _made(items: Sequence[Item]) -> list[dict[str, str]]:
    outputs = {item.call_id: item for item in items if isinstance(item, FunctionCallOutputItem)}
    made = []
    for item in items:
        if isinstance(item, FunctionCallItem) and item.call_id in outputs:
            output = outputs[item.call_id]
            made.append(
                {
                    "tool": item.name,
                    "arguments": clipped(item.arguments, ARGUMENTS),
                    "outcome": "ok" if output.status == "completed" else "failed",
                    "output": clipped(output.output, OUTPUT),
                }
            )
    return made
