"""What the engine asks of a language model, and what a model answers.

Write your own provider by giving an object one method, `generate`. It must be picklable (each
process that runs contexts gets its own copy) and must not hold clients or locks when pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from noetic_ray.errors import NoeticError
from noetic_ray.items import Item
from noetic_ray.usage import RoundUsage

DeltaKind = Literal["text", "reasoning", "refusal", "arguments"]


@dataclass(slots=True, frozen=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class OutputSpec:
    """The structured output a request asks for; `schema` is a JSON schema."""

    name: str
    schema: Mapping[str, Any]


@dataclass(slots=True)
class ModelRequest:
    """One round sent to a provider.

    The first `cache_boundary` items, with instructions and tools, are the same in every request
    of a conversation; None where there is nothing to hint. `cache_key` names the conversation.
    """

    model: str
    instructions: str | None
    items: Sequence[Item]
    tools: Sequence[ToolSpec] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    output: OutputSpec | None = None
    context_id: str = ""
    cache_boundary: int | None = None
    cache_key: str | None = None


@dataclass(slots=True)
class ModelReply:
    """What one round gave: complete items in order, usage as reported, cost in dollars.

    `usage` None means the provider reported nothing. An item cut off by a length limit has
    status `incomplete` and the reason stands in `warnings`. `response_id` and `finish_reasons`
    are the provider's own words, for the trace.
    """

    items: list[Item]
    usage: RoundUsage | None = None
    cost: float | None = None
    model: str | None = None
    warnings: list[str] = field(default_factory=list)
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()


class ModelEvents(Protocol):
    """The engine's ear while a round runs. Both calls return at once and never raise."""

    def delta(self, kind: DeltaKind, text: str) -> None:
        """A piece of the answer arrived."""

    def retried(self, attempt: int, delay: float, error: NoeticError) -> None:
        """Attempt number `attempt` failed; another starts after `delay` seconds.

        Text announced by `delta` during the failed attempt is discarded.
        """


@runtime_checkable
class Model(Protocol):
    """A provider. Errors raised are `ModelFailed` and its kin, or `ModelRefused`.

    Cancelling the task that awaits `generate` must end the request at once.
    """

    async def generate(self, request: ModelRequest, events: ModelEvents) -> ModelReply:
        """Run one round and return its complete answer."""
        ...
