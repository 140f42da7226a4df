"""What a session is told: texts and items, as the messages of one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Any, Literal, get_args

from noetic_ray.canonical import clean_text
from noetic_ray.engine.spec import EngineConfig
from noetic_ray.errors import ConfigError
from noetic_ray.harness.session_queue import SentMessage
from noetic_ray.items import Item, ItemBase, MessageItem, item_text, parse_item, user_message

Mode = Literal["next_turn", "between_rounds", "interrupt"]
Said = str | Item | Mapping[str, Any] | Sequence[str | Item | Mapping[str, Any]]
"""What `send` and `seed` take."""


def as_message(said: Said, mode: Mode, message_id: str | None, config: EngineConfig) -> SentMessage:
    """The message `send` was given. Raises ConfigError, or ItemSchemaMismatch for a wrong dict."""
    if mode not in get_args(Mode):
        known = ", ".join(get_args(Mode))
        raise ConfigError("UNKNOWN_MODE", f"a session has no mode {mode!r}", f"Use one of {known}.")
    items = as_items(said, config)
    if not items or not all(item_text(item) or not _is_plain(item) for item in items):
        raise ConfigError("EMPTY_MESSAGE", f"there is nothing to send in {said!r:.100}")
    if mode == "between_rounds" and not all(isinstance(item, MessageItem) for item in items):
        raise ConfigError(
            "NOT_A_MESSAGE",
            "only messages can be given to a turn that runs",
            'Send other items with mode="next_turn".',
        )
    id, items = _named(items, message_id)
    return SentMessage(id, items, mode, copy_context())  # the span to be the parent of the run's


def as_items(said: Said, config: EngineConfig) -> tuple[Item, ...]:
    """Texts become user messages, dicts items."""
    if isinstance(said, str | Mapping | ItemBase):
        return (_as_item(said, config),)
    if isinstance(said, list | tuple):
        return tuple(_as_item(each, config) for each in said)
    raise TypeError(
        "a session takes a text, an item, a dict of an item, or a list of them, "
        f"not {type(said).__name__}"
    )


def text_of(items: Sequence[Item]) -> str:
    """What the agent step gets as its input: the text of the last item, if it is the user's."""
    return item_text(items[-1]) if getattr(items[-1], "role", None) == "user" else ""


def _as_item(said: Any, config: EngineConfig) -> Item:
    if isinstance(said, str):
        return user_message(said)
    return parse_item(said, extension_types=config.item_types, strict=config.strict_items)


def _is_plain(item: Item) -> bool:
    """Whether it is a message of texts only."""
    return isinstance(item, MessageItem) and all(hasattr(part, "text") for part in item.content)


def _named(items: tuple[Item, ...], message_id: str | None) -> tuple[str, tuple[Item, ...]]:
    """The message's id, and its items with that id on the last user message."""
    asking = [n for n, item in enumerate(items) if getattr(item, "role", None) == "user"]
    place = asking[-1] if asking else len(items) - 1
    if message_id is None:
        return items[place].id, items
    if not isinstance(message_id, str) or not message_id or clean_text(message_id) != message_id:
        raise ConfigError(
            "INVALID_MESSAGE_ID", f"message_id is {message_id!r}", "Give a text or None."
        )
    named = items[place].model_copy(update={"id": message_id})
    return message_id, (*items[:place], named, *items[place + 1 :])
