"""Events folded into a run's trace: its nodes, their logs, and its spaces."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from noetic_ray.client.trace_records import SpaceRecord, TraceLog, TraceNodeRecord

__all__ = ["TRACE_TYPES", "TraceFold"]

_STARTED = "trace.node_started"
_COMPLETED = "trace.node_completed"
_FAILED = "trace.node_failed"
_UPDATED = "trace.node_updated"
_LOG = "trace.log"
_NODE_TYPES = frozenset({_STARTED, _COMPLETED, _FAILED, _UPDATED})
_SPACE_TYPES = frozenset(
    {"space.created", "space.deleted", "space.set", "space.removed", "space.cleared"}
)
_CONTEXT_TYPES = frozenset(
    {"context.started", "context.ended", "context.lost", "context.restarted"}
)
_RUN_TYPES = frozenset({"run.started", "run.ended"})
#: The events a fold needs to be fed; it ignores others.
TRACE_TYPES = tuple(sorted(_NODE_TYPES | {_LOG} | _SPACE_TYPES | _CONTEXT_TYPES | _RUN_TYPES))

_TEXTS = ("label", "type", "icon", "description")


class _End(NamedTuple):
    status: str
    at: float
    error: str | None


class _Context:
    """What ends the nodes of a context that did not end themselves."""

    __slots__ = ("ended", "lost", "nodes")

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.ended: _End | None = None
        self.lost: _End | None = None

    @property
    def over(self) -> _End | None:
        return self.ended or self.lost


class _Node:
    """What was heard of a node; `start` is None until its start was."""

    __slots__ = (
        "context",
        "context_id",
        "end",
        "id",
        "logs",
        "metadata",
        "output",
        "start",
        "turn",
    )

    def __init__(self, id: str) -> None:
        self.id = id
        self.context: _Context | None = None
        self.context_id = ""
        #: Its number among the nodes of its context.
        self.turn = 0
        self.start: tuple[float, Mapping[str, Any]] | None = None
        self.end: _End | None = None
        self.output: Any = None
        self.metadata: dict[str, Any] = {}
        self.logs: list[TraceLog] = []

    def record(self, run_over: _End | None) -> TraceNodeRecord:
        """Its record, without children."""
        assert self.start is not None
        at, data = self.start
        end = self.end or (self.context.over if self.context else None) or run_over
        texts = _texts(data)
        return TraceNodeRecord(
            id=self.id,
            parent_ids=[str(each) for each in data.get("parent_ids") or ()],
            metadata={**(data.get("metadata") or {}), **self.metadata},
            status=end.status if end else "running",
            input=data.get("input"),
            output=self.output,
            error=end.error if end else None,
            logs=list(self.logs),
            created_at=at,
            started_at=at,
            ended_at=end.at if end else None,
            context_id=self.context_id,
            trace_id=str(data.get("trace_id") or ""),
            span_id=str(data.get("span_id") or ""),
            **texts,
        )


class TraceFold:
    """The trace of one run, grown event by event.

    Events of one context come in order, those of different contexts in any: a child node may be
    heard of before its parent, an end before its start. A node's first end counts. Nodes of a
    context that was lost fail, unless it was restarted, and those that a context leaves running
    end as it did. What still runs when the run has ended died with its process.

    Records are made when asked for and kept until the next event.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._contexts: dict[str, _Context] = {}
        self._spaces: dict[str, SpaceRecord] = {}
        self._run_over: _End | None = None
        self._records: dict[str, TraceNodeRecord] | None = None

    def feed(self, type: str, context_id: str, time: float, data: Mapping[str, Any]) -> bool:
        """Take one event; False when it says nothing about the trace."""
        if type in _NODE_TYPES:
            self._feed_node(type, context_id, time, data)
        elif type == _LOG:
            self._log(time, data)
        elif type in _SPACE_TYPES:
            self._feed_space(type, time, data)
            return True
        elif type in _CONTEXT_TYPES:
            self._feed_context(type, context_id, time, data)
        elif type in _RUN_TYPES:
            over = _End("failed", time, "context lost: its process ended")
            self._run_over = over if type == "run.ended" else None
        else:
            return False
        self._records = None
        return True

    def nodes(self) -> list[TraceNodeRecord]:
        """The nodes in the order they started: parents first, else by their times."""
        return list(self._known().values())

    def node(self, id: str) -> TraceNodeRecord | None:
        """The node with this id, or None."""
        return self._known().get(id)

    @property
    def root(self) -> TraceNodeRecord | None:
        """The run's first node, or None."""
        return next(iter(self._known().values()), None)

    def spaces(self) -> list[SpaceRecord]:
        """The spaces that exist, in the order they were made."""
        return [
            SpaceRecord(
                each.id,
                each.label,
                each.type,
                each.icon,
                each.description,
                dict(each.metadata),
                dict(each.data),
                each.created_at,
            )
            for each in self._spaces.values()
        ]

    # -- events ----------------------------------------------------------------------------------

    def _node(self, id: str) -> _Node:
        node = self._nodes.get(id)
        if node is None:
            node = self._nodes[id] = _Node(id)
        return node

    def _context(self, id: str) -> _Context:
        context = self._contexts.get(id)
        if context is None:
            context = self._contexts[id] = _Context()
        return context

    def _feed_node(self, type: str, context_id: str, at: float, data: Mapping[str, Any]) -> None:
        node = self._node(str(data["node_id"]))
        if type == _STARTED:
            self._start(node, context_id, at, data)
        elif type == _UPDATED:
            node.output = data.get("output", node.output)
            node.metadata.update(data.get("metadata") or {})
        elif node.end is None and not _is_over(node, context_id):
            error = str(data.get("error") or "") if type == _FAILED else None
            node.end = _End("failed" if type == _FAILED else "completed", at, error)
            node.output = data.get("output", node.output)

    def _start(self, node: _Node, context_id: str, at: float, data: Mapping[str, Any]) -> None:
        if node.start is not None:
            return
        node.start = at, data
        node.context_id = context_id
        node.context = self._context(context_id)
        node.turn = len(node.context.nodes)
        node.context.nodes.append(node)

    def _log(self, at: float, data: Mapping[str, Any]) -> None:
        line = TraceLog(str(data["level"]), str(data["message"]), data.get("data"), at)
        for id in data.get("node_ids") or ():
            self._node(str(id)).logs.append(line)

    def _feed_context(self, type: str, context_id: str, at: float, data: Mapping[str, Any]) -> None:
        context = self._context(context_id)
        if type == "context.lost":
            reason = data.get("reason") or "its process ended"
            context.lost = _End("failed", at, f"context lost: {reason}")
        elif type == "context.ended":
            context.ended = _end_of(at, data)
        elif type == "context.restarted":
            context.lost = context.ended = None
        else:
            context.ended = None

    def _feed_space(self, type: str, at: float, data: Mapping[str, Any]) -> None:
        id = str(data["space_id"])
        if type == "space.created":
            texts = _texts(data)
            metadata = dict(data.get("metadata") or {})
            self._spaces[id] = SpaceRecord(id, metadata=metadata, created_at=at, **texts)
            return
        space = self._spaces.get(id)
        if space is None:
            return
        if type == "space.deleted":
            del self._spaces[id]
        elif type == "space.set":
            space.data[str(data["key"])] = data.get("value")
        elif type == "space.removed":
            space.data.pop(str(data["key"]), None)
        else:
            space.data.clear()

    # -- records ---------------------------------------------------------------------------------

    def _known(self) -> dict[str, TraceNodeRecord]:
        if self._records is None:
            self._records = records = {
                node.id: node.record(self._run_over) for node in self._ordered()
            }
            for record in records.values():
                for parent_id in dict.fromkeys(record.parent_ids):
                    parent = records.get(parent_id)
                    if parent is not None and parent is not record:
                        parent.children.append(record)
        return self._records

    def _ordered(self) -> list[_Node]:
        """The nodes that started, in an order that does not depend on how events arrived.

        Clocks of different machines differ: a node counts as no earlier than those it follows,
        its parents and the node its context started before.
        """
        nodes = {id: node for id, node in self._nodes.items() if node.start is not None}
        before = {id: _before(node, nodes) for id, node in nodes.items()}
        after: dict[str, list[str]] = {id: [] for id in nodes}
        for id, earlier in before.items():
            for each in earlier:
                after[each].append(id)
        missing = {id: len(earlier) for id, earlier in before.items()}
        ready = deque(id for id, count in missing.items() if not count)
        place = {id: (node.start[0], 0) for id, node in nodes.items() if node.start is not None}
        while ready:
            id = ready.popleft()
            at, rank = place[id]
            for later in after[id]:
                own, own_rank = place[later]
                place[later] = max(at, own), max(rank + 1, own_rank)
                missing[later] -= 1
                if not missing[later]:
                    ready.append(later)
        return sorted(
            nodes.values(), key=lambda node: (*place[node.id], node.context_id, node.turn)
        )


def _before(node: _Node, nodes: Mapping[str, _Node]) -> set[str]:
    """Ids of the nodes that a node follows."""
    parents = node.start[1].get("parent_ids") or () if node.start else ()
    earlier = {str(each) for each in parents if str(each) in nodes}
    if node.turn and node.context:
        earlier.add(node.context.nodes[node.turn - 1].id)
    return earlier - {node.id}


def _is_over(node: _Node, context_id: str) -> bool:
    """Whether a node's context had ended it before somebody else did."""
    return node.context is not None and node.context_id != context_id and bool(node.context.over)


def _end_of(at: float, data: Mapping[str, Any]) -> _End:
    status = str(data.get("status") or "completed")
    if status == "completed":
        return _End(status, at, None)
    error = data.get("error")
    said = error.get("message") if isinstance(error, Mapping) else error
    return _End("failed", at, str(said or f"its context is {status}"))


def _texts(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(data.get(name) or "") for name in _TEXTS}
