"""Following a run while somebody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from noetic_ray.errors import NoeticError
from noetic_ray.harness import Run
from noetic_ray.journal.events import Event
from noetic_ray.view.plain import PlainLines
from noetic_ray.view.texts import dollars, plural, seconds
from noetic_ray.view.tree import tree_table
from noetic_ray.view.watch import Line, Watch, statuses

_END_PATIENCE = 2.0
_PICTURES_PER_SECOND = 8


@contextmanager
def following(
    run: Run[Any], console: Console, tools: bool = True, quiet: bool = False
) -> Iterator[Watch]:
    """Show how a run goes on while the block waits for it.

    On a terminal a picture of the tree that moves and disappears at the end; elsewhere a line for
    each thing that happens, calls of tools among them with `tools`, or nothing with `quiet`.
    """
    watch = Watch(run.id)
    if console.is_terminal:
        picture = _Picture(watch, console)
        with (
            Live(
                get_renderable=picture,
                console=console,
                refresh_per_second=_PICTURES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            ),
            _followed(run, watch, None),
        ):
            yield watch
        return
    with _followed(run, watch, None if quiet else PlainLines(console, watch, tools)):
        yield watch


@contextmanager
def _followed(run: Run[Any], watch: Watch, lines: PlainLines | None) -> Iterator[None]:
    """Read the run's events in a thread; it ends with the run, or with its harness."""

    def take(event: Event) -> None:
        watch.feed(event)
        if lines is not None:
            lines.tell(event)

    def follow() -> None:
        try:
            _follow(run, take)
        finally:
            watch.at_work.set()

    thread = threading.Thread(target=follow, name="noetic-view", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(_END_PATIENCE)


def _follow(run: Run[Any], take: Any) -> None:
    try:
        for event in run.events():
            take(event)
    except (NoeticError, CancelledError, RuntimeError):
        return  # the harness was closed meanwhile, and with it the journal


class _Picture:
    """Draws the tree and a line of totals; called by rich for each picture."""

    def __init__(self, watch: Watch, console: Console) -> None:
        self._watch = watch
        self._console = console
        self._started = time.monotonic()

    def __call__(self) -> RenderableType:
        lines = self._watch.lines()
        room = max(self._console.height - 4, 3)
        return Group(
            tree_table(lines, self._console.width, room, live=True), Text(), self._totals(lines)
        )

    def _totals(self, lines: list[Line]) -> Text:
        root = lines[0].row
        counted = statuses(lines)
        states = ", ".join(f"{n:,} {status}" for status, n in sorted(counted.items()))
        elapsed = seconds(time.monotonic() - self._started)
        used = f"{root.tokens.total:,} tokens   {dollars(root.cost)}"
        contexts = plural(len(lines), "context")
        return Text(f"{elapsed}   {contexts}: {states}   {used}   Ctrl-C aborts", style="bold")
