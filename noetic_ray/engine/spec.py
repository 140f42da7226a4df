"""What travels when a context starts, and what comes back when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from noetic_ray.channels import Channel
from noetic_ray.layers.base import ContextLayer
from noetic_ray.layers.cache_config import ContextCache
from noetic_ray.layers.window import Window
from noetic_ray.log import ItemLog
from noetic_ray.placement import Placement
from noetic_ray.request import RequestInfo
from noetic_ray.steps import Step
from noetic_ray.usage import LastLayerUsage, TokenUsage

if TYPE_CHECKING:
    from noetic_ray.engine.layers.remains import Remains

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


class LayerSeed(NamedTuple):
    """A layer a context begins with.

    `seeded` says that `state` is the parent's choice and no init runs. `owned` says that no
    context above has the layer: this one takes up and saves its state.
    """

    layer: ContextLayer[Any]
    seeded: bool = False
    state: Any = None
    owned: bool = True


@dataclass(slots=True)
class ContextSpec:
    """Everything a process needs to start one context.

    A parallel path's log starts as `inherited`; `origin` says whose items those are, as
    (context id, count) pairs in order, so that another process can read them in the journal.
    `named_thread` says that somebody chose the thread id and may come back to it. `quiet` keeps
    everything out of the journal, `preview` writes nothing anywhere. `wants_layers` asks for the
    states of these layers, and the items, to come back with the reply. `sent` are the messages
    the contexts above have sent, `trace_place` the trace nodes this one's first node stands below.
    `marks` is how far the journal has to be read to know what stood in the trace then.
    `inbox` brings user messages between the rounds of the root's model steps.
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
    layers: tuple[LayerSeed, ...] = ()
    named_thread: bool = False
    quiet: bool = False
    preview: bool = False
    wants_layers: tuple[str, ...] = ()
    sent: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    trace_place: tuple[str, ...] = ()
    marks: Mapping[str, int] = field(default_factory=dict)
    inbox: Channel[Any] | None = None


@dataclass(slots=True)
class Reply:
    """The end of a context. `outcomes` lists what became of an aborted subtree.

    `settled` is False when the result is there but detached children still run; a second reply
    follows then. `tokens` and `cost` cover the context and all that settled below it.
    `layer_states` and `items` are what the parent asked for, `remains` what layers of aborted
    contexts have left to do, `layer_usage` the root's last window.
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
    layer_states: dict[str, Any] | None = None
    items: tuple[Any, ...] = ()
    remains: list[Remains] = field(default_factory=list)
    layer_usage: LastLayerUsage | None = None


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
    layers: tuple[ContextLayer[Any], ...] = ()
    window: Window | None = None
    cache: ContextCache = field(default_factory=ContextCache)
    assistants: Mapping[str, Step[Any, Any]] = field(default_factory=dict)
    mcp_clients: tuple[str, ...] = ()
    tracing: bool = False
