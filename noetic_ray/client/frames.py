"""The frames a client gets, in the format it asked for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from noetic_ray.canonical import to_json_bytes
from noetic_ray.client.message import (
    APPENDED,
    MESSAGE_TYPES,
    REPLACED,
    Change,
    SendOrder,
    format_of,
    url_of,
)
from noetic_ray.usage import TokenUsage

__all__ = ["DONE", "Framer", "frames_of", "sse"]

Frame: TypeAlias = dict[str, Any]

#: What ends a stream in the standard format; the others just end.
DONE = b"data: [DONE]\n\n"

_PROCESSING = "Processing..."
_FAILED = "Something went wrong."
_ERROR_CODE = "server_error"
_ICONS: Mapping[str, str] = {
    "audio": "\N{SPEAKER WITH THREE SOUND WAVES}",
    "video": "\N{CLAPPER BOARD}",
}
_LABELS = ("title", "name", "label")
_MAX_LABEL = 200
_NONE: Mapping[str, Any] = {}
# What would end a link early or reach outside it.
_URL_BREAKS = re.compile(r"[\s()<>\\\x00-\x1f\x7f]")
_LABEL_MARKS = re.compile(r"([\\\[\]`])")


def sse(frame: Frame) -> bytes:
    """A frame as a server-sent event."""
    return b"data: " + to_json_bytes(frame) + b"\n\n"


class Framer:
    """Turns what happens to messages, in order, into frames: dicts that JSON can hold.

    `accept` is what the client asked for. The `cui-*` formats get each message as it is; a
    replacement carries `delta` and `delta_action: "replace"` and stands for the whole message, a
    text added `delta_action: "append"` with `delta_path: "content"`.

    The `standard` format gets chat completion chunks, whose `id` is the message's. What such a
    client cannot draw becomes a Markdown link to `view(message_id)`, by default
    `/v1/runs/<run_id>/messages/<message_id>`; actions are not for it. It knows no replacing: a
    replaced message is one more chunk with the same id and the whole new text, which ordinary
    clients add to what they have.

    `created` is in seconds since the epoch.
    """

    def __init__(
        self,
        accept: str | None,
        run_id: str = "",
        model: str = "noetic-ray",
        created: float | None = None,
        view: Callable[[str], str] | None = None,
    ) -> None:
        self.accept = format_of(accept)
        self._standard = self.accept == "standard"
        self._run_id = run_id
        self._model = model
        self._created = int(time.time() if created is None else created)
        self._view = view or self._view_of
        self._order = SendOrder()
        self._role_told = False
        self._tool_calls: dict[str, int] = {}

    # -- what is recorded ------------------------------------------------------------------------

    def feed(self, type: str, context_id: str, data: Mapping[str, Any]) -> list[Frame]:
        """The frames of a message event; none for other events.

        A change recorded before its message is held back until the message comes.
        """
        if type not in MESSAGE_TYPES:
            return []
        return self._told(self._order.take(type, context_id, data))

    def rest(self) -> list[Frame]:
        """The frames of changes still held back; to be asked for at the end."""
        return self._told(self._order.rest())

    # -- messages --------------------------------------------------------------------------------

    def sent(
        self, message_id: str, type: str, props: Mapping[str, Any], extra: Mapping[str, Any] = _NONE
    ) -> list[Frame]:
        """A message; `extra` are its keys besides type, props and id."""
        if self._standard:
            return self._chunks(message_id, type, props)
        return [{**extra, "type": type, "props": props, "message_id": message_id}]

    def replaced(
        self, message_id: str, type: str, props: Mapping[str, Any], extra: Mapping[str, Any] = _NONE
    ) -> list[Frame]:
        """A whole message in the place of another."""
        frames = self.sent(message_id, type, props, extra)
        if self._standard:
            return frames
        return [{**frame, "delta": True, "delta_action": "replace"} for frame in frames]

    def appended(self, message_id: str, type: str, text: str) -> list[Frame]:
        """Text added to a text or thinking message."""
        props = {"content": text}
        if self._standard:
            return self._chunks(message_id, type, props)
        added = {"delta": True, "delta_action": "append", "delta_path": "content"}
        return [{"type": type, "props": props, "message_id": message_id, **added}]

    # -- a model's answer as it is written -------------------------------------------------------

    def text_delta(self, message_id: str, text: str) -> list[Frame]:
        """A piece of a model's text."""
        return self.appended(message_id, "text", text)

    def reasoning_delta(self, message_id: str, text: str) -> list[Frame]:
        """A piece of what a model thinks."""
        return self.appended(message_id, "thinking", text)

    # -- the end ---------------------------------------------------------------------------------

    def error(self, kind: str, message: str, code: str | int | None = None) -> list[Frame]:
        """The run failed; `kind` is an error's kind."""
        if self._standard:
            return [_error(kind, message, code)]
        props = {"message": message, "kind": kind, "code": code or _ERROR_CODE}
        return [{"type": "error", "props": props}]

    def finish(
        self, reason: str = "stop", usage: TokenUsage | Mapping[str, Any] | None = None
    ) -> list[Frame]:
        """The last frames: what was held back, and the closing chunks of the standard format.

        With `usage`, ours or a dict with OpenAI's keys, a chunk without choices tells it.
        """
        frames = self.rest()
        if not self._standard:
            return frames
        frames.append(self._chunk(self._run_id, {}, reason))
        if usage is not None:
            told = _usage(usage) if isinstance(usage, TokenUsage) else dict(usage)
            frames.append({**self._chunk(self._run_id, {}), "choices": [], "usage": told})
        return frames

    # -- inside ----------------------------------------------------------------------------------

    def _told(self, changes: Iterable[Change]) -> list[Frame]:
        frames: list[Frame] = []
        for type, _, data in changes:
            message = dict(data["message"])
            kind, props = str(message.pop("type")), message.pop("props", {})
            message.pop("message_id", None)
            id = str(data["message_id"])
            if type == APPENDED:
                frames += self.appended(id, kind, str(props.get("content", "")))
            else:
                tell = self.replaced if type == REPLACED else self.sent
                frames += tell(id, kind, props, message)
        return frames

    def _chunks(self, message_id: str, type: str, props: Mapping[str, Any]) -> list[Frame]:
        """A message as chunks: none for what such a client has no use for."""
        if type == "error":
            return [_error(props.get("type"), props.get("message"), props.get("code"))]
        delta = self._delta(message_id, type, props)
        return [] if delta is None else [self._chunk(message_id, delta)]

    def _delta(self, message_id: str, type: str, props: Mapping[str, Any]) -> dict[str, Any] | None:
        if type == "text":
            return self._spoken("content", props)
        if type == "thinking":
            return self._spoken("reasoning_content", props)
        if type == "loading":
            return {"reasoning_content": _text(props.get("message")) or _PROCESSING}
        if type == "tool_call":
            return {"tool_calls": self._calls(message_id, props)}
        if type == "action":
            return None
        if type == "event":
            return self._event(message_id, props)
        if type == "image" and url_of(props):
            label = _escaped(_text(props.get("alt")) or "Image")
            return {"content": f"![{label}]({_address(url_of(props))})"}
        return {"content": self._link(message_id, type, props)}

    def _spoken(self, key: str, props: Mapping[str, Any]) -> dict[str, Any]:
        """The first of a stream says who speaks."""
        role = {} if self._role_told else {"role": "assistant"}
        self._role_told = True
        return {**role, key: _text(props.get("content"))}

    def _calls(self, message_id: str, props: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Clients gather the pieces of a call by its index, so each message has its own."""
        id = props.get("id")
        if not isinstance(id, str):
            return []
        index = self._tool_calls.setdefault(message_id, len(self._tool_calls))
        call: dict[str, Any] = {"index": index, "id": id, "type": "function"}
        function = props.get("function")
        if isinstance(function, Mapping):
            call["function"] = {
                key: value if isinstance(value, str) else to_json_bytes(value).decode()
                for key, value in function.items()
            }
        return [call]

    def _event(self, message_id: str, props: Mapping[str, Any]) -> dict[str, Any] | None:
        """Only the start of a stream that is traced is told: a link to the trace."""
        data = props.get("data")
        inner = data if isinstance(data, Mapping) else {}
        traced = props.get("trace_id") or inner.get("trace_id")
        if props.get("event") != "stream_start" or not traced:
            return None
        return {"content": self._link(message_id, "trace", {})}

    def _link(self, message_id: str, type: str, props: Mapping[str, Any]) -> str:
        """A link to what the client cannot draw: its own address for sounds and films."""
        icon = _ICONS.get(type)
        named = (_text(props.get(key)).strip() for key in _LABELS)
        label = _escaped(next((name for name in named if name), type))
        url = url_of(props) if icon else ""
        mark = f"{icon} " if icon else ""
        return f"[{mark}{label}]({_address(url or self._view(message_id))})"

    def _view_of(self, message_id: str) -> str:
        return f"/v1/runs/{quote(self._run_id, '@')}/messages/{quote(message_id, '@')}"

    def _chunk(self, id: str, delta: dict[str, Any], reason: str | None = None) -> Frame:
        return {
            "id": id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }


def frames_of(
    events: Iterable[tuple[str, str, float, Mapping[str, Any]]], accept: str | None, run_id: str
) -> list[Frame]:
    """The frames of a run's events, given as (type, context id, time, data) in recorded order.

    Chunks of the standard format are dated by the first message. There is no closing chunk.
    """
    framer: Framer | None = None
    frames: list[Frame] = []
    for type, context_id, at, data in events:
        if type in MESSAGE_TYPES:
            framer = framer or Framer(accept, run_id, created=at)
            frames += framer.feed(type, context_id, data)
    return frames + framer.rest() if framer else frames


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _error(kind: Any, message: Any, code: Any) -> Frame:
    told = {
        "message": _text(message) or _FAILED,
        "type": _text(kind) or _ERROR_CODE,
        "code": code if isinstance(code, int) else _text(code) or _ERROR_CODE,
    }
    return {"error": told}


def _escaped(label: str) -> str:
    """A label on one line that cannot end its link."""
    return _LABEL_MARKS.sub(r"\\\1", " ".join(label.split())[:_MAX_LABEL])


def _address(url: str) -> str:
    return _URL_BREAKS.sub(lambda found: quote(found.group(), safe=""), url)


def _usage(usage: TokenUsage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
    }
    if usage.cached is not None:
        told["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    return told
