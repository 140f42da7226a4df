"""What model calls used. Everywhere None is "not reported" and 0 is "reported none"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetic_ray.items import FunctionCallItem, Item

__all__ = ["RoundMeta", "RoundUsage", "StepMeta", "TokenUsage", "estimate_tokens"]


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    return one if other is None else one + other


@dataclass(frozen=True, slots=True)
class RoundUsage:
    """Tokens of one model response, or of several added up with :meth:`over`.

    ``cached_tokens`` are the input tokens the provider served from its cache,
    ``cache_write_tokens`` those it wrote into it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None

    @classmethod
    def over(cls, rounds: Iterable[RoundUsage | None]) -> RoundUsage:
        """The sum of several rounds; a cache figure no round reported stays None."""
        total = cls()
        for each in rounds:
            if each is not None:
                total = cls(
                    total.input_tokens + each.input_tokens,
                    total.output_tokens + each.output_tokens,
                    _sum(total.cached_tokens, each.cached_tokens),
                    _sum(total.cache_write_tokens, each.cache_write_tokens),
                )
        return total


@dataclass(slots=True)
class TokenUsage:
    """Running totals of a context, a run or a session; grows in place.

    ``unreported`` counts the model responses that reported no usage at all: the other figures
    leave those out.
    """

    input: int = 0
    output: int = 0
    total: int = 0
    cached: int | None = None
    unreported: int = 0

    def add(self, round_usage: RoundUsage | None) -> None:
        """Count one model response; None means it reported nothing."""
        if round_usage is None:
            self.unreported += 1
            return
        self.input += round_usage.input_tokens
        self.output += round_usage.output_tokens
        self.total += round_usage.input_tokens + round_usage.output_tokens
        self.cached = _sum(self.cached, round_usage.cached_tokens)

    def merge(self, other: TokenUsage) -> None:
        """Count what another context, such as a child, used."""
        self.input += other.input
        self.output += other.output
        self.total += other.total
        self.cached = _sum(self.cached, other.cached)
        self.unreported += other.unreported

    def minus(self, earlier: TokenUsage) -> TokenUsage:
        """What was used since `earlier`, a copy of these totals at an earlier moment."""
        cached = self.cached
        if cached is not None and earlier.cached is not None:
            cached -= earlier.cached
        return TokenUsage(
            self.input - earlier.input,
            self.output - earlier.output,
            self.total - earlier.total,
            cached,
            self.unreported - earlier.unreported,
        )

    def copy(self) -> TokenUsage:
        """The figures now, which do not grow on."""
        return TokenUsage(self.input, self.output, self.total, self.cached, self.unreported)


@dataclass(frozen=True, slots=True)
class RoundMeta:
    """One model response within a step. ``cost`` is in dollars."""

    tool_calls: tuple[FunctionCallItem, ...] = ()
    usage: RoundUsage | None = None
    cost: float | None = None
    response_items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class StepMeta:
    """What the last model step of a context did, over all its rounds.

    ``usage`` adds up the rounds and is None when none of them reported any, ``cost`` is in
    dollars, ``rounds`` keeps each response apart.
    """

    tool_calls: tuple[FunctionCallItem, ...] = ()
    usage: RoundUsage | None = None
    cost: float | None = None
    response_items: tuple[Item, ...] = ()
    rounds: tuple[RoundMeta, ...] = ()

    @classmethod
    def over(cls, rounds: Iterable[RoundMeta]) -> StepMeta:
        """Add up the rounds of one step."""
        kept = tuple(rounds)
        used = [each.usage for each in kept if each.usage is not None]
        costs = [each.cost for each in kept if each.cost is not None]
        return cls(
            tool_calls=tuple(call for each in kept for call in each.tool_calls),
            usage=RoundUsage.over(used) if used else None,
            cost=sum(costs) if costs else None,
            response_items=tuple(item for each in kept for item in each.response_items),
            rounds=kept,
        )


@dataclass(frozen=True, slots=True)
class LayerUsageEntry:
    """What one layer had in the last window.

    `token_count` is as its recall reported, `items` a count. `placement` is the band it stands
    in, `served` says whether its text is a replay from the pin (`pinned`) or was sent anew
    (`fresh`). A pinned layer that shows nothing any more counts no tokens and no items. `changed`
    compares with the assembly before. `churn_rate` is the share of assemblies it changed in, None
    before the first. `rebill_tokens` is what its changes in this epoch would have cost in cached
    prefix, had they been written into it.
    """

    layer_id: str
    token_count: int
    items: int
    placement: str
    served: str
    changed: bool
    churn_rate: float | None
    rebill_tokens: int


@dataclass(frozen=True, slots=True)
class EpochUsage:
    """The epoch of the last window. `age` counts its assemblies, this one included.

    The token figures are estimates: pinned before the history, shown after it, and the message
    that says what of the pinned is out of date. `reanchor_reason` says why the epoch began, on its
    first assembly: cold-start, instructions-changed, cache-miss, max-age, delta-pressure (too much
    had changed) or delta-overflow (what changed could not be told); None while it goes on.
    """

    id: str
    age: int
    anchor_tokens: int
    live_tokens: int
    delta_tokens: int
    reanchor_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LastLayerUsage:
    """How the last accepted model step filled its window; entries sorted by layer id.

    All but the layers' own figures are estimates. `history_tokens` covers the whole log, the
    answer included. `epoch` is None when anchoring is off.
    """

    execution_id: str
    model_id: str
    layers: tuple[LayerUsageEntry, ...]
    system_prompt_tokens: int
    tools_tokens: int
    history_tokens: int
    total_used_tokens: int
    epoch: EpochUsage | None = None


def estimate_tokens(text: str) -> int:
    """A rough count without a tokenizer: four characters a token, rounded up."""
    return -(-len(text) // 4)
