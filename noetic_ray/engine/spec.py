"""What travels when a context starts, and what comes back when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from noetic_ray.log import ItemLog
from noetic_ray.placement import Placement
from noetic_ray.request import RequestInfo
from noetic_ray.steps import Step
from noetic_ray.usage import TokenUsage

Status = Literal["pending", "running", "completed", "failed", "cancelled", "lost"]
Outcome = Literal["settled", "killed", "abandoned"]

ABORTED_PARENT = "parent context aborted"
PARENT_LOST = "parent lost"


class RunScope(NamedTuple):
    """What every context of a run shares; one object per run and process."""

    run_id: str
    params: Mapping[str, Any]
    request: RequestInfo | None
    trace_id: int


class ParentInfo(NamedTuple):
    """How a child knows its parent. `actor` is the hosting actor's id, "" in the driver."""

    id: str
    depth: int
    thread_id: str
    actor: str


@dataclass(slots=True)
class ContextSpec:
    """Everything a process needs to start one context.

    A parallel path's log starts as `inherited`; `origin` says whose items those are, as
    (context id, count) pairs in order, so that another process can read them in the journal.
    """

    scope: RunScope
    id: str
    step: Step[Any, Any]
    input: Any
    depth: int = 0
    parent: ParentInfo | None = None
    path: str = ""
    state: Any = None
    items: tuple[Any, ...] = ()
    inherited: ItemLog | None = None
    origin: tuple[tuple[str, int], ...] = ()
    thread_id: str = ""
    resource_id: str | None = None
    parent_span: int = 0
    detached: bool = False
    wants_state: bool = False
    abort_reason: str | None = None
    aborted: bool = False


@dataclass(slots=True)
class Reply:
    """The end of a context. `outcomes` lists what became of an aborted subtree.

    `settled` is False when the result is there but detached children still run; a second reply
    follows then. `tokens` and `cost` cover the context and all that settled below it.
    """

    id: str
    status: Status
    output: Any = None
    error: dict[str, Any] | None = None
    tokens: TokenUsage = field(default_factory=TokenUsage)
    cost: float = 0.0
    state: Any = None
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    settled: bool = True


@dataclass(slots=True)
class EngineConfig:
    """A harness's settings as every process of it knows them."""

    name: str
    model: Any = None
    tools: tuple[Any, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    before_step: Any = None
    after_step: Any = None
    kill_after: float = 5.0
    item_types: Mapping[str, Any] = field(default_factory=dict)
    strict_items: bool = False
    placement: Placement = field(default_factory=Placement)
    tracing: bool = False
