"""What hooks are given, and what they may return.

Every hook takes one object with the fields it needs and returns None or one of the results below.
Fields every hook has: `ctx`, the context it runs in, and `storage`, the layer's own keys in its
scope. `state` is the layer's state now (None before `init`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from noetic_ray.items import FunctionCallItem, Item, last_assistant_text
from noetic_ray.usage import RoundUsage

if TYPE_CHECKING:
    from noetic_ray.context import Context
    from noetic_ray.layers.storage import LayerStorage

EndOfContext: TypeAlias = Literal["completed", "failed", "aborted"]
Rerender: TypeAlias = Literal["self", "after", "all"]


class Unset(Enum):
    """`UNSET` stands for "leave it as it is", where None is a value of its own."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET


# -- parameters --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitParams:
    """Before the context's first step."""

    ctx: Context
    storage: LayerStorage
    log: Sequence[Item]


@dataclass(frozen=True, slots=True)
class RecallParams:
    """Once per model step. `query` is the step's input as text, `budget` tokens or None.

    `log` is the context's log, an immutable view.
    """

    ctx: Context
    storage: LayerStorage
    state: Any
    log: Sequence[Item]
    query: str
    budget: int | None


@dataclass(frozen=True, slots=True)
class Response:
    """What a model answered in one round: its items, usage as reported, cost in dollars."""

    items: tuple[Item, ...]
    usage: RoundUsage | None = None
    cost: float | None = None

    @property
    def text(self) -> str:
        """The text of the last message, "" without one."""
        return last_assistant_text(self.items)

    @property
    def calls(self) -> tuple[FunctionCallItem, ...]:
        """The tool calls it asks for."""
        return tuple(item for item in self.items if isinstance(item, FunctionCallItem))


@dataclass(frozen=True, slots=True)
class StoreParams:
    """After a model step was answered. `new_items` is what the step added to the log."""

    ctx: Context
    storage: LayerStorage
    state: Any
    log: Sequence[Item]
    new_items: Sequence[Item]
    response: Response


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """A child context as its parent's layers know it."""

    id: str
    depth: int
    thread_id: str
    step_id: str


@dataclass(frozen=True, slots=True)
class SpawnParams:
    """Before a child starts, in the parent. `parent_state` is this layer's state there."""

    ctx: Context
    storage: LayerStorage
    parent_state: Any
    child_ctx: ChildInfo


@dataclass(frozen=True, slots=True)
class ReturnParams:
    """After a child succeeded, in the parent; one merge at a time, in the order children end.

    `child_log` is what the child itself appended; `result` its output, as the layers before this
    one left it.
    """

    ctx: Context
    storage: LayerStorage
    parent_state: Any
    child_state: Any
    child_log: Sequence[Item]
    child_ctx: ChildInfo
    result: Any


@dataclass(frozen=True, slots=True)
class CompleteParams:
    """At the end of the context. `outcome` is completed, failed or aborted."""

    ctx: Context
    storage: LayerStorage
    state: Any
    log: Sequence[Item]
    outcome: EndOfContext


@dataclass(frozen=True, slots=True)
class DisposeParams:
    """The very last call, after `on_complete`."""

    ctx: Context
    storage: LayerStorage
    state: Any


@dataclass(frozen=True, slots=True)
class ToolCallParams:
    """Before a tool runs. `call` has the tool's own name and the arguments as JSON text."""

    ctx: Context
    storage: LayerStorage
    state: Any
    call: FunctionCallItem
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelCallParams:
    """After a round was answered and before it is logged."""

    ctx: Context
    storage: LayerStorage
    state: Any
    response: Response


@dataclass(frozen=True, slots=True)
class AppendParams:
    """Before the step's input, or the outputs of a round's tools, are logged."""

    ctx: Context
    storage: LayerStorage
    state: Any
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class ProjectParams:
    """When the window is put together. `items` is the history as the layers before left it.

    What is returned is shown to the model; the log itself never changes.
    """

    ctx: Context
    storage: LayerStorage
    state: Any
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class DeltaParams:
    """A pinned text became stale: `prev` is what the model has, `next` what it should know."""

    ctx: Context
    storage: LayerStorage
    state: Any
    prev: str
    next: str


# -- results -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recall:
    """What a layer shows. `token_count` None is estimated from the items.

    A recall that returns a `state` is shown after the history, whatever the layer's placement.
    """

    items: Sequence[Item] | str
    token_count: int | None = None
    state: Any = UNSET


@dataclass(frozen=True, slots=True)
class Update:
    """A new state. None clears it; the layer's hooks keep running."""

    state: Any


@dataclass(frozen=True, slots=True)
class SpawnSeed:
    """The layer's state in the child, and items its log begins with (not for parallel paths)."""

    state: Any
    items: Sequence[Item] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """What the parent keeps of a child: a new state, another result, or both."""

    state: Any = UNSET
    result: Any = UNSET


@dataclass(frozen=True, slots=True)
class Allow:
    """Let it pass."""


@dataclass(frozen=True, slots=True)
class Guide:
    """Do not take it; tell the model why and let it try again.

    An answer is guided at most three times in a step, then it is taken.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse it: a tool call gets an error output, an answer ends the step."""

    text: str


Judgement: TypeAlias = Allow | Guide | Deny


@dataclass(frozen=True, slots=True)
class Appended:
    """What is logged instead, and whose texts are made again before the next request.

    `rerender`: this layer's ("self"), this one's and those in later slots ("after"), or "all".
    """

    items: Sequence[Item]
    state: Any = UNSET
    rerender: Rerender | None = None


@dataclass(frozen=True, slots=True)
class Provided:
    """What a layer function returns when it changes the state."""

    result: Any = None
    state: Any = UNSET
