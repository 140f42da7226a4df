from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from noetic_ray.canonical import to_json_bytes
from noetic_ray.journal.events import Event, Stored
from noetic_ray.journal.fold import SUMMARY_TYPES, ContextTree, TreeFold, summarize
from noetic_ray.usage import TokenUsage


class Script:
    """Events of a run, each context's in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.at = 100.0

    def __call__(self, type_: str, context: str, **data: Any) -> None:
        self.at += 1
        self.events.append(Event(None, type_, "r", context, self.at, data))

    def start(self, context: str, parent: str | None, depth: int, **data: Any) -> None:
        self("context.started", context, parent_id=parent, depth=depth, step=f"s-{context}", **data)

    def usage(self, context: str, total: int, cost: float) -> None:
        self("usage.updated", context, tokens=_used(total), cost=cost)

    def end(self, context: str, status: str = "completed", **data: Any) -> None:
        self("context.ended", context, status=status, **data)


def _used(total: int) -> dict[str, Any]:
    return {"input": total - 1, "output": 1, "total": total, "cached": None}


@pytest.fixture
def script() -> Script:
    """A root with two children, the first of which has one too."""
    script = Script()
    script("run.started", "r", step="main")
    script.start("r", None, 0, node="n1", pid=1, actor="a1")
    script.usage("r", 10, 0.1)
    script.start("a", "r", 1, node="n1", pid=2)
    script.start("b", "r", 1, node="n2", pid=3)
    script.start("aa", "a", 2, node="n2", pid=4)
    for _ in range(3):
        script("item.appended", "a", item={})
    script.usage("aa", 100, 0.5)
    script.usage("aa", 200, 1.0)
    script("step.started", "b")
    script.end("aa", tokens=_used(200), cost=1.0, elapsed=0.25)
    script.end("a", tokens=_used(200), cost=1.0, elapsed=1.5, items=3)
    return script


def _folded(events: list[Event]) -> TreeFold:
    fold = TreeFold("r")
    for event in events:
        fold.feed(event)
    return fold


def test_a_tree_grows(script: Script) -> None:
    tree = _folded(script.events).tree(now=200.0)
    assert [each.id for each in tree.walk()] == ["r", "a", "aa", "b"]
    a, b = tree.children
    aa = a.children[0]
    assert (tree.step, tree.status, tree.depth, tree.node, tree.pid) == (
        "s-r",
        "running",
        0,
        "n1",
        1,
    )
    assert (a.status, a.items, a.elapsed, a.depth) == ("completed", 3, 1.5, 1)
    assert (aa.status, aa.depth, aa.elapsed, aa.children) == ("completed", 2, 0.25, [])
    assert (b.status, b.node, b.pid) == ("running", "n2", 3)
    assert tree.elapsed == 200.0 - 102.0


def test_tokens_and_cost_include_the_children(script: Script) -> None:
    tree = _folded(script.events).tree()
    a, b = tree.children
    assert a.children[0].tokens == TokenUsage(199, 1, 200)
    assert a.tokens == TokenUsage(199, 1, 200)
    assert tree.tokens.total == 210
    assert tree.cost == pytest.approx(1.1)
    assert (b.tokens, b.cost) == (TokenUsage(), 0.0)


def test_answers_without_usage_are_counted_in_the_tree_and_in_the_summary() -> None:
    script = Script()
    script("run.started", "r", step="main")
    script.start("r", None, 0)
    script.start("a", "r", 1)
    for context in ("r", "a"):
        script("usage.updated", context, tokens={"input": 0, "output": 0, "unreported": 1})
    assert _folded(script.events).tree().tokens == TokenUsage(unreported=2)
    assert summarize("r", _stored(script.events)).tokens == TokenUsage(unreported=2)


def test_what_only_the_end_says_counts() -> None:
    script = Script()
    script.start("r", None, 0)
    script.start("a", "r", 1)
    script.end("a", tokens=_used(50), cost=0.5)
    script.end("r", tokens=_used(60), cost=0.6)
    tree = _folded(script.events).tree()
    assert tree.tokens.total == 60
    assert tree.children[0].tokens.total == 50
    assert tree.cost == 0.6


def test_a_child_may_go_on_after_its_parent_ended(script: Script) -> None:
    script.end("r", tokens=_used(210), cost=1.1)
    script.usage("b", 1_000, 2.0)
    tree = _folded(script.events).tree()
    assert (tree.status, tree.tokens.total) == ("completed", 1_210)
    assert tree.cost == pytest.approx(3.1)


def test_contexts_may_be_heard_of_in_any_order(script: Script) -> None:
    want = _folded(script.events).tree(now=200.0)
    queues: dict[str, list[Event]] = {}
    for event in script.events:
        key = "run" if event.type.startswith("run.") else event.context_id
        queues.setdefault(key, []).append(event)
    for seed in range(50):
        chance = random.Random(seed)
        left = {key: list(events) for key, events in queues.items()}
        mixed: list[Event] = []
        while left:
            key = chance.choice(sorted(left))
            mixed.append(left[key].pop(0))
            if not left[key]:
                del left[key]
        assert _sorted(_folded(mixed).tree(now=200.0)) == _sorted(want)


def _sorted(tree: ContextTree) -> Any:
    children = sorted((_sorted(child) for child in tree.children), key=lambda each: str(each[0]))
    cost = round(tree.cost, 9)
    return (
        *(tree.id, tree.step, tree.status, tree.depth, tree.items, tree.tokens.total, cost),
        *(tree.elapsed, tree.node, tree.pid, children),
    )


def test_a_child_known_before_its_parent_is_shown() -> None:
    script = Script()
    script.start("aa", "a", 2)
    fold = _folded(script.events)
    tree = fold.tree()
    assert [(each.id, each.status, each.depth) for each in tree.walk()] == [
        ("r", "pending", 0),
        ("a", "pending", 1),
        ("aa", "running", 2),
    ]
    script.start("a", "r", 1)
    fold.feed(script.events[-1])
    assert [each.id for each in fold.tree().walk()] == ["r", "a", "aa"]


def test_a_lost_context_may_be_restarted() -> None:
    script = Script()
    script.start("r", None, 0)
    script.start("a", "r", 1)
    script("context.lost", "a", reason="node died")
    fold = _folded(script.events)
    lost = fold.tree(now=900.0).children[0]
    assert (lost.status, lost.elapsed) == ("lost", 1.0)
    script("context.restarted", "a")
    fold.feed(script.events[-1])
    assert fold.tree().children[0].status == "running"
    script.end("a", "failed")
    fold.feed(script.events[-1])
    assert fold.tree().children[0].status == "failed"


def test_what_could_not_say_its_end_ends_with_the_run() -> None:
    script = Script()
    script("run.started", "r", step="main")
    script.start("a", "r", 1)
    script.start("b", "r", 1)
    script("context.aborted", "a", reason="stop")
    assert [each.status for each in _folded(script.events).tree().children] == ["running"] * 2
    script("run.ended", "r", status="cancelled")
    tree = _folded(script.events).tree()
    assert (tree.status, tree.step) == ("cancelled", "main")
    assert [each.status for each in tree.children] == ["cancelled", "lost"]
    script("run.started", "r", step="main")
    assert _folded(script.events).tree().children[1].status == "running"


def test_rows_are_the_tree_in_one_list(script: Script) -> None:
    fold = _folded(script.events)
    rows = fold.rows(now=200.0)
    assert [(row.id, row.parent_id) for row in rows] == [
        ("r", None),
        ("a", "r"),
        ("aa", "a"),
        ("b", "r"),
    ]
    tree = fold.tree(now=200.0)
    assert [row.cost for row in rows] == [each.cost for each in tree.walk()]


def test_other_events_change_nothing() -> None:
    fold = TreeFold("r")
    assert not fold.feed(Event(1, "trace.log", "r", "x", 0.0, {}))
    assert fold.feed(Event(2, "item.appended", "r", "r", 0.0, {}))
    assert [each.id for each in fold.tree().walk()] == ["r"]


def test_a_chain_of_thousands_is_no_problem() -> None:
    script = Script()
    script.start("r", None, 0)
    names = ["r", *(f"c{n}" for n in range(5_000))]
    for depth, (parent, child) in enumerate(pairwise(names), 1):
        script.start(child, parent, depth)
        script.usage(child, 1, 0.0)
    tree = _folded(script.events).tree()
    assert sum(1 for _ in tree.walk()) == 5_001
    assert tree.tokens.total == 5_000


def _stored(events: list[Event]) -> list[Stored]:
    return [
        (n, each.type, each.context_id, each.time, to_json_bytes(each.data))
        for n, each in enumerate(events, 1)
        if each.type in SUMMARY_TYPES
    ]


def test_a_summary_agrees_with_the_tree(script: Script) -> None:
    info = summarize("r", _stored(script.events))
    tree = _folded(script.events).tree()
    assert (info.status, info.step, info.contexts) == ("running", "main", 4)
    assert (info.tokens, round(info.cost, 9)) == (tree.tokens, round(tree.cost, 9))
    assert (info.started_at, info.ended_at) == (101.0, None)
    script("run.ended", "r", status="completed")
    ended = summarize("r", _stored(script.events))
    assert (ended.status, ended.ended_at) == ("completed", script.at)
    script("run.started", "r")
    again = summarize("r", _stored(script.events))
    assert (again.status, again.started_at, again.ended_at) == ("running", 101.0, None)


def test_a_summary_of_nothing_is_pending() -> None:
    info = summarize("r", [])
    assert (info.status, info.contexts, info.tokens, info.cost) == ("pending", 0, TokenUsage(), 0.0)


def test_a_context_that_runs_again_has_not_ended() -> None:
    script = Script()
    script.start("r", None, 0)
    script.start("a", "r", 1)
    script.end("a", "failed")
    script.start("a", "r", 1, pid=9)
    child = _folded(script.events).tree().children[0]
    assert (child.status, child.pid) == ("running", 9)
