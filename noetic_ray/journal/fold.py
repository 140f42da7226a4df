"""Events folded into the tree of contexts and into one line per run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noetic_ray.canonical import from_json
from noetic_ray.journal.events import (
    CONTEXT_ENDED,
    CONTEXT_STARTED,
    ITEM_APPENDED,
    RUN_ENDED,
    RUN_STARTED,
    USAGE_UPDATED,
    Event,
    RunInfo,
    Stored,
)
from noetic_ray.usage import TokenUsage

#: What `summarize` needs to see.
SUMMARY_TYPES = frozenset({RUN_STARTED, RUN_ENDED, CONTEXT_STARTED, CONTEXT_ENDED, USAGE_UPDATED})
_TREE_TYPES = SUMMARY_TYPES | {
    ITEM_APPENDED,
    "context.aborted",
    "context.lost",
    "context.restarted",
}
_LIVE = ("pending", "running")


@dataclass(frozen=True, slots=True)
class ContextTree:
    """A context and those under it. `items` counts its own log.

    `tokens` and `cost` (US dollars) include the children's, `elapsed` is in seconds.
    """

    id: str
    step: str | None
    status: str
    depth: int
    items: int
    tokens: TokenUsage
    cost: float
    elapsed: float
    node: str | None
    pid: int | None
    children: list[ContextTree]

    def walk(self) -> Iterator[ContextTree]:
        """This context and all under it, parents first."""
        ahead = [self]
        while ahead:
            tree = ahead.pop()
            yield tree
            ahead.extend(reversed(tree.children))


class ContextRow(NamedTuple):
    """A context as one line of a flat table; the figures are those of `ContextTree`."""

    id: str
    parent_id: str | None
    step: str | None
    status: str
    depth: int
    items: int
    tokens: TokenUsage
    cost: float
    elapsed: float
    node: str | None
    pid: int | None


@dataclass(slots=True)
class _Usage:
    """Tokens and cost of one context: its own, as it goes, and what it said at its end."""

    own: TokenUsage = field(default_factory=TokenUsage)
    own_cost: float = 0.0
    said: TokenUsage | None = None
    said_cost: float = 0.0

    def feed(self, type_: str, data: Mapping[str, Any]) -> None:
        tokens = _tokens(data.get("tokens"))
        cost = float(data.get("cost") or 0.0)
        if type_ == USAGE_UPDATED:
            self.own, self.own_cost = tokens or self.own, cost
        else:
            self.said, self.said_cost = tokens, cost

    def total(self, below: Iterable[tuple[TokenUsage, float]]) -> tuple[TokenUsage, float]:
        """With the children's totals. Children may have gone on after this context ended."""
        tokens, cost = self.own.copy(), self.own_cost
        for child_tokens, child_cost in below:
            tokens.merge(child_tokens)
            cost += child_cost
        if self.said is not None and self.said.total > tokens.total:
            tokens = self.said.copy()
        return tokens, max(cost, self.said_cost)


@dataclass(slots=True)
class _Node:
    id: str
    parent_id: str | None = None
    step: str | None = None
    depth: int | None = None
    host: str | None = None
    pid: int | None = None
    items: int = 0
    started_at: float | None = None
    elapsed: float | None = None
    ended: str | None = None
    lost_at: float | None = None
    restarted_at: float | None = None
    aborted: bool = False
    usage: _Usage = field(default_factory=_Usage)
    children: dict[str, None] = field(default_factory=dict)


class TreeFold:
    """The tree of one run, grown event by event.

    Events of one context come in order, those of different contexts in any: a child may be
    heard of before its parent.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._nodes: dict[str, _Node] = {run_id: _Node(run_id, depth=0)}
        self._run_status: str | None = None
        self._run_step: str | None = None

    def feed(self, event: Event) -> bool:
        """Take one event; False when it says nothing about the tree."""
        type_ = event.type
        if type_ not in _TREE_TYPES:
            return False
        if type_ == ITEM_APPENDED:
            self._node(event.context_id).items += 1
        elif type_ in (RUN_STARTED, RUN_ENDED):
            self._run(type_, event.data)
        else:
            self._context(self._node(event.context_id), type_, event.time, event.data)
        return True

    def tree(self, now: float | None = None) -> ContextTree:
        """The tree as it is; `now` (seconds since the epoch) ages what still runs."""
        at = time.time() if now is None else now
        done: dict[str, ContextTree] = {}
        for node in reversed(self._ordered()):
            children = [done[child] for child in sorted(node.children)]
            tokens, cost = node.usage.total((child.tokens, child.cost) for child in children)
            done[node.id] = ContextTree(
                id=node.id,
                step=node.step,
                status=self._status(node),
                depth=self._depth(node),
                items=node.items,
                tokens=tokens,
                cost=cost,
                elapsed=_elapsed(node, at),
                node=node.host,
                pid=node.pid,
                children=children,
            )
        return done[self.run_id]

    def rows(self, now: float | None = None) -> list[ContextRow]:
        """The tree as lines, parents before children."""
        return [
            ContextRow(
                each.id,
                self._parent(self._nodes[each.id]),
                each.step,
                each.status,
                each.depth,
                each.items,
                each.tokens,
                each.cost,
                each.elapsed,
                each.node,
                each.pid,
            )
            for each in self.tree(now).walk()
        ]

    def _node(self, context_id: str) -> _Node:
        node = self._nodes.get(context_id)
        if node is None:
            node = self._nodes[context_id] = _Node(context_id)
            self._nodes[self.run_id].children[context_id] = None
        return node

    def _run(self, type_: str, data: Mapping[str, Any]) -> None:
        root = self._nodes[self.run_id]
        if type_ == RUN_STARTED:
            self._run_status = None
            self._run_step = data.get("step") or self._run_step
            root.step = root.step or self._run_step
        else:
            self._run_status = str(data.get("status") or "completed")
            root.usage.said = root.usage.said or _tokens(data.get("tokens"))

    def _context(self, node: _Node, type_: str, at: float, data: Mapping[str, Any]) -> None:
        if type_ == CONTEXT_STARTED:
            self._started(node, at, data)
        elif type_ == CONTEXT_ENDED:
            node.ended = str(data.get("status") or "completed")
            node.elapsed = data.get("elapsed")
            if node.elapsed is None and node.started_at is not None:
                node.elapsed = at - node.started_at
            node.items = max(node.items, _count(data.get("items")))
            node.usage.feed(type_, data)
        elif type_ == USAGE_UPDATED:
            node.usage.feed(type_, data)
        elif type_ == "context.lost":
            node.lost_at = at
            node.aborted = node.aborted or bool(data.get("killed"))
        elif type_ == "context.restarted":
            node.restarted_at = at
        else:
            node.aborted = True

    def _started(self, node: _Node, at: float, data: Mapping[str, Any]) -> None:
        node.step = data.get("step") or node.step
        node.depth = data.get("depth")
        node.host = data.get("node")
        node.pid = data.get("pid")
        node.started_at = at
        node.ended = None
        parent_id = data.get("parent_id")
        if node.id == self.run_id or parent_id is None or node.parent_id == parent_id:
            return
        # Until now it hung under the root, for want of anything better.
        self._nodes[node.parent_id or self.run_id].children.pop(node.id, None)
        node.parent_id = parent_id
        self._node(parent_id).children[node.id] = None

    def _ordered(self) -> list[_Node]:
        """All nodes, parents first, siblings in the order they were made: ids are UUIDv7."""
        ahead, ordered, seen = [self.run_id], [], {self.run_id}
        while ahead:
            node = self._nodes[ahead.pop()]
            ordered.append(node)
            fresh = sorted(child for child in node.children if child not in seen)
            seen.update(fresh)
            ahead.extend(reversed(fresh))
        return ordered

    def _parent(self, node: _Node) -> str | None:
        return None if node.id == self.run_id else node.parent_id or self.run_id

    def _depth(self, node: _Node) -> int:
        if node.depth is not None:
            return node.depth
        known = (self._nodes[child].depth for child in node.children)
        return next((depth - 1 for depth in known if depth is not None), 1)

    def _status(self, node: _Node) -> str:
        status = self._told(node)
        if status not in _LIVE or self._run_status is None:
            return status
        # The run is over, so this context is too, though it could not say so.
        if node.id == self.run_id:
            return self._run_status
        return "cancelled" if node.aborted else "lost"

    def _told(self, node: _Node) -> str:
        if node.ended is not None:
            return node.ended
        if node.lost_at is not None and (node.restarted_at or 0.0) < node.lost_at:
            return "cancelled" if node.aborted else "lost"
        return "pending" if node.started_at is None else "running"


def summarize(run_id: str, entries: Iterable[Stored]) -> RunInfo:
    """One line about a run from its events of `SUMMARY_TYPES`, in order."""
    status, step = "pending", None
    started_at: float | None = None
    ended_at: float | None = None
    contexts: set[str] = set()
    usage: dict[str, _Usage] = {}
    for _, type_, context_id, at, raw in entries:
        if type_ == CONTEXT_STARTED:
            contexts.add(context_id)
            continue
        data = from_json(raw)
        if type_ == RUN_STARTED:
            status, step, ended_at = "running", data.get("step") or step, None
            started_at = at if started_at is None else started_at
        elif type_ == RUN_ENDED:
            status, ended_at = str(data.get("status") or "completed"), at
            usage.setdefault("", _Usage()).feed(type_, data)
        else:
            usage.setdefault(context_id, _Usage()).feed(type_, data)
    tokens, cost = _grand_total(run_id, usage)
    return RunInfo(run_id, status, step, started_at, ended_at, len(contexts), tokens, cost)


def _grand_total(run_id: str, usage: dict[str, _Usage]) -> tuple[TokenUsage, float]:
    root = usage.pop(run_id, None) or _Usage()
    run = usage.pop("", None) or _Usage()
    own = root.total((each.own, each.own_cost) for each in usage.values())
    return run.total([own])


def _tokens(data: Any) -> TokenUsage | None:
    if not isinstance(data, Mapping):
        return None
    one, other = int(data.get("input") or 0), int(data.get("output") or 0)
    total = data.get("total")
    total = one + other if total is None else int(total)
    return TokenUsage(one, other, total, data.get("cached"), int(data.get("unreported") or 0))


def _count(items: Any) -> int:
    return items if isinstance(items, int) else 0


def _elapsed(node: _Node, now: float) -> float:
    if node.elapsed is not None:
        return float(node.elapsed)
    if node.started_at is None:
        return 0.0
    return max(0.0, (node.lost_at or now) - node.started_at)
