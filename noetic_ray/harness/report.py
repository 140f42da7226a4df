"""What an abort did, and what a run answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from noetic_ray.errors import NoeticError
from noetic_ray.items import Item
from noetic_ray.usage import LastLayerUsage, TokenUsage


@dataclass(frozen=True, slots=True)
class AbortReport:
    """How far an abort got. Counts of contexts; `elapsed` in seconds.

    `contexts` lists (context id, outcome): `settled`, `killed` with its process, or `abandoned`
    in a process it shared.
    """

    reached: int = 0
    settled: int = 0
    killed: int = 0
    abandoned: int = 0
    elapsed: float = 0.0
    contexts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, outcomes: list[tuple[str, str]], elapsed: float) -> AbortReport:
        """Count outcomes."""
        kinds = [outcome for _, outcome in outcomes]
        return cls(
            reached=len(outcomes),
            settled=kinds.count("settled"),
            killed=kinds.count("killed"),
            abandoned=kinds.count("abandoned"),
            elapsed=elapsed,
            contexts=tuple(outcomes),
        )


@dataclass(frozen=True, slots=True)
class HarnessResponse:
    """A run's answer. `items` is the root's log; usage and cost (dollars) cover the whole tree.

    `error` is set where the run failed or was aborted. `last_layer_usage` is the root's last
    window.
    """

    items: tuple[Item, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    cost: float = 0.0
    text: str = ""
    output: Any = None
    error: NoeticError | None = None
    last_layer_usage: LastLayerUsage | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A tool call that waits for a person."""

    id: str
    tool: str
    arguments: dict[str, Any]
    context_id: str
    run_id: str
