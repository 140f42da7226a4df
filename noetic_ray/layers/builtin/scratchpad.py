"""Notes an agent keeps: free text, free data, or data of a given shape."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ValidationError

from noetic_ray.errors import ConfigError
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope, check_layer
from noetic_ray.layers.builtin.fields import arguments_of, fitted
from noetic_ray.layers.builtin.merging import deep_merge, plain, same, take_changes
from noetic_ray.layers.builtin.rendering import as_json, tagged
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
from noetic_ray.tools.errors import problems_of

Value = str | dict[str, Any]
PREVIOUS = "_previous"


class Nothing(BaseModel):
    """No arguments."""


class Scratchpad(ContextLayer[Any]):
    """Notes an agent keeps: `update(...)` merges, `replace(...)` and `clear()` do what they say.

    Without a schema the notes are a text or a dict; a text that gets a dict keeps the old text
    under `_previous`. With one, a pydantic model, what is kept must fit it. Dicts are merged deep,
    lists and other values replaced; data is at most 32 deep. `snapshot` is a copy of the notes,
    `text` what the model sees. `template` is a form for the notes, shown while there are none.
    `read_only` offers no functions. Children have copies; what a successful child changed comes
    back, and of several that changed the same key or list the last one wins. With scope
    "execution" each context has notes of its own. `budget` is in tokens.

    Example: `await ctx.context["scratchpad"].update({"city": "Oslo"})`.

    State: {"value": the notes, "seed": what a child began with}.
    """

    def __init__(
        self,
        schema: type[BaseModel] | None = None,
        *,
        id: str = "scratchpad",
        slot: float = slots.SCRATCHPAD,
        scope: Scope = "thread",
        budget: BudgetWish = (200, 1500),
        read_only: bool = False,
        initial: Value | None = None,
        template: str | None = None,
    ) -> None:
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.schema = schema
        self.template = template
        self._check_options()
        self.initial = self._checked_initial(initial)
        self.provides = self._provided(read_only)
        check_layer(self)

    def _check_options(self) -> None:
        schema, template = self.schema, self.template
        if schema is not None and not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            raise self._bad(
                f"the schema {schema!r}", "Give a pydantic model class, or None for free notes."
            )
        if template is not None and not (isinstance(template, str) and template.strip()):
            raise self._bad(f"the template {template!r}", "Give a text, or None.")

    def _checked_initial(self, initial: Any) -> Any:
        if initial is None:
            return None
        if not isinstance(initial, str | dict | BaseModel):
            raise self._bad(f"initial={initial!r}", "Give a text or a dict.")
        try:
            return self._checked(initial)
        except ValueError as problem:
            raise self._bad(f"initial={initial!r}: {problem}", "Give what fits.") from None

    def _bad(self, what: str, hint: str) -> ConfigError:
        return ConfigError("INVALID_LAYER", f"layer {self.id!r} has {what}", hint)

    def _provided(self, read_only: bool) -> dict[str, Any]:
        data = {"snapshot": layer_data(_snapshot), "text": layer_data(_text)}
        if read_only:
            return data
        part, whole = self._arguments()
        return {
            **data,
            "update": layer_function(
                self._update, part, "Note something: new fields are merged into what is there."
            ),
            "replace": layer_function(self._replace, whole, "Write the notes anew, as a whole."),
            "clear": layer_function(self._clear, description="Throw all notes away."),
        }

    def _arguments(self) -> tuple[Any, Any]:
        if self.schema is None:
            return Value, Value
        try:
            return arguments_of(self.schema, True), arguments_of(self.schema, False)
        except Exception as problem:
            raise self._bad(
                f"the schema {self.schema.__name__}: {problem}",
                "Give a model with a JSON schema of named fields.",
            ) from None

    async def init(self, params: InitParams) -> dict[str, Any]:
        """The initial notes, if any."""
        return {"value": self.initial}

    async def recall(self, params: RecallParams) -> str | None:
        """The notes in a tag; while there are none the template, or nothing."""
        text = _text(params.state) or self.template
        return tagged("scratchpad", text, params.budget) if text else None

    async def on_spawn(self, params: SpawnParams) -> SpawnSeed:
        """A child has a copy, or with scope "execution" notes of its own from the start."""
        if self.scope == "execution":
            return SpawnSeed({"value": self.initial})
        value = _value(params.parent_state)
        return SpawnSeed({"value": value, "seed": value})

    async def on_return(self, params: ReturnParams) -> Merge | None:
        """What a child changed is taken over, key by key; a changed list as a whole."""
        child = params.child_state or {}
        if self.scope == "execution":
            return None
        ours = _value(params.parent_state)
        merged = _taken(ours, child.get("seed"), child.get("value"))
        if same(merged, ours):
            return None
        return Merge(state={**(params.parent_state or {}), "value": self._checked(merged)})

    def _update(self, value: Any, state: Any, ctx: Any) -> Provided:
        return self._kept(_value(state), value, state)

    def _replace(self, value: Any, state: Any, ctx: Any) -> Provided:
        return self._kept(None, value, state)

    def _clear(self, _: Nothing, state: Any, ctx: Any) -> Provided:
        return Provided("cleared", {**(state or {}), "value": None})

    def _kept(self, now: Any, value: Any, state: Any) -> Provided:
        try:
            checked = self._checked(_merged(now, plain(value)))
        except ValueError as problem:
            raise ValueError(f"the notes stay as they were: {problem}") from None
        return Provided(deepcopy(checked), {**(state or {}), "value": checked})

    def _checked(self, value: Any) -> Any:
        """The value as it is kept. Raises ValueError when it does not fit the schema."""
        value = plain(value)
        if self.schema is None or value is None:
            return value
        try:
            return fitted(self.schema, value)
        except ValidationError as problem:
            raise ValueError(problems_of(problem)) from None


def _value(state: Any) -> Any:
    return state.get("value") if isinstance(state, dict) else None


def _snapshot(state: Any) -> Any:
    return deepcopy(_value(state))


def _text(state: Any) -> str:
    value = _value(state)
    if not value:
        return ""
    if isinstance(value, str):
        return value if value.strip() else ""
    return as_json(value)


def _merged(now: Any, value: Any) -> Any:
    if isinstance(now, str) and now and isinstance(value, dict):
        return {PREVIOUS: now, **value} if value else now
    return deep_merge(now, value)


def _taken(ours: Any, seed: Any, theirs: Any) -> Any:
    """What a child changed, in ours; data and a text that met by chance are both kept."""
    if same(theirs, seed) or same(ours, seed):
        return ours if same(theirs, seed) else theirs
    if isinstance(ours, str) and isinstance(theirs, dict):
        return _merged(ours, theirs)
    if isinstance(ours, dict) and isinstance(theirs, str) and ours:
        return {**ours, PREVIOUS: theirs} if theirs else ours
    if isinstance(ours, dict) and theirs is None:
        theirs = {}
    return take_changes(ours, seed, theirs)
