"""A child context as its parent sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from noetic_ray.engine.spec import ABORTED_PARENT, ContextSpec, Reply
from noetic_ray.usage import TokenUsage

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


class Listener(Protocol):
    """Who wants to know how a context ended."""

    def replied(self, reply: Reply) -> None: ...


class Link(Protocol):
    """A way to reach a running child."""

    def abort(self, reason: str | None) -> None: ...


class Child:
    """A slot in the children table; it exists before the child does."""

    __slots__ = (
        "cell",
        "detached",
        "id",
        "link",
        "number",
        "on_reply",
        "reply",
        "seen_cost",
        "seen_tokens",
        "spec",
    )

    def __init__(self, cell: Cell, spec: ContextSpec, on_reply: Callable[[Reply], None]) -> None:
        self.cell = cell
        self.id = spec.id
        self.detached = spec.detached
        self.number = cell.started
        self.spec = spec
        self.on_reply = on_reply
        self.link: Link | None = None
        self.reply: Reply | None = None
        self.seen_tokens: TokenUsage | None = None
        self.seen_cost = 0.0

    def replied(self, reply: Reply) -> None:
        """The child has a result, or has settled."""
        self.cell.child_replied(self, reply)

    def abort(self, reason: str | None) -> None:
        """Abort the child, with the default reason for children when there is none."""
        if self.link is not None and not (self.reply and self.reply.settled):
            self.link.abort(reason if reason is not None else ABORTED_PARENT)
