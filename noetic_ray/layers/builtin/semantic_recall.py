"""Remembers what was said and shows what is like the question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, Field

from noetic_ray.errors import ConfigError
from noetic_ray.items import Item, MessageItem, item_text
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope
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
    top_k: int = Field(5, ge=1, le=100)


class SemanticRecall(ContextLayer[Any]):
    """State: what this context has read of the entries; the entries are in the storage."""

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

    async def init(self, params: InitParams) -> Recollection:
        """Read what is there already."""
        memory = Recollection(params.storage)
        await memory.refresh()
        return memory

    async def recall(self, params: RecallParams) -> str | None:
        """Earlier texts like the question, without those of this very conversation."""
        here = [item.id for item in params.log[-NEWEST:]]
        found = await params.state.search(
            self.embed, params.query, self.top_k, self.min_score, set(here)
        )
        return tagged_lines("recalled", map(_line, found), params.budget) or None

    async def store(self, params: StoreParams) -> None:
        """Remember what user and assistant said in this step."""
        entries = [
            {"text": text, "role": item.role, "item": item.id}
            for item in _spoken(params.new_items)
            for text in chunks(item_text(item), self.chunk)
        ]
        await params.state.add(self.embed, entries, self.max_items)

    async def _search(self, args: Search, state: Recollection, ctx: Any) -> list[dict[str, Any]]:
        found = await state.search(self.embed, args.query, args.top_k, self.min_score)
        return [
            {"text": each.entry["text"], "role": each.entry["role"], "score": round(each.score, 4)}
            for each in found
        ]


def semantic_recall(
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
) -> SemanticRecall:
    """Remember what users and assistants said, and show the `top_k` texts most like the question.

    `embed(text) -> numbers`, sync or async, is yours; without one texts are compared by hashed
    words, which needs no network and finds words, not meanings. Texts are kept in pieces of
    `chunk` characters, `max_items` pieces at most, under the scope's own keys. What is less alike
    than `min_score` (-1 to 1) is not shown, nor what this conversation said itself.
    `search(query=..., top_k=...)` asks from code, `size` counts.

    Example: `nr.layers.semantic_recall(top_k=3)` with `run(..., resource_id="user-7")`.
    """
    return SemanticRecall(
        embed,
        id=id,
        slot=slot,
        scope=scope,
        budget=budget,
        top_k=top_k,
        min_score=min_score,
        max_items=max_items,
        chunk=chunk,
    )


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


def chunks(text: str, length: int) -> Iterator[str]:
    """Pieces of at most `length` characters, cut at spaces where there are any."""
    rest = text.strip()
    while len(rest) > length:
        cut = rest.rfind(" ", length // 2, length)
        cut = length if cut < 0 else cut
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest


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
