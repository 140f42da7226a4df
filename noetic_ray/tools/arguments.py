"""From a function's parameters to a JSON schema, and from what a model wrote to keywords."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple, NoReturn, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_json, to_jsonable_python
from typing_extensions import TypedDict

from noetic_ray.errors import ConfigError
from noetic_ray.signatures import function_of, globals_of, is_context
from noetic_ray.tools.errors import problems_of, unusable

_WORD = re.compile(r"[^\W\d]\w*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_WHY = {
    Parameter.VAR_POSITIONAL: "a model names its arguments, *{} cannot be described",
    Parameter.VAR_KEYWORD: "**{} cannot be described; name the parameters",
    Parameter.POSITIONAL_ONLY: "{} is positional only, but arguments are passed by name",
}


class Parameters(NamedTuple):
    """What a tool takes. `hints` are resolved types, `defaults` the JSON ones a model may know."""

    hints: dict[str, Any]
    required: frozenset[str]
    defaults: dict[str, Any]
    context_name: str | None


class Arguments:
    """Describes and checks the arguments of one tool."""

    __slots__ = ("_adapter", "parameters", "schema", "tool")

    def __init__(self, tool: str, parameters: Parameters) -> None:
        self.tool = tool
        self.parameters = parameters
        try:
            self._adapter = _adapter(parameters)
            self.schema = _schema(self._adapter, parameters)
        except Exception as problem:
            raise ConfigError(
                "INVALID_TOOL_TYPE",
                f"the parameters of tool {tool!r} have no JSON schema: {problem}",
                "Use types pydantic understands, and annotate the context as nr.Context.",
            ) from problem

    def validate(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords for the function. Raises ToolArgumentsError."""
        if not isinstance(given, Mapping):
            self._refuse(f"they are a {type(given).__name__}, not an object", given)
        values = dict(given)
        try:
            return self._adapter.validate_python(values)
        except ValidationError as problem:
            as_json = self._validate_json(values)
            if as_json is None:
                self._refuse(problems_of(problem), given)
            return as_json

    def _validate_json(self, values: dict[str, Any]) -> dict[str, Any] | None:
        """Types that are strict with Python values still take the JSON form: dates, enums, ..."""
        try:
            return self._adapter.validate_json(to_json(values))
        except ValueError:
            return None

    def _refuse(self, problem: str, received: object) -> NoReturn:
        raise unusable(self.tool, problem, received, self.schema) from None


def _adapter(parameters: Parameters) -> TypeAdapter[dict[str, Any]]:
    fields = {
        name: hint if name in parameters.required else NotRequired[hint]
        for name, hint in parameters.hints.items()
    }
    make: Any = TypedDict
    shape: Any = with_config(ConfigDict(extra="forbid"))(make("Arguments", fields))
    return TypeAdapter(shape)


class _NoTitles(GenerateJsonSchema):
    """Leaves out titles made from field names; models would pay for them in tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _schema(adapter: TypeAdapter[Any], parameters: Parameters) -> dict[str, Any]:
    schema = adapter.json_schema(schema_generator=_NoTitles)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for name, value in parameters.defaults.items():
        schema["properties"][name].setdefault("default", value)
    return schema


def parse_arguments(tool: str, text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object a model wrote. Raises ToolArgumentsError.

    Nothing at all counts as `{}` for a tool without parameters. Numbers JSON does not have, keys
    given twice and anything after the object are refused rather than guessed at.
    """
    if not text.strip() and not schema.get("properties"):
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise unusable(tool, "they are nested too deep", text, schema) from None
    except ValueError as problem:
        what = f"not valid JSON ({problem})" if text.strip() else "they are empty"
        raise unusable(tool, what, text, schema) from None
    if not isinstance(found, dict):
        raise unusable(tool, f"they are {_kind(found)}, not an object", text, schema)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r:.100} is given twice")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {list: "an array", str: "a text", bool: "a boolean"}.get(type(value), "a number")


def read_parameters(tool: str, fn: Callable[..., Any], localns: Mapping[str, Any]) -> Parameters:
    """Look at a function's parameters and resolve their types.

    `localns` are names the annotations use that are no globals of the function. Raises ConfigError
    `INVALID_TOOL_SIGNATURE`.
    """
    globalns = globals_of(fn)
    hints: dict[str, Any] = {}
    required: set[str] = set()
    defaults: dict[str, Any] = {}
    context_name: str | None = None
    for name, each in _signature(tool, fn).items():
        if each.annotation is not Parameter.empty and is_context(
            each.annotation, globalns, localns
        ):
            context_name = name
            continue
        hints[name] = resolve_hint(tool, each, globalns, localns)
        if each.default is Parameter.empty:
            required.add(name)
        elif _is_json(each.default):
            defaults[name] = to_jsonable_python(each.default)
    return Parameters(hints, frozenset(required), defaults, context_name)


def check_signature(tool: str, fn: Callable[..., Any]) -> None:
    """Raise ConfigError `INVALID_TOOL_SIGNATURE` for parameters no model can fill."""
    for each in _signature(tool, fn).values():
        if each.kind in _WHY:
            raise _bad(tool, _WHY[each.kind].format(each.name))
        if isinstance(each.default, FieldInfo):
            raise _bad(
                tool, f"{each.name} has a Field as default; write Annotated[type, Field(...)]"
            )
        if each.name == "ctx" and each.annotation is Parameter.empty:
            raise _bad(tool, "annotate ctx as nr.Context, or the model is asked for it")


def _signature(tool: str, fn: Callable[..., Any]) -> Mapping[str, Parameter]:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError) as problem:
        raise _bad(tool, str(problem)) from None


def resolve_hint(
    tool: str, parameter: Parameter, globalns: dict[str, Any], localns: Mapping[str, Any]
) -> Any:
    """The type a parameter is annotated with; Any without one. `localns` as `read_parameters`."""
    if parameter.annotation is Parameter.empty:
        return Any
    holder: Any = type("Holder", (), {})()
    holder.__annotations__ = {"it": parameter.annotation}
    try:
        return get_type_hints(holder, globalns, dict(localns), include_extras=True)["it"]
    except Exception as problem:
        raise _bad(
            tool, f"the type {parameter.annotation!r} of {parameter.name} is unknown: {problem}"
        ) from None


def _is_json(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_json(each) for each in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_json(v) for k, v in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def _bad(tool: str, why: str) -> ConfigError:
    return ConfigError(
        "INVALID_TOOL_SIGNATURE",
        f"tool {tool!r} cannot be offered to a model: {why}",
        "Give it typed, named parameters.",
    )


def names_used(fn: Callable[..., Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """The names of `scope` that annotations of `fn`, written as text, refer to."""
    inner = function_of(fn)
    annotations = getattr(inner, "__annotations__", {}) if inner is not None else {}
    used: set[str] = set()
    for name, each in annotations.items():
        if name != "return":
            text = each if isinstance(each, str) else repr(each)
            used.update(_WORD.findall(text))
    return {name: scope[name] for name in used if name in scope}
