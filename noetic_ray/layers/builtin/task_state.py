"""Facts about a task in namespaces, to which many children may add at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from noetic_ray.errors import ConfigError
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope, check_layer
from noetic_ray.layers.builtin.merging import plain, same, take_changes
from noetic_ray.layers.builtin.rendering import as_json, tagged_lines
from noetic_ray.layers.hooks import (
    InitParams,
    Merge,
    Provided,
    RecallParams,
    ReturnParams,
    SpawnParams,
    SpawnSeed,
)
from noetic_ray.layers.provides import layer_data, layer_function


class Values(BaseModel):
    """Values to set in a namespace."""

    namespace: str
    values: dict[str, Any]


class Keys(BaseModel):
    """Keys to remove from a namespace; all of it without keys."""

    namespace: str
    keys: list[str] | None = None


class TaskState(ContextLayer[Any]):
    """Facts about a task: `set(namespace, values)`, `get(namespace)`, `remove(namespace, keys)`.

    `snapshot` is a copy of all of it. `namespaces` allows only those. Children have copies, and
    what successful ones changed is merged key by key: what they added to a list is added once, a
    value several changed is the last one's, and what one removed is gone unless it was changed
    meanwhile. With scope "execution" each context has a state of its own. `budget` is in tokens.

    Example: `await ctx.context["task_state"].set(namespace="plan", values={"done": ["a"]})`.

    State: {"spaces": {namespace: {key: value}}, "seed": what a child began with}.
    """

    def __init__(
        self,
        *,
        id: str = "task_state",
        slot: float = slots.TASK_STATE,
        scope: Scope = "thread",
        budget: BudgetWish = None,
        namespaces: Iterable[str] | None = None,
    ) -> None:
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.namespaces = None if namespaces is None else frozenset(_checked_names(id, namespaces))
        self.provides = {
            "snapshot": layer_data(_snapshot),
            "get": layer_function(self._get, description="What is known in a namespace."),
            "set": layer_function(self._set, description="Set values in a namespace."),
            "remove": layer_function(self._remove, description="Remove keys of a namespace."),
        }
        check_layer(self)

    async def init(self, params: InitParams) -> dict[str, Any]:
        """Nothing is known yet."""
        return {"spaces": {}}

    async def recall(self, params: RecallParams) -> str | None:
        """A line for each namespace that has something."""
        spaces = _spaces(params.state)
        lines = (f"{name}: {as_json(spaces[name])}" for name in sorted(spaces) if spaces[name])
        return tagged_lines("task_state", lines, params.budget) or None

    async def on_spawn(self, params: SpawnParams) -> SpawnSeed:
        """A child has a copy, or with scope "execution" a state of its own from the start."""
        if self.scope == "execution":
            return SpawnSeed({"spaces": {}})
        spaces = _spaces(params.parent_state)
        return SpawnSeed({"spaces": spaces, "seed": spaces})

    async def on_return(self, params: ReturnParams) -> Merge | None:
        """A child's changes, key by key; what it added to lists is added."""
        child = params.child_state or {}
        if self.scope == "execution":
            return None
        ours = _spaces(params.parent_state)
        merged = take_changes(ours, child.get("seed", {}), _spaces(child), add_lists=True)
        if same(merged, ours):
            return None
        return Merge(state={**(params.parent_state or {}), "spaces": merged})

    def _get(self, namespace: str, state: Any, ctx: Any) -> dict[str, Any]:
        self._check(namespace)
        return deepcopy(_spaces(state).get(namespace, {}))

    def _set(self, args: Values, state: Any, ctx: Any) -> Provided:
        self._check(args.namespace)
        spaces = _spaces(state)
        space = {**spaces.get(args.namespace, {}), **plain(args.values)}
        state = {**(state or {}), "spaces": {**spaces, args.namespace: space}}
        return Provided(deepcopy(space), state)

    def _remove(self, args: Keys, state: Any, ctx: Any) -> Provided:
        self._check(args.namespace)
        spaces = dict(_spaces(state))
        space = spaces.pop(args.namespace, {})
        if args.keys is not None:
            gone = set(args.keys)
            space = {key: value for key, value in space.items() if key not in gone}
            spaces[args.namespace] = space
        else:
            space = {}
        return Provided(deepcopy(space), {**(state or {}), "spaces": spaces})

    def _check(self, namespace: str) -> None:
        if self.namespaces is not None and namespace not in self.namespaces:
            known = ", ".join(sorted(self.namespaces))
            raise ValueError(f"there is no namespace {namespace!r}; there are {known}")


def _checked_names(id: str, names: Iterable[str]) -> list[str]:
    kept = list(names) if isinstance(names, Iterable) else []
    if (
        isinstance(names, str | Mapping)
        or not kept
        or not all(isinstance(n, str) and n for n in kept)
    ):
        raise ConfigError(
            "INVALID_LAYER",
            f"the namespaces of layer {id!r} are {names!r}",
            "Give a list of names.",
        )
    return kept


def _spaces(state: Any) -> dict[str, Any]:
    return state.get("spaces", {}) if isinstance(state, dict) else {}


def _snapshot(state: Any) -> dict[str, Any]:
    return deepcopy(_spaces(state))
