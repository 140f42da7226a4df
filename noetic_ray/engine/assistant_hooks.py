"""What assistants are told and what their hooks return, read into values. Nothing is done here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noetic_ray.engine.model_call import as_input as text_as_input
from noetic_ray.errors import ConfigError, ItemSchemaMismatch
from noetic_ray.items import Item, ItemBase, parse_item, user_message
from noetic_ray.steps.assistant import AssistantReply
from noetic_ray.steps.base import Step

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

_CREATE_TEXTS = ("connector", "locale", "theme", "route")
_CREATE = {"messages", "temperature", "max_tokens", "max_completion_tokens", "metadata"}
_CREATE_KEYS = _CREATE.union(_CREATE_TEXTS)
_NEXT_KEYS = {"data", "delegate", "metadata"}
_DELEGATE_KEYS = {"agent_id", "messages"}
#: How `create` may limit the output; the first that is given counts, and no setting beside it.
_LIMITS = ("max_completion_tokens", "max_tokens")
_ALL_LIMITS = (*_LIMITS, "max_output_tokens")


class Created(NamedTuple):
    """What `create` asked for. `messages` None leaves them as they are."""

    messages: tuple[Item, ...] | None = None
    settings: Mapping[str, Any] = {}
    request: Mapping[str, Any] = {}
    unknown: tuple[str, ...] = ()

    def over(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """The step's settings with these over them."""
        limited = any(name in self.settings for name in _LIMITS)
        kept = {
            name: value for name, value in settings.items() if not (limited and name in _ALL_LIMITS)
        }
        return {**kept, **self.settings}


class Delegation(NamedTuple):
    """Who answers instead; `messages` None are those the hook was given."""

    agent: str | Step[Any, Any]
    messages: tuple[Item, ...] | None = None


class Nexted(NamedTuple):
    """What `next` asked for."""

    data: Any = None
    delegate: Delegation | None = None
    metadata: Mapping[str, Any] = {}
    unknown: tuple[str, ...] = ()


# -- messages ------------------------------------------------------------------------------------


def as_input(cell: Cell, given: Any) -> tuple[Item, ...]:
    """An assistant's input as items for the log.

    A text, or a reply's, that the model has just said is not said again. Raises ConfigError
    `INVALID_INPUT`, or ItemSchemaMismatch for a dict that is no message.
    """
    if isinstance(given, AssistantReply):
        given = given.text
    if given is None:
        return ()
    if isinstance(given, str):
        return tuple(text_as_input(cell, given))
    try:
        return as_items(cell, given)
    except TypeError as wrong:
        raise ConfigError("INVALID_INPUT", f"an assistant was given {wrong}") from None


def as_items(cell: Cell, given: Any) -> tuple[Item, ...]:
    """A text, an item, a dict, or a list of those. Raises ItemSchemaMismatch, or TypeError."""
    if isinstance(given, str | Mapping | ItemBase):
        return (_as_item(cell, given),)
    if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray):
        return tuple(_as_item(cell, each) for each in given)
    raise TypeError(f"a {type(given).__name__}; give a text, an item, a dict or a list of them")


def _as_item(cell: Cell, given: Any) -> Item:
    if isinstance(given, str):
        return user_message(given)
    if not isinstance(given, Mapping | ItemBase):
        raise TypeError(f"a {type(given).__name__} among its messages; give texts, items or dicts")
    if isinstance(given, Mapping) and "role" in given and not given.get("type"):
        given = {**given, "type": "message", "content": _parts(given)}
    config = cell.rt.config
    return parse_item(given, extension_types=config.item_types, strict=config.strict_items)


def _parts(message: Mapping[str, Any]) -> Any:
    """A message's content, parts as a chat completion has them in our own form."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return content
    written = "output_text" if message.get("role") == "assistant" else "input_text"
    return [_part(part, written) for part in content]


def _part(part: Any, written: str) -> Any:
    if not isinstance(part, Mapping):
        return part
    if part.get("type") == "text":
        return {**part, "type": written}
    image = part.get("image_url")
    if part.get("type") == "image_url" and isinstance(image, Mapping):
        detail = image.get("detail") or "auto"
        return {"type": "input_image", "image_url": image.get("url"), "detail": detail}
    return part


def added_to(log: Sequence[Item], messages: Sequence[Item]) -> tuple[Item, ...] | None:
    """What messages have behind all the log has; None when they do not begin with it."""
    if len(messages) < len(log) or not all(map(_alike, log, messages)):
        return None
    return tuple(messages[len(log) :])


def _alike(logged: Item, given: Item) -> bool:
    if given is logged:
        return True
    apart = {"id", "provider_id"}
    return logged.type == given.type and (
        logged.model_dump(exclude=apart) == given.model_dump(exclude=apart)
    )


# -- what hooks return ---------------------------------------------------------------------------


class _Reader:
    """Reads one dict a hook returned; what is wrong with it is ConfigError."""

    def __init__(self, cell: Cell, step: Any, hook: str, result: Any, known: set[str]) -> None:
        self.cell = cell
        self.what = f"{hook} of step {step.id!r}"
        if not isinstance(result, Mapping):
            raise self.wrong(f"returned {result!r:.200}", "Return a dict, or None.")
        self.given = result
        self.unknown = tuple(str(name) for name in result if name not in known)

    def wrong(self, said: str, hint: str) -> ConfigError:
        return ConfigError("INVALID_HOOK_RESULT", f"{self.what} {said}", hint)

    def get(self, name: str, fits: Callable[[Any], bool], needed: str) -> Any:
        """The value under a name; None when there is none."""
        value = self.given.get(name)
        if value is not None and not fits(value):
            raise self.wrong(f"returned {value!r:.200} as {name}", f"Give {needed}.")
        return value

    def text(self, name: str) -> str | None:
        return self.get(name, lambda value: isinstance(value, str), "a text") or None

    def values(self, name: str) -> dict[str, Any]:
        found = self.get(name, _is_values, "a dict whose keys are texts")
        return dict(found or {})

    def messages(self) -> tuple[Item, ...] | None:
        given = self.given.get("messages")
        if given is None or given == "":
            return None
        try:
            return as_items(self.cell, given) or None
        except (TypeError, ItemSchemaMismatch) as wrong:
            hint = "Give a text, or a list of items and {role, content} dicts."
            raise self.wrong(f"returned messages that are none: {wrong}", hint) from None


def read_created(cell: Cell, step: Any, result: Any) -> Created:
    """Raises ConfigError `INVALID_HOOK_RESULT`."""
    if result is None:
        return Created()
    reader = _Reader(cell, step, "create", result, _CREATE_KEYS)
    settings: dict[str, Any] = {}
    temperature = reader.get("temperature", _is_number, "a number, 0 or more")
    if temperature is not None:
        settings["temperature"] = temperature
    limits = {name: reader.get(name, _is_count, "a whole number, at least 1") for name in _LIMITS}
    limit = next((name for name in _LIMITS if limits[name] is not None), None)
    if limit is not None:
        settings[limit] = limits[limit]
    request: dict[str, Any] = {name: reader.text(name) for name in _CREATE_TEXTS}
    request["metadata"] = reader.values("metadata") or None
    changes = {name: value for name, value in request.items() if value is not None}
    return Created(reader.messages(), settings, changes, reader.unknown)


def read_next(cell: Cell, step: Any, result: Any) -> Nexted:
    """Raises ConfigError `INVALID_HOOK_RESULT`."""
    if result is None:
        return Nexted()
    reader = _Reader(cell, step, "next", result, _NEXT_KEYS)
    data = {} if not result else reader.given.get("data")
    metadata = reader.values("metadata")
    wanted = reader.given.get("delegate")
    if wanted is None:
        return Nexted(data, None, metadata, reader.unknown)
    inner = _Reader(cell, step, "the delegate that next", wanted, _DELEGATE_KEYS)
    agent = inner.get("agent_id", _is_agent, "the id of an assistant, or a step")
    if agent is None:
        raise inner.wrong("returned has no agent_id", "Name an assistant, or give a step.")
    unknown = reader.unknown + tuple(f"delegate.{name}" for name in inner.unknown)
    return Nexted(data, Delegation(agent, inner.messages()), metadata, unknown)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_values(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_agent(value: Any) -> bool:
    return isinstance(value, Step) or (isinstance(value, str) and value != "")
