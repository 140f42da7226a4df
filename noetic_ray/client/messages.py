"""`ctx.messages`: what an agent shows its client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from noetic_ray.client.message import as_message, check_appendable, check_sendable
from noetic_ray.client.ports import ClientPort
from noetic_ray.errors import MessageError

#: What a context knows of a message it may change: its type, and whether text can be added.
Known = tuple[str, bool]


class Messages:
    """Sends, replaces and extends messages, in order, from coroutines and threads alike.

    A message is a text or ``{"type": ..., "props": {...}, "message_id": ...}``. Each call returns
    when the message is on its way. Messages of one run have one order, the journal's. `replace`
    and `append` take the ids this context sent, and those its ancestors had sent when it was
    spawned. Raises MessageError for what cannot be sent; nothing of it is.
    """

    __slots__ = ("_known", "_lock", "_next", "_port", "_suffix")

    def __init__(self, port: ClientPort, suffix: str, known: Mapping[str, Known]) -> None:
        self._port = port
        self._suffix = suffix
        self._known: dict[str, Known] = dict(known)
        self._next = 1
        self._lock = threading.Lock()

    @property
    def known(self) -> dict[str, Known]:
        """The messages this context may change; its children get a copy."""
        with self._lock:
            return dict(self._known)

    def send(self, message: str | Mapping[str, Any]) -> str:
        """Send a message and return its id: the one it names, or `M1`, `M2`, ...

        In a child context automatic ids end in `@` and the last 8 digits of the context's id.
        """
        type, props, extra, id = as_message(message)
        check_sendable(type, props, self._port.accept)
        with self._lock:
            if id is None:
                id = self._fresh_id()
            elif id in self._known:
                raise MessageError(f"message {id!r} was sent before; replace it instead", id)
            wire = {**extra, "type": type, "props": props, "message_id": id}
            if self._port.emit("message.sent", {"message_id": id, "message": wire}, True):
                self._known[id] = type, _takes_text(type, props)
        return id

    def replace(self, message_id: str, message: str | Mapping[str, Any]) -> str:
        """Put a whole new message in the place of one sent before; returns its id."""
        type, props, extra, _ = as_message(message)
        check_sendable(type, props, self._port.accept)
        wire = {**extra, "type": type, "props": props, "message_id": message_id}
        with self._lock:
            self._expect_known(message_id, "replaced")
            if self._port.emit(
                "message.replaced", {"message_id": message_id, "message": wire}, True
            ):
                self._known[message_id] = type, _takes_text(type, props)
        return message_id

    def append(self, message_id: str, text: str) -> str:
        """Add text to the end of a text or thinking message; returns its id."""
        if not isinstance(text, str):
            raise MessageError(f"append takes a text, not {type_name(text)}", None)
        with self._lock:
            type, takes_text = self._expect_known(message_id, "extended")
            if not takes_text:
                raise MessageError(
                    f"message {message_id!r} is of type {type!r}, and no text can be added to it; "
                    "replace it",
                    message_id,
                )
            wire = {"type": type, "props": {"content": text}, "message_id": message_id}
            self._port.emit("message.appended", {"message_id": message_id, "message": wire}, True)
        return message_id

    def _fresh_id(self) -> str:
        while True:
            id = f"M{self._next}{self._suffix}"
            self._next += 1
            if id not in self._known:
                return id

    def _expect_known(self, message_id: Any, what: str) -> Known:
        if not isinstance(message_id, str):
            raise MessageError(f"a message id must be a text, not {type_name(message_id)}")
        known = self._known.get(message_id)
        if known is None:
            raise MessageError(
                f"message {message_id!r} cannot be {what}: neither this context nor, before it "
                "was spawned, one above it has sent it",
                message_id,
            )
        return known


def _takes_text(type: str, props: Mapping[str, Any]) -> bool:
    try:
        check_appendable(type, props)
    except MessageError:
        return False
    return True


def type_name(value: Any) -> str:
    """A value's type, for a message to people."""
    return type(value).__name__
