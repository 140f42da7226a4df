"""Has a model sum up the part of a history that does not fit any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
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
    """A message that stands for `before` and all of `fallen`, as far as a model wrote one.

    What is too much for one request is summed up in several, each with the summary so far. They
    count as the context's own: tokens, cost, spans.
    """
    summary = before
    for part in _parts(fallen, _room(window)):
        text = await _sum_up(cell, step, window.model or step.model, _told(summary, part))
        if text is None:
            break
        summary = developer_message(f"Summary of the conversation before this point:\n{text}")
    return None if summary is before else summary


async def _sum_up(cell: Cell, step: Any, model: str, told: str) -> str | None:
    """One request; a failure is a diagnostic, and nothing."""
    request = ModelRequest(
        model=model,
        instructions=INSTRUCTIONS,
        items=(user_message(told),),
        context_id=cell.ctx.id,
    )
    round_ = ModelRound(cell, step, model, quiet=True)
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
    return text or None


def _room(window: Window) -> int:
    """Characters of the part to sum up; the other half of the window is for the summary so far."""
    return 2 * int(min(window.token_budget - window.response_reserve, MAX_TOKENS))


def _parts(fallen: Sequence[Item], room: int) -> Iterator[list[str]]:
    part: list[str] = []
    used = 0
    for line in filter(None, map(_line, fallen)):
        if part and used + len(line) > room:
            yield part
            part, used = [], 0
        part.append(line)
        used += len(line)
    if part:
        yield part


def _told(before: Item | None, part: Sequence[str]) -> str:
    return "\n\n".join([*([] if before is None else [item_text(before)]), *part])


def _line(item: Item) -> str:
    if isinstance(item, FunctionCallItem):
        return f"[called {item.name}] {item.arguments[:MAX_PART]}"
    if isinstance(item, FunctionCallOutputItem):
        return f"[got] {item.output[:MAX_PART]}"
    text = item_text(item)
    role = getattr(item, "role", item.type)
    return f"{role}: {text[:MAX_PART]}" if text else ""
