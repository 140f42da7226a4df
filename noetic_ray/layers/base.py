"""The class to derive from: a contributor to what the model sees, with a state that travels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, get_args

from typing_extensions import TypeVar

from noetic_ray.canonical import clean_text
from noetic_ray.errors import ConfigError
from noetic_ray.items import Item

if TYPE_CHECKING:
    from noetic_ray.layers.handle import LayerHandle
    from noetic_ray.layers.hooks import (
        Appended,
        AppendParams,
        CompleteParams,
        DeltaParams,
        DisposeParams,
        InitParams,
        Judgement,
        Merge,
        ModelCallParams,
        ProjectParams,
        Recall,
        RecallParams,
        ReturnParams,
        SpawnParams,
        SpawnSeed,
        StoreParams,
        ToolCallParams,
        Update,
    )
    from noetic_ray.layers.provides import LayerData, LayerFunction

Scope: TypeAlias = Literal["thread", "resource", "global", "execution"]
PlacementWish: TypeAlias = Literal["auto", "anchor", "live"]
RecallMode: TypeAlias = Literal["atomic", "eventual"]
OnInitError: TypeAlias = Literal["throw", "disable"]
OnToolCallError: TypeAlias = Literal["abstain", "deny"]
BudgetWish: TypeAlias = "int | tuple[int, int] | Literal['auto'] | None"

#: Seconds each hook may take, unless the layer's `timeouts` say otherwise.
TIMEOUTS: Mapping[str, float] = {
    "init": 10.0,
    "recall": 5.0,
    "store": 30.0,
    "on_spawn": 10.0,
    "on_return": 10.0,
    "on_complete": 30.0,
    "dispose": 5.0,
    "before_tool_call": 5.0,
    "after_model_call": 5.0,
    "on_item_append": 5.0,
    "project_history": 5.0,
    "render_delta": 5.0,
}

HandleT = TypeVar("HandleT", covariant=True, default="LayerHandle")


class ContextLayer(Generic[HandleT]):
    """Derive from it, set `id`, and override the hooks you need; the others cost nothing.

    One layer object serves many contexts, in many processes: it must be picklable, and whatever
    changes belongs into the state, which each context has of its own. Hooks may be plain functions
    too; those run in threads.

    `scope` says whose state it is: a later context with the same thread id, resource id, or of the
    same harness (`global`) begins with what the last one saved; `execution` is never saved.
    `budget` is how many tokens `recall` should use: a number, (least, most), or "auto" for a fair
    share of the window. `placement` is where its text stands: before the history (`anchor`), after
    it (`live`), or where it belongs by how often it changes (`auto`). An `eventual` layer's text is
    kept until its state changes. `state_type` is the type of the state, anything
    pydantic understands; give it when the saved state is not plain JSON.

    `ContextLayer[Handle]` with a Protocol of your own types `ctx.context[layer]`.
    """

    id: str = ""
    slot: float = 200
    scope: Scope = "thread"
    budget: BudgetWish = None
    placement: PlacementWish = "auto"
    recall_mode: RecallMode = "atomic"
    on_init_error: OnInitError = "throw"
    on_before_tool_call_error: OnToolCallError = "abstain"
    timeouts: Mapping[str, float] = {}
    provides: Mapping[str, LayerData | LayerFunction] = {}
    state_type: Any = None

    __noetic_layer__: ClassVar[bool] = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def init(self, params: InitParams) -> Any:
        """The state to begin with. Not called where a saved state is taken up."""

    async def recall(self, params: RecallParams) -> str | Recall | None:
        """What the model should see now; None and "" are nothing."""

    async def store(self, params: StoreParams) -> Update | None:
        """Learn from a step that was answered."""

    async def on_spawn(self, params: SpawnParams) -> SpawnSeed | None:
        """Seed a child's state; with None the layer begins in the child by itself."""

    async def on_return(self, params: ReturnParams) -> Merge | None:
        """Take in what a successful child brings back."""

    async def on_complete(self, params: CompleteParams) -> Update | None:
        """The context has ended."""

    async def dispose(self, params: DisposeParams) -> None:
        """Let go of what `init` took."""

    async def before_tool_call(self, params: ToolCallParams) -> Judgement | None:
        """Judge a tool call before it runs."""

    async def after_model_call(self, params: ModelCallParams) -> Judgement | None:
        """Judge an answer before it is logged."""

    async def on_item_append(self, params: AppendParams) -> Sequence[Item] | Appended | None:
        """Change what is about to be logged; None leaves it as it is."""

    async def project_history(self, params: ProjectParams) -> Sequence[Item] | None:
        """Change how the history looks to the model; None leaves it as it is."""

    async def render_delta(self, params: DeltaParams) -> str | None:
        """Say only what changed; None gives the whole text."""


def has_hook(layer: ContextLayer[Any], name: str) -> bool:
    """Whether a layer overrides a hook, in its class or on the object."""
    if name in getattr(layer, "__dict__", ()):
        return True
    return getattr(type(layer), name) is not getattr(ContextLayer, name)


def timeout_of(layer: ContextLayer[Any], hook: str) -> float | None:
    """Seconds a hook may take; None is no limit."""
    seconds = layer.timeouts.get(hook, TIMEOUTS[hook])
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def check_layer(layer: object) -> ContextLayer[Any]:
    """Raises ConfigError `INVALID_LAYER` naming what is wrong with a layer."""
    if isinstance(layer, type) and issubclass(layer, ContextLayer):
        raise _bad(layer.__name__, "is a class", f"Give an object: {layer.__name__}().")
    if not isinstance(layer, ContextLayer):
        raise _bad(repr(layer), "is not a layer", "Derive from nr.ContextLayer.")
    what = f"layer {layer.id!r}"
    if not _is_name(layer.id):
        raise _bad(type(layer).__name__, f"has the id {layer.id!r}", "Give it a short text.")
    _check_choices(layer, what)
    _check_numbers(layer, what)
    _check_provides(layer, what)
    return layer


def check_layers(layers: object, what: str) -> tuple[ContextLayer[Any], ...]:
    """Layers as a tuple. Raises ConfigError `INVALID_LAYER` or `DUPLICATE_LAYER`."""
    if layers is None:
        return ()
    if isinstance(layers, ContextLayer) or not isinstance(layers, Sequence):
        raise _bad(f"layers of {what}", f"are {layers!r}", "Give a list of layers.")
    kept = tuple(check_layer(layer) for layer in layers)
    seen: set[str] = set()
    for layer in kept:
        if layer.id in seen:
            raise ConfigError(
                "DUPLICATE_LAYER",
                f"two layers of {what} have the id {layer.id!r}",
                "Give each its own id; a layer's state and its place in ctx.context go by it.",
            )
        seen.add(layer.id)
    return kept


_CHOICES = {
    "scope": get_args(Scope),
    "placement": get_args(PlacementWish),
    "recall_mode": get_args(RecallMode),
    "on_init_error": get_args(OnInitError),
    "on_before_tool_call_error": get_args(OnToolCallError),
}


def _check_choices(layer: ContextLayer[Any], what: str) -> None:
    for name, choices in _CHOICES.items():
        if getattr(layer, name) not in choices:
            raise _bad(
                what,
                f"has {name}={getattr(layer, name)!r}",
                f"Choose one of {', '.join(choices)}.",
            )


def _check_numbers(layer: ContextLayer[Any], what: str) -> None:
    if not _number(layer.slot):
        raise _bad(what, f"has slot={layer.slot!r}", "Give a number; smaller ones come first.")
    if not _budget_fits(layer.budget):
        raise _bad(
            what,
            f"has budget={layer.budget!r}",
            'Give tokens, (least, most), "auto" or None.',
        )
    for hook, seconds in layer.timeouts.items():
        if hook not in TIMEOUTS or not _number(seconds):
            raise _bad(
                what,
                f"has the timeout {hook!r}: {seconds!r}",
                f"Give seconds for one of {', '.join(TIMEOUTS)}; 0 is no limit.",
            )


def _is_name(id: object) -> bool:
    """A text that can be written down, so that a saved state is found again."""
    return isinstance(id, str) and bool(id.strip()) and clean_text(id) == id


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _budget_fits(budget: object) -> bool:
    if budget is None or budget == "auto":
        return True
    if isinstance(budget, tuple):
        return (
            len(budget) == 2
            and all(_number(each) for each in budget)
            and 0 <= budget[0] <= budget[1]
        )
    return _number(budget) and budget >= 0  # type: ignore[operator]


def _check_provides(layer: ContextLayer[Any], what: str) -> None:
    if not layer.provides:
        return
    from noetic_ray.layers.provides import LayerData, LayerFunction

    for name, part in layer.provides.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise _bad(what, f"provides {name!r}", "A name must be usable as an attribute.")
        if not isinstance(part, LayerData | LayerFunction):
            raise _bad(
                what,
                f"provides {name}={part!r}",
                "Use nr.layer_data(fn) for data and nr.layer_function(fn) for functions.",
            )


def _bad(what: str, why: str, hint: str) -> ConfigError:
    return ConfigError("INVALID_LAYER", f"{what} {why}", hint)
