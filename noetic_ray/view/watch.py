"""What is known of a run while it goes on, put together from its events."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from noetic_ray.journal.events import CONTEXT_ENDED, ITEM_APPENDED, RUN_ENDED, Event
from noetic_ray.journal.fold import ContextRow, TreeFold
from noetic_ray.view.texts import one_line

if TYPE_CHECKING:
    from noetic_ray.harness import Run

STEP_STARTED = "step.started"

_DOING = {
    "model.started": "thinking",
    "model.retried": "waiting to ask again",
    "approval.requested": "waiting for approval",
    "context.aborted": "stopping",
}
_DONE = ("model.completed", "model.failed", "approval.answered", "tool.completed", "tool.failed")


class Line(NamedTuple):
    """A context in a view: its figures, what it was asked, what it does now, its steps so far."""

    row: ContextRow
    about: str
    doing: str
    steps: int = 0


class Watch:
    """Fed by one thread, read by another."""

    def __init__(self, run_id: str) -> None:
        self.at_work = threading.Event()
        """Set once a model was asked, or the run is over."""
        self._lock = threading.Lock()
        self._fold = TreeFold(run_id)
        self._about: dict[str, str] = {}
        self._doing: dict[str, str] = {}
        self._steps: Counter[str] = Counter()

    def feed(self, event: Event) -> None:
        """Take one event of the run, in order."""
        with self._lock:
            self._fold.feed(event)
            self._follow(event)
        if event.type in ("model.started", RUN_ENDED):
            self.at_work.set()

    def _follow(self, event: Event) -> None:
        context = event.context_id
        if event.type == STEP_STARTED and "attempt" not in event.data:
            self._steps[context] += 1
        if event.type in _DOING:
            self._doing[context] = _DOING[event.type]
        elif event.type == "tool.started":
            self._doing[context] = str(event.data.get("tool"))
        elif event.type in _DONE or event.type == CONTEXT_ENDED:
            self._doing.pop(context, None)
        elif event.type == ITEM_APPENDED and context not in self._about:
            about = _asked(event.data.get("item"))
            if about:
                self._about[context] = about

    def settled(self, run: Run[Any]) -> list[Line]:
        """All contexts of the run, from its whole history."""
        return [Line(row, self.about(row.id), "", self._steps[row.id]) for row in run.rows()]

    def about(self, context_id: str) -> str:
        """The first thing a context was asked, or nothing."""
        return self._about.get(context_id, "")

    def lines(self) -> list[Line]:
        """All contexts, parents before children."""
        with self._lock:
            about, doing, steps = self._about, self._doing, self._steps
            return [
                Line(row, about.get(row.id, ""), doing.get(row.id, ""), steps[row.id])
                for row in self._fold.rows()
            ]


def line_json(line: Line) -> dict[str, Any]:
    """A context for a JSON document; costs are in dollars, times in seconds."""
    return {**line.row._asdict(), "tokens": asdict(line.row.tokens)}


def statuses(lines: list[Line]) -> Counter[str]:
    """How many contexts have each status."""
    return Counter(line.row.status for line in lines)


def _asked(item: object) -> str:
    """The text of a user's message, on one line."""
    if not isinstance(item, dict) or item.get("role") != "user":
        return ""
    parts = item.get("content")
    if not isinstance(parts, list):
        return ""
    texts = (str(part.get("text") or "") for part in parts if isinstance(part, dict))
    return one_line(" ".join(texts), 80)
