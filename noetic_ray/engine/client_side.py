"""A context's way out to its client, made when it is first used."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.canonical import canonical, from_json
from noetic_ray.client.mcp import Mcp
from noetic_ray.client.messages import Messages
from noetic_ray.client.ports import TraceEvent
from noetic_ray.client.trace import Trace
from noetic_ray.client.trace_fold import TRACE_TYPES
from noetic_ray.context import current_frame
from noetic_ray.engine.blocking import blocking
from noetic_ray.engine.mcp_tools import ask_server
from noetic_ray.errors import Cancelled, NoeticError, TraceError
from noetic_ray.tracing.records import SpanRecord

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

log = logging.getLogger("noetic_ray")
_ID_DIGITS = 8


class ClientSide:
    """Implements `client.ports.ClientPort` for one cell."""

    __slots__ = ("_cell", "_late", "mcp", "messages", "trace")

    def __init__(self, cell: Cell) -> None:
        spec = cell.spec
        self._cell = cell
        self._late = False
        self.messages = Messages(self, _suffix(cell), spec.sent)
        self.trace = Trace(self, spec.id, spec.trace_place)
        self.mcp = Mcp(self, self.trace)

    @classmethod
    def of(cls, cell: Cell) -> ClientSide:
        """The cell's own, made when there is none yet."""
        if cell.client is None:
            cell.client = cls(cell)
        return cell.client

    def finish(self, error: NoeticError | None) -> None:
        """The context ends: its open trace nodes do too."""
        reason = (
            error.reason if isinstance(error, Cancelled) else None if error is None else str(error)
        )
        self.trace.finish(reason)

    # -- events ----------------------------------------------------------------------------------

    @property
    def accept(self) -> str:
        """The format the client asked for."""
        request = self._cell.spec.scope.request
        return "standard" if request is None else request.accept

    def emit(self, type: str, data: Mapping[str, Any], now: bool = False) -> bool:
        """Record an event, unless the context has ended."""
        cell = self._cell
        if cell.closed:
            self._refuse(type)
            return False
        cell.emit(type, dict(data))
        if now and not cell.spec.quiet:
            cell.rt.journal.hasten()
        return True

    def _refuse(self, type: str) -> None:
        ctx = self._cell.ctx
        if ctx.aborted and type.startswith("message."):
            raise Cancelled(ctx.abort_reason)
        if not self._late:
            self._late = True
            log.warning("context %s has ended; its %s is not recorded any more", ctx.id, type)

    def release(self) -> None:
        """Send what is queued on its way."""
        if not self._cell.closed:
            self._cell.rt.journal.hasten()

    # -- spans -----------------------------------------------------------------------------------

    def span_ids(self) -> tuple[str, str]:
        """(trace id, span id) of the step that runs."""
        span = self._span()
        return f"{span.trace_id:032x}", f"{span.span_id:016x}"

    def mark_span(self, node_id: str, label: str) -> None:
        """A span says which trace nodes began in it."""
        if self._cell.rt.span_sink is not None:
            data = {"noetic.trace.node.id": node_id, "noetic.trace.node.label": label}
            self._span().event("noetic.trace.node", data)

    def _span(self) -> SpanRecord:
        frame = current_frame.get()
        mine = frame is not None and frame.context is self._cell.ctx
        span: SpanRecord = frame.span if mine and frame is not None else self._cell.span
        return span

    def marks(self) -> dict[str, int]:
        """How far the journal has to be read to know all that this context knows of."""
        cell = self._cell
        known: dict[str, int] = {}
        for marks in (cell.spec.marks, cell.marks or {}, cell.rt.journal.mark()):
            for sender, count in marks.items():
                known[sender] = max(count, known.get(sender, 0))
        return known

    # -- what is asked of the journal ------------------------------------------------------------

    async def read_trace(self, since: int) -> tuple[list[TraceEvent], int]:
        """What the run's record has by now, this context's own part included."""
        cell = self._cell
        cell.check()
        cell.rt.journal.hasten()
        reading = cell.rt.book.select(cell.spec.scope.run_id, TRACE_TYPES, since, self.marks())
        entries, last = await blocking(cell, reading)
        return [(type, at, time, from_json(data)) for _, type, at, time, data in entries], last

    async def space(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do something to the run's spaces."""
        cell = self._cell
        cell.check()
        if cell.spec.quiet or cell.spec.preview:
            raise TraceError("a preview has no spaces: it changes nothing")
        cell.rt.journal.hasten()
        run_id, marks = cell.spec.scope.run_id, cell.rt.journal.mark()
        plain = canonical(dict(arguments))
        return await blocking(
            cell, cell.rt.book.space(run_id, cell.ctx.id, operation, plain, marks)
        )

    async def add_value(self, prefix: str, value: bytes) -> int:
        """Append to a list of values in the harness's store."""
        self._cell.check()
        return await blocking(self._cell, self._cell.values.add(prefix, value))

    async def load_values(self, prefix: str) -> list[tuple[str, bytes]]:
        """A list of values in the harness's store."""
        cell = self._cell
        cell.check()
        keys = await blocking(cell, cell.values.keys(prefix))
        found = await blocking(cell, cell.values.load(keys))
        return [(key, found[key]) for key in keys if key in found]

    # -- MCP -------------------------------------------------------------------------------------

    @property
    def mcp_clients(self) -> Sequence[str]:
        """The names of the harness's MCP servers."""
        return self._cell.rt.mcp.clients

    async def ask_mcp(self, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """Ask an MCP server."""
        return await ask_server(self._cell, client, method, arguments)


def _suffix(cell: Cell) -> str:
    if cell.spec.parent is None:
        return ""
    return "@" + cell.spec.id.replace("-", "")[-_ID_DIGITS:]
