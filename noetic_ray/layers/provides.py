"""What a layer offers on `ctx.context[id]`: data read live, and functions that may change it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from noetic_ray.errors import ConfigError
from noetic_ray.signatures import check_callback, globals_of, is_async, name_of
from noetic_ray.tools.arguments import names_used, resolve_hint
from noetic_ray.tools.errors import problems_of, unusable

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class LayerData:
    """A value computed from the layer's state whenever it is read."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[Any], Any]) -> None:
        check_callback("the function of layer_data", read, "state")
        self.read = read


class Shape(NamedTuple):
    """How a function's arguments look from outside.

    `alone` is the one keyword's name when the first parameter is no object of named fields.
    """

    adapter: TypeAdapter[Any] | None
    alone: str | None
    schema: dict[str, Any]


class LayerFunction:
    """A function of a layer: `fn(args, state, ctx)`, `fn(args, state)`, `fn(args)` or `fn()`.

    Its arguments are validated by the type of the first parameter before it runs.
    """

    __slots__ = ("_input", "_scope", "_shape", "description", "fn", "is_async", "takes")

    def __init__(
        self, fn: Callable[..., Any], input: Any, description: str, scope: Mapping[str, Any]
    ) -> None:
        self.fn = fn
        self.description = description
        self.is_async = is_async(fn)
        self.takes = _count(fn)
        self._input = input
        self._scope = scope
        self._shape: Shape | None = None

    def __reduce__(self) -> Any:
        # The type travels resolved: a function sent by value arrives without the names of hints.
        return _again, (self.fn, self._type(), self.description)

    def _type(self) -> Any:
        if self._input is not None or not self.takes:
            return self._input
        first = _positional(self.fn)[0]
        return resolve_hint("a layer function", first, globals_of(self.fn), self._scope)

    @property
    def shape(self) -> Shape:
        """Made on first use. Raises ConfigError `INVALID_LAYER_FUNCTION`."""
        if self._shape is None:
            self._shape = _shape(self)
        return self._shape

    def call(self, args: Any, state: Any, ctx: Any) -> Any:
        """Call the function with what it takes: its value, or a coroutine when `is_async`."""
        return self.fn(*(args, state, ctx)[: self.takes])

    def validate(self, name: str, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """The first argument of `fn`. Raises ToolArgumentsError."""
        adapter, alone, schema = self.shape
        given = _given(name, positional, keywords, alone, schema)
        if adapter is None:
            if given not in ({}, None):
                raise unusable(name, "it takes none", given, schema)
            return None
        try:
            return adapter.validate_python(given)
        except ValidationError as problem:
            try:
                return adapter.validate_json(to_json(given))
            except ValueError:
                raise unusable(name, problems_of(problem), given, schema) from None


def layer_data(fn: Callable[[Any], Any]) -> LayerData:
    """Offer `fn(state)` as an attribute of `ctx.context[id]`, read live at each access."""
    return LayerData(fn)


def layer_function(
    fn: Callable[..., Any], input: Any = None, description: str | None = None
) -> LayerFunction:
    """Offer `fn(args, state, ctx)`, sync or async, as a function and as a tool for models.

    `args` is validated against the first parameter's type (a pydantic model, a dataclass, a
    TypedDict, ...) or against `input`. It is called with the fields as keywords, or with one
    value: `await ctx.context["x"].add(n=1)`. Return the result, or `nr.Provided(result, state)`
    to change the layer's state. The tool's description is the docstring unless given.

    Raises ConfigError `INVALID_LAYER_FUNCTION`.
    """
    if not callable(fn):
        raise _bad(f"{fn!r} cannot be called")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise _bad(f"{name_of(fn)} is a generator; a layer function returns one value")
    said = inspect.cleandoc(fn.__doc__ or "") if description is None else description
    return LayerFunction(fn, input, said, names_used(fn, sys._getframe(1).f_locals))


def _again(fn: Callable[..., Any], input: Any, description: str) -> LayerFunction:
    return LayerFunction(fn, input, description, {})


def _positional(fn: Callable[..., Any]) -> list[Parameter]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError) as problem:
        raise _bad(str(problem)) from None
    return [each for each in parameters if each.kind in _POSITIONAL]


def _count(fn: Callable[..., Any]) -> int:
    positional = _positional(fn)
    for extra in positional[3:]:
        if extra.default is Parameter.empty:
            raise _bad(f"nothing is passed for parameter {extra.name!r} of {name_of(fn)}")
    return min(len(positional), 3)


def _shape(function: LayerFunction) -> Shape:
    type_ = function._type()
    if type_ is None or type_ is type(None):
        return Shape(None, None, {"type": "object", "properties": {}})
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type_)
        schema = adapter.json_schema() or {"type": "object", "properties": {}}
    except Exception as problem:
        raise _bad(
            f"the arguments of {name_of(function.fn)} have no JSON schema: {problem}"
        ) from None
    if _is_object(schema):
        schema.pop("title", None)
        return Shape(adapter, None, schema)
    positional = _positional(function.fn)
    name = positional[0].name if positional else "value"
    definitions = schema.pop("$defs", None)
    wrapped = {"type": "object", "properties": {name: schema}, "required": [name]}
    if definitions:
        wrapped["$defs"] = definitions
    return Shape(adapter, name, wrapped)


def _is_object(schema: dict[str, Any]) -> bool:
    """Whether a JSON schema describes an object of named fields."""
    place = schema.get("$ref", "")
    if place:
        schema = schema.get("$defs", {}).get(place.rpartition("/")[2], {})
    return schema.get("type") == "object"


def _given(
    name: str,
    positional: tuple[Any, ...],
    keywords: Mapping[str, Any],
    alone: str | None,
    schema: dict[str, Any],
) -> Any:
    if len(positional) > 1 or (positional and keywords):
        raise unusable(name, "give keywords, or one value", [*positional, dict(keywords)], schema)
    if positional:
        return positional[0]
    if alone is None:
        return dict(keywords)
    if set(keywords) != {alone}:
        raise unusable(name, f"it takes {alone} alone", dict(keywords), schema)
    return keywords[alone]


def _bad(why: str) -> ConfigError:
    return ConfigError(
        "INVALID_LAYER_FUNCTION",
        why,
        "Write it as fn(args, state, ctx) with a typed first parameter, or give input=.",
    )
