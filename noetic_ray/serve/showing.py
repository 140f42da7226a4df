"""What a client is shown: as frames while it happens, or gathered at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noetic_ray.canonical import to_json_bytes
from noetic_ray.client.frames import Framer
from noetic_ray.client.message import APPENDED, REPLACED, SENT, Message
from noetic_ray.client.shown import ShownFold
from noetic_ray.serve.narration import Said, Told

#: Messages that are no part of an answer.
_ASIDE = frozenset({"thinking", "loading", "action", "event"})
OUTPUT_ID = "output"


class Shown:
    """The view of a client who has followed everything so far."""

    def __init__(self) -> None:
        self._fold = ShownFold()
        self._known: set[str] = set()

    def take(self, said: Told | Said) -> None:
        """Show one more thing."""
        if isinstance(said, Told):
            self._fold.feed(said.type, said.context_id, said.data)
            return
        known = said.message_id in self._known
        self._known.add(said.message_id)
        type = (REPLACED if said.whole else APPENDED) if known else SENT
        message = {"type": said.type, "props": {"content": said.text}}
        self._fold.feed(type, "", {"message_id": said.message_id, "message": message})

    def messages(self) -> list[Message]:
        """The messages as they stand."""
        return self._fold.messages()

    def missing(self, output: Any) -> str | None:
        """What must still be shown of a run's output, if anything."""
        if output is None:
            return None
        answer = [each for each in self.messages() if each.type not in _ASIDE]
        text = output if isinstance(output, str) else getattr(output, "text", None)
        if not isinstance(text, str):
            return None if any(map(_says_something, answer)) else to_json_bytes(output).decode()
        texts = [_content(each) for each in answer if each.type == "text"]
        wanted = text.strip()
        shown = "".join(texts).rstrip().endswith(wanted) or wanted in map(str.strip, texts)
        return None if shown else text


def _content(message: Message) -> str:
    content = message.props.get("content")
    return content if isinstance(content, str) else ""


def _says_something(message: Message) -> bool:
    return message.type != "text" or bool(_content(message))


def frames(framer: Framer, said: Told | Said) -> list[dict[str, Any]]:
    """One thing in the client's format."""
    if isinstance(said, Told):
        return framer.feed(said.type, said.context_id, said.data)
    if said.whole:
        return framer.replaced(said.message_id, said.type, {"content": said.text})
    if said.type == "text":
        return framer.text_delta(said.message_id, said.text)
    return framer.reasoning_delta(said.message_id, said.text)


def gathered(
    messages: list[Message], view: Callable[[str], str]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The messages as one of a chat completion, and the error an agent has shown, if any."""
    framer = Framer("standard", view=view)
    content: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    error: dict[str, Any] | None = None
    for message in messages:
        for frame in framer.sent(message.id, message.type, message.props):
            if "error" in frame:
                error = frame["error"]
                continue
            delta = frame["choices"][0]["delta"]
            content.append(delta.get("content", ""))
            thoughts.append(delta.get("reasoning_content", ""))
            calls += [{k: v for k, v in call.items() if k != "index"} for call in _calls(delta)]
    told: dict[str, Any] = {"role": "assistant", "content": "".join(content), "refusal": None}
    if any(thoughts):
        told["reasoning_content"] = "".join(thoughts)
    if calls:
        told["tool_calls"] = calls
    return told, error


def _calls(delta: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = delta.get("tool_calls", [])
    return found
