"""Has a model sum up the part of a history that does not fit any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.layers.hooks import diagnose, hook_failed
from noetic_ray.engine.model_round import ModelRound
from noetic_ray.engine.tasks import shared_tasks
from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    developer_message,
    item_text,
    last_assistant_text,
    user_message,
)
from noetic_ray.layers.window import Window
from noetic_ray.models.protocol import ModelRequest

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

INSTRUCTIONS = (
    "You keep the memory of a conversation that has grown too long. Write down, in plain prose and"
    " as briefly as you can, what somebody who goes on with it must know: the task, decisions,"
    " facts and names, results of tools, and what is still open. Add nothing."
)
MAX_PART = 4_000
MAX_TOKENS = 1_000_000


async def summarize(
    cell: Cell, step: Any, window: Window, before: Item | None, fallen: Sequence[Item]
) -> Item | None:
    """A message that stands for `before` and `fallen`; None when the model gave none.

    The call counts as the context's own: its tokens, its cost, its span.
    """
    request = ModelRequest(
        model=window.model or step.model,
        instructions=INSTRUCTIONS,
        items=(user_message(_told(before, fallen, _most(window))),),
        context_id=cell.ctx.id,
    )
    round_ = ModelRound(cell, step, request.model, quiet=True)
    try:
        with shared_tasks():
            reply = await cell.rt.config.model.generate(request, round_)
    except BaseException as error:
        round_.cut(error, keep_text=False)
        if not hook_failed(cell, error) or isinstance(error, asyncio.CancelledError):
            raise
        diagnose(cell, "window", "summarize", error)
        return None
    round_.completed(reply)
    text = last_assistant_text(reply.items)
    if not text:
        diagnose(cell, "window", "summarize", ValueError("the model wrote no summary"))
        return None
    return developer_message(f"Summary of the conversation before this point:\n{text}")


def _most(window: Window) -> int:
    """Characters that fit into the window, as far as it has a limit."""
    return 4 * int(min(window.token_budget - window.response_reserve, MAX_TOKENS))


def _told(before: Item | None, fallen: Sequence[Item], most: int) -> str:
    """The text to sum up, of at most so many characters."""
    head = "" if before is None else item_text(before)
    lines: list[str] = []
    room = most - len(head)
    for item in reversed(fallen):  # where all is too much the newest part is worth more
        line = _line(item)
        room -= len(line) + 2
        if room < 0:
            break
        if line:
            lines.append(line)
    return "\n\n".join([*([head] if head else []), *reversed(lines)])


def _line(item: Item) -> str:
    if isinstance(item, FunctionCallItem):
        return f"[called {item.name}] {item.arguments[:MAX_PART]}"
    if isinstance(item, FunctionCallOutputItem):
        return f"[got] {item.output[:MAX_PART]}"
    text = item_text(item)
    role = getattr(item, "role", item.type)
    return f"{role}: {text[:MAX_PART]}" if text else ""
