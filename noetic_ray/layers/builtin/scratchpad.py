"""Notes an agent keeps: free text, free data, or data of a given shape."""

from __future__ import annotations

from copy import deepcopy
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError, WithJsonSchema

from noetic_ray.errors import ConfigError
from noetic_ray.layers import slots
from noetic_ray.layers.base import BudgetWish, ContextLayer, Scope
from noetic_ray.layers.builtin.merging import deep_merge, take_changes
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


class Scratchpad(ContextLayer[Any]):
    """State: {"value": the notes, "seed": what a child began with}."""

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
    ) -> None:
        if schema is not None and not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            raise ConfigError(
                "INVALID_LAYER",
                f"the schema of layer {id!r} is {schema!r}",
                "Give a pydantic model class, or None for free notes.",
            )
        self.id = id
        self.slot = slot
        self.scope = scope
        self.budget = budget
        self.schema = schema
        self.initial = self._checked(initial) if initial is not None else None
        self.provides = self._provided(read_only)

    def _provided(self, read_only: bool) -> dict[str, Any]:
        data = {"snapshot": layer_data(_snapshot), "text": layer_data(_text)}
        if read_only:
            return data
        shape = Value if self.schema is None else _partial(self.schema)
        whole = Value if self.schema is None else self.schema
        return {
            **data,
            "update": layer_function(
                self._update, shape, "Note something: new fields are merged into what is there."
            ),
            "replace": layer_function(self._replace, whole, "Write the notes anew, as a whole."),
            "clear": layer_function(self._clear, description="Throw all notes away."),
        }

    async def init(self, params: InitParams) -> dict[str, Any]:
        """The initial notes, if any."""
        return {"value": deepcopy(self.initial)}

    async def recall(self, params: RecallParams) -> str | None:
        """The notes in a tag; nothing while there are none."""
        text = _text(params.state)
        return tagged("scratchpad", text, params.budget) if text else None

    async def on_spawn(self, params: SpawnParams) -> SpawnSeed:
        """A child has a copy."""
        value = _value(params.parent_state)
        return SpawnSeed({"value": deepcopy(value), "seed": deepcopy(value)})

    async def on_return(self, params: ReturnParams) -> Merge | None:
        """What a child changed is taken over, key by key; a changed list as a whole."""
        child = params.child_state or {}
        ours = _value(params.parent_state)
        merged = take_changes(ours, child.get("seed"), child.get("value"))
        if merged == ours:
            return None
        return Merge(state={**(params.parent_state or {}), "value": merged})

    def _update(self, value: Any, state: Any, ctx: Any) -> Provided:
        now = _value(state)
        try:
            merged = _merged(now, value)
        except ValueError as problem:
            raise ValueError(f"the notes stay as they were: {problem}") from None
        return self._kept(merged, state)

    def _replace(self, value: Any, state: Any, ctx: Any) -> Provided:
        given = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        return self._kept(given, state)

    def _clear(self, _: None, state: Any, ctx: Any) -> Provided:
        return Provided("cleared", {**(state or {}), "value": None})

    def _kept(self, value: Any, state: Any) -> Provided:
        checked = self._checked(value)
        return Provided(deepcopy(checked), {**(state or {}), "value": checked})

    def _checked(self, value: Any) -> Any:
        """The value as it is kept. Raises ValueError when it does not fit the schema."""
        if self.schema is None:
            return value
        try:
            return self.schema.model_validate(value).model_dump(mode="json", exclude_unset=True)
        except ValidationError as problem:
            raise ValueError(f"the notes stay as they were: {problems_of(problem)}") from None


def scratchpad(
    schema: type[BaseModel] | None = None,
    *,
    id: str = "scratchpad",
    slot: float = slots.SCRATCHPAD,
    scope: Scope = "thread",
    budget: BudgetWish = (200, 1500),
    read_only: bool = False,
    initial: Value | None = None,
) -> Scratchpad:
    """Notes an agent keeps: `update(...)` merges, `replace(...)` and `clear()` do what they say.

    Without a schema the notes are a text or a dict; a text that gets a dict keeps the old text
    under `_previous`. With one, a pydantic model, what is kept must fit it. Dicts are merged deep,
    lists and other values replaced. `snapshot` is a copy of the notes, `text` what the model sees.
    `read_only` offers no functions. Children have copies; what a successful child changed comes
    back, and of several that changed the same key the last one wins.

    Example: `await ctx.context["scratchpad"].update({"city": "Oslo"})`.
    """
    return Scratchpad(
        schema,
        id=id,
        slot=slot,
        scope=scope,
        budget=budget,
        read_only=read_only,
        initial=initial,
    )


def _value(state: Any) -> Any:
    return state.get("value") if isinstance(state, dict) else None


def _snapshot(state: Any) -> Any:
    return deepcopy(_value(state))


def _text(state: Any) -> str:
    value = _value(state)
    if not value:
        return ""
    return value if isinstance(value, str) else as_json(value)


def _merged(now: Any, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(now, str) and now:
        return deep_merge({PREVIOUS: now}, value)
    return deep_merge(now, value)


def _partial(schema: type[BaseModel]) -> Any:
    """Any part of a model: its fields are described, and none is required."""
    described = TypeAdapter(schema).json_schema()
    described.pop("required", None)
    described.pop("title", None)
    return Annotated[dict[str, Any], WithJsonSchema(described)]
