"""What of a run's events is for its client: messages, and the root's answers as they are written.

Pieces of answers are not numbered, and some may be missing for a reader who was slow; an attempt
may be given up after half of its text. The items that end up in the log are the truth, so what a
client was given is held against them, and what is missing is said then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from noetic_ray.journal.events import Event

#: Between a text that was given up and the one in its place, where nothing can be taken back.
_BREAK = "\n\n"
_ENDS_ANSWER = frozenset({"step.completed", "step.failed", "tool.started", "run.ended"})


class Told(NamedTuple):
    """A message event as it was recorded."""

    type: str
    context_id: str
    data: Mapping[str, Any]


class Said(NamedTuple):
    """A piece of an answer; `whole` when it stands in the place of all before it.

    `type` is text or thinking.
    """

    message_id: str
    type: str
    text: str
    whole: bool = False


class Narration:
    """Turns events, in order, into what a client is to be shown.

    `replaces` says whether the client can take back what it shows.
    """

    def __init__(self, root_id: str, replaces: bool) -> None:
        self._root_id = root_id
        self._replaces = replaces
        self._answers = 0
        self._open = 0
        self._owed = False
        self._deaf = False
        self._claimed = ""
        self._given: list[str] = []
        self._again: list[str] | None = None
        self._thought = False
        #: Whether the newest item of the root's log was cut off.
        self.cut_off = False

    def miss(self) -> None:
        """Pieces may be missing: say nothing more of this answer before its item is there."""
        self._deaf = True

    def feed(self, event: Event) -> Iterator[Told | Said]:
        """What an event means for the client."""
        type = event.type
        if type.startswith("message."):
            yield Told(type, event.context_id, event.data)
        elif event.context_id != self._root_id:
            return
        elif type == "model.delta":
            yield from self._piece(event.data)
        elif type == "item.appended":
            yield from self._item(event.data["item"])
        elif type == "model.started":
            self._start()
        elif type == "model.retried":
            yield from self._discard()
        elif type in ("model.completed", "model.failed"):
            self._open = max(0, self._open - 1)
            self._owed = True
        elif type in _ENDS_ANSWER:
            self._owed = False

    # -- one answer ------------------------------------------------------------------------------

    @property
    def _id(self) -> str:
        return f"answer-{self._answers}"

    def _start(self) -> None:
        """Answers that are written at the same time cannot be told apart: they come whole."""
        self._open += 1
        self._owed = False
        if self._open > 1:
            self._deaf = True
            return
        self._deaf = False
        self._answers += 1
        self._claimed = ""
        self._given = []
        self._again = None
        self._thought = False

    def _piece(self, data: Mapping[str, Any]) -> Iterator[Said]:
        kind, text = data.get("kind"), str(data.get("text", ""))
        if self._deaf or not self._open or not text:
            return
        if kind == "reasoning":
            self._thought = True
            yield Said(f"{self._id}-thinking", "thinking", text)
        elif kind == "text" and self._again is None:
            self._given.append(text)
            yield Said(self._id, "text", text)
        elif kind == "text":
            yield from self._second_try(text)

    def _second_try(self, text: str) -> Iterator[Said]:
        """Another attempt, for a client who keeps the first: only what is new is said."""
        assert self._again is not None
        self._again.append(text)
        given, again = "".join(self._given), "".join(self._again)
        if given.startswith(again) and given != again:
            return
        self._given, self._again = [again], None
        same = again.startswith(given)
        yield Said(self._id, "text", again[len(given) :] if same else _BREAK + again)

    def _discard(self) -> Iterator[Said]:
        if not self._open:  # an answer was sent back by a layer after its end
            self._owed = False
        if self._replaces:
            if self._given:
                yield Said(self._id, "text", self._claimed, whole=True)
            if self._thought:
                yield Said(f"{self._id}-thinking", "thinking", "", whole=True)
            self._given = []
            self._thought = False
        elif self._given:
            self._again = []

    def _item(self, item: Mapping[str, Any]) -> Iterator[Said]:
        """Hold what was said against what is in the log."""
        self.cut_off = item.get("status") == "incomplete"
        if not (self._owed or self._open):
            return
        if item.get("type") == "message" and item.get("role") == "assistant":
            yield from self._claim(_text(item))

    def _claim(self, text: str) -> Iterator[Said]:
        given = "".join(self._given)
        before, self._claimed = self._claimed, self._claimed + text
        self._again = None
        if given.startswith(text):
            self._given = [given[len(text) :]]
            return
        self._given = []
        if text.startswith(given):
            yield Said(self._id, "text", text[len(given) :])
        elif self._replaces:
            yield Said(self._id, "text", before + text, whole=True)
        else:
            yield Said(self._id, "text", _BREAK + text)


def _text(item: Mapping[str, Any]) -> str:
    parts = item.get("content") or ()
    return "".join(str(part["text"]) for part in parts if part.get("type") == "output_text")
