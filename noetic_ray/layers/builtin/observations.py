"""Facts learnt over time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from pydantic import BaseModel, Field

from noetic_ray.canonical import clean_text
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, RecallMode, Scope, check_layer
from noetic_ray.layers.builtin.calling import called
from noetic_ray.layers.builtin.rendering import tagged_lines
from noetic_ray.layers.builtin.semantic_recall import check_counts
from noetic_ray.layers.hooks import (
    InitParams,
    Merge,
    Provided,
    RecallParams,
    ReturnParams,
    SpawnParams,
    SpawnSeed,
    StoreParams,
    Update,
)
from noetic_ray.layers.provides import layer_data, layer_function
from noetic_ray.signatures import check_callback

Texts: TypeAlias = "Iterable[str] | None"
Observe: TypeAlias = "Callable[[StoreParams], Texts | Awaitable[Texts]]"
Fact = dict[str, Any]


class Observation(BaseModel):
    """A fact."""

    text: str = Field(min_length=1)


class Observations(ContextLayer[Any]):
    """Facts learnt over time: `add(text=...)`, `forget(text=...)`, and `all`, oldest first.

    `observe(params)`, sync or async, may find facts in each model step (`params.new_items`,
    `params.response`) and returns a list of texts or None. `all` has dicts with `text` and `time`,
    in seconds since 1970. `forget` takes a fact, or how the facts to forget begin, and returns how
    many it removed. A fact counts once, whatever its case and spacing; of
    more than `max_items` the oldest go. The newest are shown, as many as the budget allows.
    Children know what their parent knows, and what successful ones learn comes back; what they
    forget stays known to the parent.

    Example: `await ctx.context["observations"].add(text="The user prefers metric units.")`.

    State: a list of {"text", "time"}, oldest first; "inherited" marks a parent's in a child.
    """

    recall_mode: RecallMode = "eventual"

    def __init__(
        self,
        *,
        id: str = "observations",
        slot: float = slots.OBSERVATIONS,
        scope: Scope = "resource",
        budget: BudgetWish = (200, 2000),
        max_items: int = 200,
        observe: Observe | None = None,
    ) -> None:
        check_counts(id, max_items=max_items)
        if observe is not None:
            check_callback(f"observe of layer {id!r}", observe, "params")
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.max_items = max_items
        self.observe = observe
        self.provides = {
            "all": layer_data(_all),
            "add": layer_function(self._add, description="Remember a fact."),
            "forget": layer_function(
                self._forget,
                description="Forget a fact, or, if none reads so, all facts that begin so.",
            ),
        }
        check_layer(self)

    async def init(self, params: InitParams) -> list[Fact]:
        """Nothing is known yet."""
        return []

    async def recall(self, params: RecallParams) -> str | None:
        """The facts, the newest first, as many as fit."""
        lines = (f"- {fact['text']}" for fact in reversed(params.state or ()))
        return tagged_lines("observations", lines, params.budget) or None

    async def store(self, params: StoreParams) -> Update | None:
        """What `observe` sees in the step."""
        if self.observe is None:
            return None
        seen = await called(self.observe, params)
        texts = None if isinstance(seen, str) else list(() if seen is None else seen)
        if texts is None or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"observe of layer {self.id!r} gave {seen!r:.100}, not a list of texts")
        return self._added(params.state, texts)

    async def on_spawn(self, params: SpawnParams) -> SpawnSeed:
        """A child knows what its parent knows."""
        return SpawnSeed([{**fact, "inherited": True} for fact in _all(params.parent_state)])

    async def on_return(self, params: ReturnParams) -> Merge | None:
        """The parent learns what a child has learnt."""
        learnt = [fact for fact in params.child_state or () if not fact.get("inherited")]
        update = self._joined(params.parent_state, learnt)
        return None if update is None else Merge(state=update.state)

    def _added(self, state: Any, texts: Iterable[str]) -> Update | None:
        now = time.time()
        flat = (" ".join(clean_text(text).split()) for text in texts)
        return self._joined(state, ({"text": text, "time": now} for text in flat if text))

    def _joined(self, state: Any, new: Iterable[Fact]) -> Update | None:
        facts = list(state or ())
        known = {_plain(fact["text"]) for fact in facts}
        before = len(facts)
        for fact in new:
            plain = _plain(fact["text"])
            if plain not in known:
                known.add(plain)
                facts.append(fact)
        return Update(facts[-self.max_items :]) if len(facts) > before else None

    def _add(self, args: Observation, state: Any, ctx: Any) -> Any:
        if not args.text.strip():
            raise ValueError("an observation needs a text")
        update = self._added(state, [args.text])
        return "known" if update is None else Provided("noted", update.state)

    def _forget(self, args: Observation, state: Any, ctx: Any) -> Any:
        start = _plain(args.text)
        if not start:
            raise ValueError("say which fact, or how the facts to forget begin")
        facts = list(state or ())
        kept = [fact for fact in facts if _plain(fact["text"]) != start]
        if len(kept) == len(facts):
            kept = [fact for fact in facts if not _plain(fact["text"]).startswith(start)]
        gone = len(facts) - len(kept)
        return Provided(gone, kept) if gone else 0


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _all(state: Any) -> list[Fact]:
    return [{"text": fact["text"], "time": fact["time"]} for fact in state or ()]
