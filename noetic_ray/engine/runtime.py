"""The contexts of one process and what they share: loop, threads, journal, channels, model.

The driver of an `inline` harness has one, each context actor has one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from noetic_ray.context import ContextSnapshot
from noetic_ray.engine.cell import Cell
from noetic_ray.engine.child import Link, Listener
from noetic_ray.engine.dispatch import dispatch
from noetic_ray.engine.figures import snapshot, tokens_of
from noetic_ray.engine.mcp_tools import ServerTools
from noetic_ray.engine.outcome import Completed
from noetic_ray.engine.spans import close_failed
from noetic_ray.engine.spec import PARENT_LOST, ContextSpec, EngineConfig, ParentInfo
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.engine.threads import ThreadPool
from noetic_ray.engine.watchdog import Watchdog
from noetic_ray.errors import Cancelled, ContextLost
from noetic_ray.items import Item
from noetic_ray.log import ItemLog
from noetic_ray.mcp.port import McpPort
from noetic_ray.placement import Placement
from noetic_ray.protocols import ChannelPort, JournalSink, KeyValues, RunBook

MAX_TOMBSTONES = 10_000
log = logging.getLogger("noetic_ray")


class Codec(Protocol):
    """Copies values by way of bytes; knows classes of `__main__`."""

    def dumps(self, value: Any) -> bytes: ...
    def loads(self, data: bytes) -> Any: ...


class Elsewhere(Protocol):
    """What lies beyond this process; absent for an `inline` harness."""

    def launch(self, spec: ContextSpec, placement: Placement, listener: Listener) -> Link: ...
    async def snapshot(self, parent: ParentInfo) -> ContextSnapshot: ...
    async def kill(self, alone: bool) -> bool: ...
    def kill_stuck(self) -> None: ...


ItemReader = Callable[[str, str, int, "int | None"], Any]


class Runtime:
    """Hosts contexts. Everything but `abort_soon` belongs to the run loop's thread."""

    def __init__(
        self,
        config: EngineConfig,
        thread: LoopThread,
        journal: JournalSink,
        channels: ChannelPort,
        codec: Codec,
        read_items: ItemReader,
        values: KeyValues,
        book: RunBook,
        mcp: McpPort,
        elsewhere: Elsewhere | None = None,
        actor_id: str = "",
        node: str = "",
    ) -> None:
        self.config = config
        self.thread = thread
        self.loop: asyncio.AbstractEventLoop = thread.loop
        self.journal = journal
        self.channels = channels
        self.codec = codec
        self.values = values
        self.book = book
        self.mcp = mcp
        self.elsewhere = elsewhere
        self.actor_id = actor_id
        self.node = node
        self.pid = os.getpid()
        self.threads = ThreadPool()
        self.cells: dict[str, Cell] = {}
        self.tombstones: OrderedDict[str, str | None] = OrderedDict()
        self.dead_actors: set[str] = set()
        self.span_sink = journal.span if config.tracing else None
        self.dispatch = dispatch
        self.toolboxes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.server_tools = ServerTools()
        self.span_facts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._read_items = read_items
        self._watchdog = Watchdog(self)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiters: dict[str, asyncio.Future[None]] = {}

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Own a task of the runtime itself until it ends."""
        self._tasks.add(task)
        task.add_done_callback(self._kept_ended)

    def _kept_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Cancelled | Completed):
            log.warning("a task of the runtime failed: %r", error)

    def on_loop(self) -> bool:
        """Whether the caller runs on the run loop."""
        return threading.get_ident() == self.thread.ident

    # -- contexts --------------------------------------------------------------------------------

    def start(self, spec: ContextSpec, listener: Listener) -> Cell:
        """Start a context here. An abort that overtook its start finds it aborted."""
        if spec.id in self.tombstones:
            spec.aborted = True
            spec.abort_reason = self.tombstones.pop(spec.id)
        elif self.dead_actors and spec.parent is not None and spec.parent.actor in self.dead_actors:
            spec.aborted, spec.abort_reason = True, PARENT_LOST
        cell = Cell(self, spec, listener)
        self.cells[spec.id] = cell
        cell.start()
        return cell

    def launch(self, spec: ContextSpec, placement: Placement, listener: Listener) -> Link:
        """Start a child where its placement says."""
        if self.elsewhere is None or placement.mode == "inline":
            return self.start(spec, listener)
        return self.elsewhere.launch(spec, placement, listener)

    def abort_soon(self, ids: Sequence[str], reason: str | None) -> None:
        """Abort from any thread: flags are up at once, whatever the run loop is doing."""
        for id in ids:
            cell = self.cells.get(id)
            if cell is not None:
                cell.flag(reason)
                self._watchdog.watch(cell)
        self.loop.call_soon_threadsafe(self.abort, ids, reason)

    def abort(self, ids: Sequence[str], reason: str | None) -> None:
        """Abort contexts hosted here; unknown ids are remembered in case they still arrive."""
        for id in ids:
            cell = self.cells.get(id)
            if cell is not None:
                cell.abort(reason)
            else:
                self._bury(id, reason)

    def abort_children_of(self, actor_id: str) -> list[Cell]:
        """Abort the contexts whose parent lived in an actor that is gone; returns them.

        Those whose start is still on its way will find themselves aborted.
        """
        self.dead_actors.add(actor_id)
        orphans = [
            cell
            for cell in self.cells.values()
            if cell.spec.parent is not None and cell.spec.parent.actor == actor_id
        ]
        for cell in orphans:
            cell.abort(PARENT_LOST)
        return orphans

    def _bury(self, id: str, reason: str | None) -> None:
        self.tombstones[id] = reason
        if len(self.tombstones) > MAX_TOMBSTONES:
            self.tombstones.popitem(last=False)

    def context_ended(self, cell: Cell) -> None:
        """Record a context's end."""
        ctx = cell.ctx
        status = ctx._status
        data: dict[str, Any] = {
            "status": status,
            "steps": ctx.step_count,
            "items": len(ctx.item_log),
            "tokens": tokens_of(ctx._own),
            "cost": cell.own_cost,
            "elapsed": ctx.elapsed,
        }
        if cell.error is None:
            cell.span.close(status)
        else:
            data["error"] = cell.reply.error if cell.reply else None
            close_failed(cell.span, cell.error, status)
        if not cell.spec.quiet:
            self.journal.emit(cell.spec.scope.run_id, "context.ended", ctx.id, data)

    def forget(self, cell: Cell) -> None:
        """A context has settled."""
        self.cells.pop(cell.spec.id, None)
        self._watchdog.settled(cell)
        waiter = self._waiters.pop(cell.spec.id, None) if self._waiters else None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait_settled(self, cell: Cell) -> None:
        """Return when a context of this process has settled."""
        if not cell.settled:
            waiter = self._waiters.get(cell.spec.id)
            if waiter is None:
                waiter = self._waiters[cell.spec.id] = self.loop.create_future()
            await asyncio.wait((waiter,))

    def watch_abort(self, cell: Cell) -> None:
        """See to it that an aborted context ends."""
        self._watchdog.watch(cell)

    # -- logs ------------------------------------------------------------------------------------

    def open_log(self, cell: Cell) -> None:
        """Give a new context its log, and record what is appended to it."""
        spec, ctx = cell.spec, cell.ctx
        if spec.inherited is not None:
            ctx.item_log = spec.inherited.fork()
            cell.inherited = spec.origin
            spec.inherited = None
        elif self.config.item_types or self.config.strict_items:
            ctx.item_log = self._empty_log()
        run_id, id, journal = spec.scope.run_id, spec.id, self.journal
        cell_ref = cell
        quiet = spec.quiet

        def appended(item: Item) -> None:
            cell_ref.may_append()
            if not quiet:
                journal.item(run_id, id, item)

        ctx.item_log.on_append = appended

    def _empty_log(self, items: Sequence[Item] = ()) -> ItemLog:
        config = self.config
        return ItemLog(items, item_types=config.item_types, strict=config.strict_items)

    async def prepare(self, cell: Cell) -> None:
        """What must be there before the body runs: a log inherited from another process."""
        spec = cell.spec
        if not spec.origin or cell.inherited:
            return
        items: list[Item] = []
        for context_id, count in spec.origin:
            items += await self._read_items(spec.scope.run_id, context_id, 0, count)
        on_append = cell.ctx.item_log.on_append
        log = cell.ctx.item_log = self._empty_log(items)
        log.on_append = on_append
        cell.inherited = spec.origin

    def own_items(self, cell: Cell) -> int:
        """How many items a context appended itself."""
        return len(cell.ctx.item_log) - sum(count for _, count in cell.inherited)

    async def items_of(self, run_id: str, context_id: str, since: int) -> list[Item]:
        """Another context's log, from here or from the journal."""
        cell = self.cells.get(context_id)
        if cell is not None:
            return list(cell.ctx.item_log.since(since))
        return list(await self._read_items(run_id, context_id, since, None))

    async def snapshot_of(self, parent: ParentInfo) -> ContextSnapshot:
        """Another context's figures."""
        cell = self.cells.get(parent.id)
        if cell is not None:
            return snapshot(cell)
        if self.elsewhere is None:
            raise ContextLost(parent.id)
        return await self.elsewhere.snapshot(parent)

    def close(self) -> None:
        """Let idle threads go."""
        self.threads.close()
        self._watchdog.stop()
