"""Remembers how earlier executions went, and shows those that are like the task at hand."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel, Field

from noetic_ray.items import FunctionCallItem, Item, MessageItem, item_text, last_assistant_text
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope, check_layer
from noetic_ray.layers.builtin.calling import called
from noetic_ray.layers.builtin.embedding import Embed
from noetic_ray.layers.builtin.recollection import Recollection
from noetic_ray.layers.builtin.rendering import clipped, tagged_lines
from noetic_ray.layers.builtin.semantic_recall import (
    Search,
    check_counts,
    check_embed,
    check_score,
)
from noetic_ray.layers.hooks import CompleteParams, InitParams, RecallParams
from noetic_ray.layers.provides import layer_data, layer_function
from noetic_ray.signatures import check_callback

Summarize: TypeAlias = "Callable[[CompleteParams], str | Awaitable[str]]"
INPUT, ANSWER = 300, 500


class Note(BaseModel):
    """What to remember."""

    text: str = Field(min_length=1)


class Episodes(Recollection):
    """`since` is where in the log this execution began, or got the layer."""

    since = 0


class Episodic(ContextLayer[Any]):
    """Remember each finished execution as an episode, and show the `top_k` most like the question.

    An episode has `input`, the first thing the user said in it, `outcome`, `answer`, `tools`,
    `time` (seconds since 1970) and `text`, which `summarize(params)`, sync or async, may write; an
    execution that said nothing is none. `embed` as for `semantic_recall`. Of more than
    `max_episodes` the oldest go. Aborted executions are not remembered.
    `search(query=..., top_k=...)` asks from code, `add(text=...)` keeps a note among the episodes,
    `size` counts.

    Example: `nr.layers.episodic()` with `run(..., resource_id="user-7")`.

    State: what this context has read of the episodes; the episodes are in the storage.
    """

    def __init__(
        self,
        embed: Embed | None = None,
        *,
        id: str = "episodic",
        slot: float = slots.EPISODIC,
        scope: Scope = "resource",
        budget: BudgetWish = (0, 1500),
        top_k: int = 3,
        min_score: float = 0.2,
        summarize: Summarize | None = None,
        max_episodes: int = 500,
    ) -> None:
        check_embed(id, embed)
        check_counts(id, top_k=top_k, max_episodes=max_episodes)
        check_score(id, min_score)
        if summarize is not None:
            check_callback(f"summarize of layer {id!r}", summarize, "params")
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.embed = embed
        self.top_k = top_k
        self.min_score = min_score
        self.summarize = summarize
        self.max_episodes = max_episodes
        self.provides = {
            "size": layer_data(_size),
            "search": layer_function(
                self._search, description="Search earlier work that is like a task."
            ),
            "add": layer_function(
                self._add, description="Remember something for work to come, such as a lesson."
            ),
        }
        check_layer(self)

    async def init(self, params: InitParams) -> Episodes:
        """See how much there is already."""
        memory = Episodes(params.storage, self.max_episodes)
        memory.since = len(params.log)
        await memory.refresh()
        return memory

    async def recall(self, params: RecallParams) -> str | None:
        """Episodes like the question."""
        if not params.query.strip() or params.budget == 0:
            return None
        memory = params.state.at(params.storage)
        found = await memory.search(self.embed, params.query, self.top_k, self.min_score)
        lines = (f"- {each.entry['text']}" for each in found)
        return tagged_lines("episodes", lines, params.budget) or None

    async def on_complete(self, params: CompleteParams) -> None:
        """Write down how this execution went, unless it was aborted."""
        if params.outcome == "aborted":
            return
        own = params.log[params.state.since :]
        episode = await self._episode(params, own) if own else None
        if episode is not None:
            await params.state.at(params.storage).add(self.embed, [episode])

    async def _episode(self, params: CompleteParams, own: Sequence[Item]) -> dict[str, Any] | None:
        asked = clipped(_first_asked(own), INPUT)
        answer = clipped(last_assistant_text(own), ANSWER)
        tools = sorted({item.name for item in own if isinstance(item, FunctionCallItem)})
        if self.summarize is None and not (asked or answer or tools):
            return None
        facts: dict[str, Any] = {
            "input": asked,
            "outcome": params.outcome,
            "answer": answer,
            "tools": tools,
            "time": time.time(),
        }
        return {**facts, "text": await self._told(params, facts)}

    async def _told(self, params: CompleteParams, facts: dict[str, Any]) -> str:
        if self.summarize is None:
            used = f" using {', '.join(facts['tools'])}" if facts["tools"] else ""
            return f"Asked: {facts['input']} | {facts['outcome']}{used} | {facts['answer']}"
        said = await called(self.summarize, params)
        if not isinstance(said, str) or not said:
            raise TypeError(f"summarize of layer {self.id!r} gave {said!r:.100}, not a text")
        return said

    async def _search(self, args: Search, state: Episodes, ctx: Any) -> list[dict[str, Any]]:
        top_k = args.top_k or self.top_k
        found = await state.search(self.embed, args.query, top_k, self.min_score)
        return [
            {**{k: v for k, v in each.entry.items() if k != "id"}, "score": round(each.score, 4)}
            for each in found
        ]

    async def _add(self, args: Note, state: Episodes, ctx: Any) -> str:
        if not args.text.strip():
            raise ValueError("a note needs a text")
        note = {"input": "", "outcome": "noted", "answer": "", "tools": [], "time": time.time()}
        await state.add(self.embed, [{**note, "text": args.text.strip()}])
        return "noted"


def _first_asked(log: Sequence[Item]) -> str:
    asked = (item for item in log if isinstance(item, MessageItem) and item.role == "user")
    first = next(asked, None)
    return "" if first is None else item_text(first)


def _size(state: Recollection) -> int:
    return state.size
