"""`ctx.trace`: the steps of an agent's work as it wants them seen."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from noetic_ray.client.ports import ClientPort
from noetic_ray.client.spaces import Space
from noetic_ray.client.trace_fold import TraceFold
from noetic_ray.client.trace_node import TraceNode, said_of
from noetic_ray.client.trace_records import ParallelInput, TraceNodeOption, TraceNodeRecord
from noetic_ray.errors import TraceError

log = logging.getLogger("noetic_ray")
_generator = random.Random()
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 12
RUNNING, COMPLETED, FAILED = "running", "completed", "failed"


def new_node_id() -> str:
    """12 of 0-9 and a-z, 62 random bits."""
    return "".join(_generator.choices(_DIGITS, k=_ID_LENGTH))


class Trace:
    """A run has one tree of nodes; each context has its own place in it, its current nodes.

    `add` and `parallel` move that place; a child context begins below the nodes that were current
    in its parent. Recording is local and returns at once, from coroutines and threads alike;
    what is awaited asks the run's journal.
    """

    __slots__ = ("_context_id", "_current", "_fold", "_inherited", "_lock", "_port", "_running",
                 "_since")  # fmt: skip

    def __init__(self, port: ClientPort, context_id: str, inherited: Sequence[str] = ()) -> None:
        self._port = port
        self._context_id = context_id
        self._inherited = tuple(inherited)
        self._current: tuple[TraceNode, ...] = ()
        self._running: dict[str, TraceNode] = {}
        self._lock = threading.RLock()
        self._fold = TraceFold()
        self._since = 0

    # -- nodes -----------------------------------------------------------------------------------

    def add(
        self,
        input: Any,
        *,
        label: str = "",
        type: str = "",
        icon: str = "",
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> TraceNode:
        """Begin the next node: below all current ones, which are completed if they still run."""
        option = TraceNodeOption(label, type, icon, description, metadata)
        with self._lock:
            return self._advance([ParallelInput(input, option)])[0]

    def parallel(self, inputs: Iterable[ParallelInput | Mapping[str, Any]]) -> list[TraceNode]:
        """Begin nodes side by side, each below all current ones; returns them in order.

        The next `add` joins them. Raises TraceError for an empty list or a malformed entry,
        before anything is recorded.
        """
        entries = as_inputs(inputs)
        if not entries:
            raise TraceError("trace.parallel was given no inputs; give at least one")
        with self._lock:
            return self._advance(entries)

    def get_current_nodes(self) -> list[TraceNode]:
        """The nodes this context stands at: none before its first, several after `parallel`."""
        return list(self._current)

    async def get_root_node(self) -> TraceNode | None:
        """The run's first node, or None."""
        fold = await self._read()
        return None if fold.root is None else self._handle(fold.root)

    async def get_node(self, id: str) -> TraceNode | None:
        """Any node of the run, with all that is below it in `children`; None if there is none."""
        record = (await self._read()).node(id)
        return None if record is None else self._handle(record)

    # -- logs ------------------------------------------------------------------------------------

    def info(self, message: str, data: Any = None) -> Trace:
        """Log to every current node; with none here, to those this context began below."""
        return self._log("info", message, data)

    def debug(self, message: str, data: Any = None) -> Trace:
        """`info` at the level debug."""
        return self._log("debug", message, data)

    def warn(self, message: str, data: Any = None) -> Trace:
        """`info` at the level warn."""
        return self._log("warn", message, data)

    def error(self, message: str, data: Any = None) -> Trace:
        """`info` at the level error."""
        return self._log("error", message, data)

    # -- spaces ----------------------------------------------------------------------------------

    async def create_space(
        self,
        *,
        label: str = "",
        type: str = "",
        icon: str = "",
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> Space:
        """A new space of key-value data, shared by every context of the run.

        Raises TraceError when the run has a space of this id.
        """
        option = TraceNodeOption(label, type, icon, description, metadata)
        facts = {**option.as_dict(), "id": id}
        return Space(self._port, await self._port.space("create", facts))

    async def get_space(self, id: str) -> Space | None:
        """The space with this id, else the only one of this type, else None."""
        found = await self._port.space("get_space", {"id": id})
        return None if found is None else Space(self._port, found)

    async def has_space(self, id: str) -> bool:
        """Whether `get_space` would find one."""
        return await self._port.space("get_space", {"id": id}) is not None

    async def delete_space(self, id: str) -> None:
        """Delete the space `get_space` would find, with its keys. An unknown one is left alone."""
        await self._port.space("delete_space", {"id": id})

    async def list_spaces(self) -> list[Space]:
        """The run's spaces, in the order they were made."""
        return [Space(self._port, each) for each in await self._port.space("list", {})]

    # -- for the engine --------------------------------------------------------------------------

    @property
    def place(self) -> tuple[str, ...]:
        """Ids of the nodes a child context's first node is to stand below."""
        return tuple(node.id for node in self._current) or self._inherited

    def begin_child(
        self, input: Any, option: TraceNodeOption, above: TraceNode | None = None
    ) -> TraceNode:
        """A node below `above`, or the newest current one, which stays open and current."""
        entry = ParallelInput(input, option)
        with self._lock:
            node = above or (self._current[-1] if self._current else None)
            if node is not None:
                return self._start(entry, (node.id,), (node,))
            return self._start(entry, self._inherited[-1:])

    def finish(self, reason: str | None) -> None:
        """The context ends: nodes that still run complete, or fail with `reason`."""
        with self._lock:
            for node in tuple(self._running.values()):
                if reason is None:
                    self.end(node, COMPLETED, {})
                else:
                    self.end(node, FAILED, {"error": reason})

    # -- for nodes -------------------------------------------------------------------------------

    def below(self, node: TraceNode, inputs: Sequence[ParallelInput]) -> list[TraceNode]:
        """Children of a node; the node stays as it is, and so do the current ones."""
        with self._lock:
            return [self._start(each, (node.id,), (node,)) for each in inputs]

    def end(self, node: TraceNode, status: str, more: Mapping[str, Any]) -> None:
        """End a node, once. Later ends are ignored, with a warning in the log."""
        record = node.record
        with self._lock:
            if record.status != RUNNING:
                log.warning(
                    "trace node %s (%s) is %s already; it is left so",
                    record.id, record.label, record.status,
                )  # fmt: skip
                return
            now = time.time()
            self._running.pop(record.id, None)
            record.status, record.ended_at = status, now
            record.error = more.get("error")
            duration = max(0.0, now - (record.started_at or now))
            self._port.emit(
                f"trace.node_{status}",
                {"node_id": record.id, "status": status, "duration": duration, **more},
            )

    def is_mine(self, node: TraceNode) -> bool:
        """Whether this context began the node and has not ended it; its facts are here then."""
        return self._running.get(node.id) is node

    def update(self, node: TraceNode, more: Mapping[str, Any]) -> None:
        """A node's output or metadata changed."""
        self._port.emit("trace.node_updated", {"node_id": node.id, **more})

    def log_to(self, nodes: Sequence[str], level: str, message: str, data: Any) -> None:
        """One line for several nodes."""
        entry = {"node_ids": list(nodes), "level": level, "message": said_of(message)}
        if data is not None:
            entry["data"] = data
        self._port.emit("trace.log", entry)

    # -- inside ----------------------------------------------------------------------------------

    def _log(self, level: str, message: str, data: Any) -> Trace:
        with self._lock:
            self.log_to(self.place, level, message, data)
        return self

    def _advance(self, entries: Sequence[ParallelInput]) -> list[TraceNode]:
        above = self._current
        for node in above:
            if node.record.status == RUNNING:
                self.end(node, COMPLETED, {})
        parents = self.place
        nodes = [self._start(each, parents, above) for each in entries]
        self._current = tuple(nodes)
        return nodes

    def _start(
        self, entry: ParallelInput, parents: Sequence[str], above: Sequence[TraceNode] = ()
    ) -> TraceNode:
        option, now = entry.option, time.time()
        trace_id, span_id = self._port.span_ids()
        record = TraceNodeRecord(
            id=new_node_id(),
            parent_ids=list(parents),
            label=option.label,
            type=option.type,
            icon=option.icon,
            description=option.description,
            metadata=dict(option.metadata or {}),
            input=entry.input,
            created_at=now,
            started_at=now,
            context_id=self._context_id,
            trace_id=trace_id,
            span_id=span_id,
        )
        node = TraceNode(self, record)
        for each in above:
            each.record.children.append(record)
        self._running[record.id] = node
        data = {
            "node_id": record.id,
            "parent_ids": record.parent_ids,
            "label": record.label,
            "type": record.type,
            "icon": record.icon,
            "description": record.description,
            "metadata": record.metadata,
            "input": record.input,
            "trace_id": trace_id,
            "span_id": span_id,
        }
        self._port.emit("trace.node_started", data)
        self._port.mark_span(record.id, record.label)
        return node

    def _handle(self, record: TraceNodeRecord) -> TraceNode:
        """A node of this context that still runs is the same object again."""
        with self._lock:
            mine = self._running.get(record.id)
            if mine is None:
                return TraceNode(self, replace(record, metadata=dict(record.metadata)))
            mine.record.children, mine.record.logs = record.children, record.logs
            mine.record.metadata = {**record.metadata, **mine.record.metadata}
            if record.status != RUNNING:  # another context has ended it
                del self._running[record.id]
                mine.record.status, mine.record.ended_at = record.status, record.ended_at
                mine.record.output, mine.record.error = record.output, record.error
                mine.record.metadata = dict(record.metadata)
        return mine

    async def _read(self) -> TraceFold:
        while True:
            since = self._since
            events, last = await self._port.read_trace(since)
            if self._since == since:  # else somebody else has fed these meanwhile
                for event in events:
                    self._fold.feed(*event)
                self._since = last
                return self._fold


def as_inputs(given: Any) -> list[ParallelInput]:
    """The entries of a `parallel` call. Raises TraceError naming what is wrong."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TraceError("trace.parallel takes a list of ParallelInput")
    return [ParallelInput.of(each) for each in given]
