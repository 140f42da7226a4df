"""Sees to it that aborted contexts end: cancel, then an exception in the thread, then kill.

It has a thread of its own, started with the first abort that needs it, since the run loop may be
the very thing that is stuck. For each watched context:

- while the run loop does not tick and the body of an aborted context is what runs on it, an
  exception is raised in the loop's thread, again at each look;
- once its children have settled, the context has `kill_after` seconds; then its process is killed
  if it has that to itself, else the context is abandoned;
- a loop that an aborted body does not give back for so long takes its process with it, whoever
  else is there: nothing on it can go on. A neighbour that was not aborted may hold the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from noetic_ray.errors import NoeticError

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.runtime import Runtime

log = logging.getLogger("noetic_ray")

LOOK_SECONDS = 0.25
IDLE_SECONDS = 1.0
FLUSH_SECONDS = 1.0


class BodyStopped(BaseException):
    """Raised inside an aborted body that never gave the loop back."""


class Watchdog:
    """Watches the aborted contexts of one runtime."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._wake = threading.Condition()
        self._watched: dict[str, _Watched] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, cell: Cell) -> None:
        """Start watching; any thread may call."""
        with self._wake:
            if self._stopped or cell.ctx.id in self._watched:
                return
            self._watched[cell.ctx.id] = _Watched(cell)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._main, name="noetic-watchdog", daemon=True
                )
                self._thread.start()
            else:
                self._wake.notify()

    def settled(self, cell: Cell) -> None:
        """A context has settled; nothing to watch any more."""
        if self._watched:
            with self._wake:
                self._watched.pop(cell.ctx.id, None)

    def stop(self) -> None:
        """End the thread."""
        with self._wake:
            self._stopped = True
            self._watched.clear()
            self._wake.notify()

    def _main(self) -> None:
        while True:
            with self._wake:
                if not self._watched and not self._stopped:
                    self._wake.wait(IDLE_SECONDS)
                if not self._watched or self._stopped:
                    self._thread = None
                    return
                self._wake.wait(LOOK_SECONDS)
                watched = list(self._watched.values())
            if watched:
                self._look(watched)

    def _look(self, watched: list[_Watched]) -> None:
        before = _current_task(self._rt.loop)
        ticks = self._ticks()
        innocent = not ticks and not self._interrupt(watched, before)
        now = time.monotonic()
        for each in watched:
            if each.cell.settled:
                self.settled(each.cell)
            elif innocent or (ticks and each.cell.children):
                each.since = None
            elif each.since is None:
                each.since = now
            elif now - each.since >= self._rt.config.kill_after and not each.escalated:
                each.escalated = ticks
                self._give_up(each.cell, ticks)

    def _give_up(self, cell: Cell, ticks: bool) -> None:
        if ticks:
            self._rt.loop.call_soon_threadsafe(self._escalate, cell)
        elif self._rt.elsewhere is not None:
            self._rt.elsewhere.kill_stuck()  # nothing on this loop can go on

    def _ticks(self) -> bool:
        """Whether the run loop answers within a moment."""
        answered = threading.Event()
        try:
            self._rt.loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # closed
            return True
        return answered.wait(LOOK_SECONDS)

    def _interrupt(self, watched: list[_Watched], before: asyncio.Task[Any] | None) -> bool:
        """Stop the body that holds the loop. False when no aborted context is to blame.

        Only a task that was already running at the last look holds it; a loop that is merely busy
        with many tasks is left alone, and so is the engine's own work after a body's end.
        """
        loop = self._rt.loop
        running = _current_task(loop)
        if running is not before:
            return False
        if running is None:
            return True
        for each in watched:
            cell = each.cell
            if not cell.body_done and (running is cell.task or running in cell.tasks):
                log.warning("aborted body of context %s holds the loop; stopping it", cell.ctx.id)
                if _current_task(loop) is running:
                    _raise_in(self._rt.thread.ident)
                return True
        cells = tuple(self._rt.cells.values())
        return not any(running is cell.task or running in cell.tasks for cell in cells)

    def _escalate(self, cell: Cell) -> None:
        if cell.settled:
            return
        elsewhere = self._rt.elsewhere
        if elsewhere is None:
            cell.abandon()
            return
        task = asyncio.Task(self._kill_or_abandon(cell), loop=self._rt.loop)
        self._rt.keep(task)

    async def _kill_or_abandon(self, cell: Cell) -> None:
        elsewhere = self._rt.elsewhere
        assert elsewhere is not None
        with contextlib.suppress(TimeoutError, NoeticError):  # a lost journal saves nobody
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._rt.journal.flush()
        if not await elsewhere.kill(alone=len(self._rt.cells) == 1):
            cell.abandon()


class _Watched:
    __slots__ = ("cell", "escalated", "since")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.since: float | None = None
        self.escalated = False


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    return asyncio.current_task(loop)


def _raise_in(thread_id: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(BodyStopped)
    )
