"""Descriptions of channels: typed, named ways between contexts. Their buffers live elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, overload

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from noetic_ray.errors import ChannelSchemaError, ConfigError

__all__ = ["Channel", "ChannelMode", "channel"]

T = TypeVar("T")
ChannelMode: TypeAlias = Literal["value", "queue", "topic"]

_MODES: tuple[str, ...] = get_args(ChannelMode)
_EXACT = (int, str, float, bool, bytes)
_ANYTHING = (None, object, Any)
_MAX_ERRORS = 10


@dataclass(frozen=True, slots=True)
class Channel(Generic[T]):
    """Made by :func:`channel`. Picklable; two with the same settings are equal."""

    name: str
    schema: Any
    mode: ChannelMode
    capacity: int
    external: bool
    _adapter: TypeAdapter[T] | None = field(default=None, init=False, repr=False, compare=False)

    def validate(self, value: Any) -> T:
        """The value as the schema makes it. Raises ChannelSchemaError when it does not fit."""
        schema = self.schema
        if schema is object or schema is None or (schema in _EXACT and type(value) is schema):
            return cast(T, value)
        adapter = self._adapter
        if adapter is None:
            adapter = _adapter_for(self.name, schema)
            object.__setattr__(self, "_adapter", adapter)
        try:
            return adapter.validate_python(value)
        except ValidationError as wrong:
            raise ChannelSchemaError(self.name, _errors(wrong)) from None
        except Exception as broken:
            said = {"loc": [], "msg": str(broken), "type": type(broken).__name__}
            raise ChannelSchemaError(self.name, [said]) from broken

    def __reduce__(self) -> tuple[Any, ...]:
        settings = (self.name, self.schema, self.mode, self.capacity, self.external)
        return Channel, settings


def _adapter_for(name: str, schema: Any) -> TypeAdapter[Any]:
    try:
        try:
            return TypeAdapter(schema)
        except PydanticSchemaGenerationError:
            if not isinstance(schema, type) and get_origin(schema) is None:
                raise
            return TypeAdapter(schema, config=ConfigDict(arbitrary_types_allowed=True))
    except Exception as broken:
        raise ConfigError(
            "INVALID_CHANNEL_SCHEMA",
            f"Channel {name!r}: {schema!r} cannot check values ({broken}).",
            "Give a type that pydantic understands, or object for anything.",
        ) from broken


def _errors(wrong: ValidationError) -> list[dict[str, Any]]:
    found = wrong.errors(include_url=False, include_context=False, include_input=False)
    return [
        {"loc": list(each["loc"]), "msg": each["msg"], "type": each["type"]}
        for each in found[:_MAX_ERRORS]
    ]


@overload
def channel(
    name: str,
    schema: type[T],
    mode: ChannelMode = "value",
    capacity: int = 1000,
    external: bool = False,
) -> Channel[T]: ...
@overload
def channel(
    name: str,
    schema: Any = None,
    mode: ChannelMode = "value",
    capacity: int = 1000,
    external: bool = False,
) -> Channel[Any]: ...
def channel(
    name: str,
    schema: Any = None,
    mode: ChannelMode = "value",
    capacity: int = 1000,
    external: bool = False,
) -> Channel[Any]:
    """Describe a channel.

    ``schema`` is any type pydantic understands; None or ``object`` lets everything through.
    ``value`` keeps the last value for everybody, ``queue`` gives each value to one receiver and
    holds ``capacity`` of them, ``topic`` reaches those who wait at that moment. ``external`` lets
    code outside the harness's contexts use it. Raises ConfigError.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(
            "EMPTY_CHANNEL_NAME",
            f"A channel needs a name, {name!r} is none.",
            "Give a text that is not empty.",
        )
    if mode not in _MODES:
        raise ConfigError(
            "UNKNOWN_CHANNEL_MODE",
            f"Channel {name!r}: there is no mode {mode!r}.",
            f"Use one of {', '.join(_MODES)}.",
        )
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ConfigError(
            "INVALID_CAPACITY",
            f"Channel {name!r}: {capacity!r} is no capacity.",
            "Give a whole number of at least 1.",
        )
    plain = None if any(schema is each for each in _ANYTHING) else schema
    return Channel(name, plain, mode, capacity, bool(external))


def expect_channel(channel: object, where: str) -> None:
    """Raise TypeError unless `channel` is one."""
    if not isinstance(channel, Channel):
        raise TypeError(
            f"{where} takes a channel made with nr.channel(...), not {type(channel).__name__}"
        )
