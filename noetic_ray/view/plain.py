"""A run told line by line, for logs and pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from noetic_ray.journal.events import CONTEXT_ENDED, CONTEXT_STARTED, RUN_STARTED, Event
from noetic_ray.view.texts import dollars, one_line, plural, seconds, short
from noetic_ray.view.watch import Watch

_TOOLS = ("tool.started", "tool.failed")


class PlainLines:
    """Writes a line for each event worth one."""

    def __init__(self, console: Console, watch: Watch, tools: bool) -> None:
        self._console = console
        self._watch = watch
        self._tools = tools
        self._start: float | None = None
        self._steps: dict[str, str] = {}

    def tell(self, event: Event) -> None:
        """Write what happened, if it is of interest."""
        if event.type == RUN_STARTED or self._start is None:
            self._start = event.time
        said = self._said(event)
        if said is None:
            return
        who = f"{self._steps.get(event.context_id, 'context')} {short(event.context_id)}"
        line = f"{max(event.time - self._start, 0.0):7.2f} s  {who:<18} {said}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _said(self, event: Event) -> str | None:
        data = event.data
        if event.type == CONTEXT_STARTED:
            self._steps[event.context_id] = str(data.get("step"))
            return f"started in process {data['pid']}" if data.get("pid") else "starts"
        if event.type == CONTEXT_ENDED:
            return self._ended(event.context_id, data)
        if event.type == "context.aborted":
            return f"aborted: {data.get('reason') or 'no reason given'}"
        if event.type == "context.lost":
            return f"lost: {data.get('reason')}"
        if event.type == "model.retried":
            return f"asks the model again: {_message(data)}"
        if event.type == "approval.requested":
            return f"waits for approval of {data.get('tool')}"
        if self._tools and event.type in _TOOLS:
            tool = data.get("tool")
            failed = event.type == "tool.failed"
            return f"{tool} failed: {_message(data)}" if failed else f"calls {tool}"
        return None

    def _ended(self, context_id: str, data: Mapping[str, Any]) -> str:
        tokens = data.get("tokens") or {}
        said = (
            f"{data.get('status')}: {plural(int(data.get('items') or 0), 'item')}, "
            f"{int(tokens.get('total') or 0):,} tokens, {dollars(float(data.get('cost') or 0.0))}, "
            f"{seconds(float(data.get('elapsed') or 0.0))}"
        )
        if data.get("status") == "failed":
            return f"{said}: {_message(data)}"
        about = self._watch.about(context_id)
        return f"{said}  ({about})" if about else said


def _message(data: Mapping[str, Any]) -> str:
    error = data.get("error")
    said = error.get("message") if isinstance(error, Mapping) else error
    return one_line(str(said or "no reason given"), 200)
