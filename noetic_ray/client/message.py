"""A message as a client sees it, and what may be said to become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from noetic_ray.canonical import canonical, clean_text
from noetic_ray.error_record import type_name
from noetic_ray.errors import MessageError
from noetic_ray.request import RequestInfo

__all__ = ["Message"]

SENT = "message.sent"
REPLACED = "message.replaced"
APPENDED = "message.appended"
MESSAGE_TYPES = frozenset({SENT, REPLACED, APPENDED})

_OWN_KEYS = frozenset({"type", "props", "message_id"})
_TEXT_EXTRAS = ("chunk_id", "block_id", "thread_id")
_EXTRAS = frozenset({*_TEXT_EXTRAS, "metadata"})
_SET_BY_US = frozenset({"delta", "delta_path", "delta_action", "type_change"})
_APPENDABLE = ("text", "thinking")

#: A change of a message: one of `MESSAGE_TYPES`, the context that made it, the event's data.
Change: TypeAlias = tuple[str, str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the final view. `context_id` names the context that sent it."""

    id: str
    type: str
    props: dict[str, Any] = field(default_factory=dict)
    context_id: str = ""


def as_message(
    given: str | Mapping[str, Any],
) -> tuple[str, dict[str, Any], dict[str, Any], str | None]:
    """What was given to be sent, as (type, props, extra, message id).

    A text is short for ``{"type": "text", "props": {"content": text}}``. A missing, None or empty
    `message_id` gives None: an id is made. Besides `type`, `props` and `message_id` a message may
    have `metadata` (a mapping) and `chunk_id`, `block_id`, `thread_id` (texts): a client gets them
    as they are, in `extra`; None there is as good as nothing. `delta` and its companions are set
    by `replace` and `append` and refused here, like all other keys.

    Everything comes back as JSON that shares nothing with what was given. Raises MessageError.
    """
    if isinstance(given, str):
        return "text", {"content": clean_text(str.__str__(given))}, {}, None
    if not isinstance(given, Mapping):
        raise MessageError(f"a message is a text or a dict, not {type_name(type(given))}")
    message_id = _message_id(given.get("message_id"))
    _check_keys(given, message_id)
    type_ = given.get("type")
    if not isinstance(type_, str) or not type_:
        raise MessageError("a message needs a `type`: a text that is not empty", message_id)
    if not _is_clean(type_):
        raise MessageError("the `type` of a message must be text that UTF-8 can hold", message_id)
    return str.__str__(type_), _props(given, message_id), _extra(given, message_id), message_id


def check_sendable(type: str, props: Mapping[str, Any], accept: str) -> None:
    """Raise MessageError for what the client's format cannot show.

    `standard` shows an image by its address, so it needs a `url`.
    """
    if type == "image" and not url_of(props) and format_of(accept) == "standard":
        raise MessageError(
            "an image for a client of the standard format needs `url` in its props: "
            "a text that is not empty"
        )


def check_appendable(type: str, props: Mapping[str, Any]) -> None:
    """Raise MessageError unless text can be added to the message.

    It can to a `text` or `thinking` message whose `content` is a text.
    """
    if type not in _APPENDABLE:
        raise MessageError(
            f"no text can be added to a message of type {type!r}, only to text and thinking; "
            "replace it"
        )
    if not isinstance(props.get("content"), str):
        raise MessageError(
            f"no text can be added to a {type} message whose `content` is not a text; replace it"
        )


def format_of(accept: str | None) -> str:
    """The format a client asked for, aliases resolved: `standard` or one of `cui-*`."""
    return RequestInfo.of({"accept": accept}).accept


def url_of(props: Mapping[str, Any]) -> str:
    """The address in the props, or an empty text."""
    url = props.get("url")
    return url.strip() if isinstance(url, str) else ""


class SendOrder:
    """Brings changes of messages into an order in which none comes before its message.

    A context may change what one above it sent, and its change may be recorded first. Such
    changes are held until the message comes, or until nobody expects it any more.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._held: dict[str, list[Change]] = {}

    def take(self, type: str, context_id: str, data: Mapping[str, Any]) -> list[Change]:
        """What may be told now, in order."""
        change = type, context_id, data
        message_id = str(data["message_id"])
        if type == SENT:
            self._known.add(message_id)
            return [change, *self._held.pop(message_id, ())]
        if message_id in self._known:
            return [change]
        self._held.setdefault(message_id, []).append(change)
        return []

    def waiting(self) -> list[Change]:
        """The changes whose message has not come."""
        return [change for changes in self._held.values() for change in changes]

    def rest(self) -> list[Change]:
        """`waiting`, and their messages are not waited for any longer."""
        left = self.waiting()
        self._known.update(self._held)
        self._held.clear()
        return left


def _message_id(given: Any) -> str | None:
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise MessageError(f"`message_id` must be a text, not {type_name(type(given))}")
    if not _is_clean(given):
        raise MessageError("`message_id` must be text that UTF-8 can hold")
    return str.__str__(given)


def _check_keys(given: Mapping[Any, Any], message_id: str | None) -> None:
    unknown = [key for key in given if key not in _OWN_KEYS and key not in _EXTRAS]
    if not unknown:
        return
    names = ", ".join(sorted(f"`{key}`" if isinstance(key, str) else repr(key) for key in unknown))
    hint = "put what the client is to get into `props`"
    if _SET_BY_US.issuperset(key for key in unknown if isinstance(key, str)):
        hint = "`replace` and `append` set it"
    raise MessageError(f"a message has no {names}; {hint}", message_id)


def _props(given: Mapping[str, Any], message_id: str | None) -> dict[str, Any]:
    props = given.get("props", {})
    if not isinstance(props, Mapping):
        raise MessageError(
            f"the `props` of a message must be a dict, not {type_name(type(props))}", message_id
        )
    copied: dict[str, Any] = canonical(dict(props))
    return copied


def _extra(given: Mapping[str, Any], message_id: str | None) -> dict[str, Any]:
    extra = {key: given[key] for key in given if key in _EXTRAS and given[key] is not None}
    for key, value in extra.items():
        wanted, name = (Mapping, "dict") if key == "metadata" else (str, "text")
        if not isinstance(value, wanted):
            raise MessageError(
                f"`{key}` of a message must be a {name}, not {type_name(type(value))}", message_id
            )
    copied: dict[str, Any] = canonical(extra)
    return copied


def _is_clean(text: str) -> bool:
    return clean_text(text) == text
