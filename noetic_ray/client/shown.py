"""The final view of a run's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetic_ray.client.message import APPENDED, MESSAGE_TYPES, SENT, Change, Message, SendOrder

__all__ = ["ShownFold"]


class ShownFold:
    """Folds message events into what a client shows that has applied them all.

    A replacement takes the place of the whole message, whose type may change; added text goes to
    the end of `content`. A change recorded before its message is applied after it.
    """

    def __init__(self) -> None:
        self._shown: dict[str, _Shown] = {}
        self._order = SendOrder()

    def feed(self, type: str, context_id: str, data: Mapping[str, Any]) -> bool:
        """Take one event; False when it is not about a message."""
        if type not in MESSAGE_TYPES:
            return False
        for change in self._order.take(type, context_id, data):
            _apply(self._shown, change)
        return True

    def messages(self) -> list[Message]:
        """The messages, in the order they were first sent; those changed but never sent last."""
        unsent: dict[str, _Shown] = {}
        for change in self._order.waiting():
            _apply(unsent, change)
        both = (*self._shown.items(), *unsent.items())
        return [shown.message(message_id) for message_id, shown in both]


class _Shown:
    """A message as it stands; added texts are joined when it is asked for."""

    __slots__ = ("added", "context_id", "props", "type")

    def __init__(self, context_id: str, message: Mapping[str, Any]) -> None:
        self.context_id = context_id
        self.replace(message)

    def replace(self, message: Mapping[str, Any]) -> None:
        self.type = str(message["type"])
        self.props: Mapping[str, Any] = message.get("props") or {}
        self.added: list[str] = []

    def message(self, message_id: str) -> Message:
        props = dict(self.props)
        if self.added:
            content = props.get("content")
            head = content if isinstance(content, str) else ""
            props["content"] = "".join((head, *self.added))
        return Message(message_id, self.type, props, self.context_id)


def _apply(shown: dict[str, _Shown], change: Change) -> None:
    type, context_id, data = change
    message_id, message = str(data["message_id"]), data["message"]
    known = shown.get(message_id)
    if known is None:
        shown[message_id] = _Shown(context_id, message)
    elif type == APPENDED:
        known.added.append(str(message["props"]["content"]))
    else:
        known.replace(message)
        known.context_id = context_id if type == SENT else known.context_id
