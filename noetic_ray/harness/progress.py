"""A progress bar for `Harness.map`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetic_ray.harness.run import Run


@contextmanager
def show_progress(run: Run[Any], wanted: bool | None, total: int) -> Iterator[None]:
    """Show how many inputs are done while the block runs; None shows it on a terminal only."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(run.step_id, total=total)
        follower = threading.Thread(target=_follow, args=(run, progress, bar), daemon=True)
        follower.start()
        yield
        progress.update(bar, completed=total)


def _follow(run: Run[Any], progress: Any, bar: Any) -> None:
    for event in run.events():
        if event.type == "context.ended" and event.context_id != run.id:
            progress.advance(bar)
