"""Remembers what was said and shows what is like the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from pydantic import BaseModel, Field

from noetic_ray.errors import ConfigError
from noetic_ray.items import Item, MessageItem, item_text
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope, check_layer
from noetic_ray.layers.builtin.embedding import Embed
from noetic_ray.layers.builtin.recollection import Found, Recollection
from noetic_ray.layers.builtin.rendering import clipped, tagged_lines
from noetic_ray.layers.hooks import InitParams, RecallParams, StoreParams
from noetic_ray.layers.provides import layer_data, layer_function
from noetic_ray.signatures import check_callback

NEWEST = 400


class Search(BaseModel):
    """What to look for."""

    query: str
    top_k: int | None = Field(None, ge=1, le=100)


class SemanticRecall(ContextLayer[Any]):
    """Remember what users and assistants said, and show the `top_k` texts most like the question.

    `embed(text) -> numbers`, sync or async, is yours; without one texts are compared by hashed
    words, which needs no network and finds words, not meanings. Texts are kept in pieces of
    `chunk` characters, `max_items` pieces at most, under the scope's own keys. What is less alike
    than `min_score` (-1 to 1) is not shown, nor what this conversation said itself.
    `search(query=..., top_k=...)` asks from code, `size` counts. An embedding of another length
    needs another `id`.

    Example: `nr.layers.semantic_recall(top_k=3)` with `run(..., resource_id="user-7")`.

    State: what this context has read of the entries; the entries are in the storage.
    """

    def __init__(
        self,
        embed: Embed | None = None,
        *,
        id: str = "semantic_recall",
        slot: float = slots.SEMANTIC_RECALL,
        scope: Scope = "resource",
        budget: BudgetWish = (0, 2000),
        top_k: int = 5,
        min_score: float = 0.25,
        max_items: int = 2_000,
        chunk: int = 800,
    ) -> None:
        check_embed(id, embed)
        check_counts(id, top_k=top_k, max_items=max_items, chunk=chunk)
        check_score(id, min_score)
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.embed = embed
        self.top_k = top_k
        self.min_score = min_score
        self.max_items = max_items
        self.chunk = chunk
        self.provides = {
            "size": layer_data(_size),
            "search": layer_function(
                self._search, description="Search what was said before for a meaning."
            ),
        }
        check_layer(self)

    async def init(self, params: InitParams) -> Recollection:
        """See how much there is already."""
        memory = Recollection(params.storage, self.max_items)
        await memory.refresh()
        return memory

    async def recall(self, params: RecallParams) -> str | None:
        """Earlier texts like the question, without what this very conversation says."""
        if not params.query.strip() or params.budget == 0:
            return None
        here = {params.query.strip()}
        for item in params.log[-NEWEST:]:
            here.update((item.id, *chunks(item_text(item), self.chunk)))
        found = await params.state.at(params.storage).search(
            self.embed, params.query, self.top_k, self.min_score, here
        )
        return tagged_lines("recalled", map(_line, found), params.budget) or None

    async def store(self, params: StoreParams) -> None:
        """Remember what user and assistant said in this step."""
        entries = [
            {"text": text, "role": item.role, "item": item.id}
            for item in _spoken(params.new_items)
            for text in chunks(item_text(item), self.chunk)
        ]
        await params.state.at(params.storage).add(self.embed, entries)

    async def _search(self, args: Search, state: Recollection, ctx: Any) -> list[dict[str, Any]]:
        top_k = args.top_k or self.top_k
        found = await state.search(self.embed, args.query, top_k, self.min_score)
        return [
            {
                "text": each.entry["text"],
                "role": each.entry["role"],
                "time": each.entry["time"],
                "score": round(each.score, 4),
            }
            for each in found
        ]


def check_embed(id: str, embed: object) -> None:
    """Raise ConfigError unless `embed` is None or can be called with a text."""
    if embed is not None:
        check_callback(f"embed of layer {id!r}", embed, "text")


def check_counts(id: str, **counts: object) -> None:
    """Raise ConfigError `INVALID_LAYER` for a count that is no whole number from 1 on."""
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                "INVALID_LAYER",
                f"{name} of layer {id!r} is {value!r}",
                "Give a whole number, at least 1.",
            )


def check_score(id: str, score: object) -> None:
    """Raise ConfigError `INVALID_LAYER` for a score that is no finite number."""
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if not isinstance(score, int | float) or not number or not isfinite(score):
        raise ConfigError(
            "INVALID_LAYER", f"min_score of layer {id!r} is {score!r}", "Give a number, -1 to 1."
        )


def chunks(text: str, length: int) -> Iterator[str]:
    """Pieces of at most `length` characters, cut between words where that is possible."""
    start = 0
    while start < len(text):
        if text[start].isspace():
            start += 1
            continue
        end = start + length
        if end < len(text):
            end = _gap(text, start + length // 2, end) or end
        yield text[start:end].rstrip()
        start = end


def _gap(text: str, first: int, end: int) -> int:
    """The last white space in a part of a text, or 0."""
    return next((place for place in range(end, first, -1) if text[place].isspace()), 0)


def _spoken(items: Sequence[Item]) -> list[MessageItem]:
    return [
        item
        for item in items
        if isinstance(item, MessageItem) and item.role in ("user", "assistant")
    ]


def _line(found: Found) -> str:
    return f"- {found.entry['role']}: {clipped(found.entry['text'], 2_000)}"


def _size(state: Recollection) -> int:
    return state.size
