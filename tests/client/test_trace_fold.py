"""A trace grown from events, in whatever order those of different contexts come."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.client.trace_fold import TRACE_TYPES, TraceFold
from noetic_ray.client.trace_records import (
    ParallelInput,
    SpaceRecord,
    TraceLog,
    TraceNodeOption,
    TraceNodeRecord,
)

Event = tuple[str, str, float, dict[str, Any]]


def started(id: str, parents: Iterable[str] = (), at: float = 1.0, ctx: str = "run") -> Event:
    facts = {"label": f"node {id}", "type": "step", "icon": "gear", "description": "d"}
    ids = {"trace_id": "ab" * 16, "span_id": "cd" * 8}
    more = {"metadata": {"from": "start"}, "input": {"q": id}}
    data = {"node_id": id, "parent_ids": list(parents), **facts, **ids, **more}
    return "trace.node_started", ctx, at, data


def completed(id: str, at: float = 2.0, ctx: str = "run", **more: Any) -> Event:
    data = {"node_id": id, "status": "completed", "duration": 1.0, **more}
    return "trace.node_completed", ctx, at, data


def failed(id: str, error: str, at: float = 2.0, ctx: str = "run") -> Event:
    data = {"node_id": id, "status": "failed", "duration": 1.0, "error": error}
    return "trace.node_failed", ctx, at, data


def updated(id: str, ctx: str = "run", **more: Any) -> Event:
    return "trace.node_updated", ctx, 2.0, {"node_id": id, **more}


def logged(ids: Iterable[str], message: str, ctx: str = "run", at: float = 2.0, **m: Any) -> Event:
    return "trace.log", ctx, at, {"node_ids": list(ids), "level": "info", "message": message, **m}


def fold_of(events: Iterable[Event]) -> TraceFold:
    fold = TraceFold()
    for event in events:
        assert fold.feed(*event)
    return fold


def only(events: Iterable[Event]) -> TraceNodeRecord:
    (node,) = fold_of(events).nodes()
    return node


# -- one node ------------------------------------------------------------------------------------


def test_nothing_was_traced() -> None:
    fold = TraceFold()
    assert (fold.nodes(), fold.root, fold.spaces()) == ([], None, [])
    assert fold.node("nope") is None


def test_a_node_as_it_started() -> None:
    node = only([started("a", at=5.0)])
    assert node == TraceNodeRecord(
        id="a",
        label="node a",
        type="step",
        icon="gear",
        description="d",
        metadata={"from": "start"},
        input={"q": "a"},
        created_at=5.0,
        started_at=5.0,
        context_id="run",
        trace_id="ab" * 16,
        span_id="cd" * 8,
    )
    assert node.status == "running"


def test_a_node_that_completed() -> None:
    node = only([started("a"), completed("a", at=3.0, output={"n": 42})])
    assert (node.status, node.output, node.error, node.ended_at) == (
        "completed",
        {"n": 42},
        None,
        3.0,
    )


def test_a_node_that_failed() -> None:
    node = only([started("a"), updated("a", output=1), failed("a", "timeout", at=3.0)])
    assert (node.status, node.output, node.error, node.ended_at) == ("failed", 1, "timeout", 3.0)


def test_an_output_set_before_stays_when_none_is_given_at_the_end() -> None:
    node = only([started("a"), updated("a", output={"a": 1}), completed("a")])
    assert node.output == {"a": 1}


def test_an_output_may_be_none() -> None:
    assert only([started("a"), updated("a", output=1), completed("a", output=None)]).output is None


def test_output_and_metadata_change_after_the_end() -> None:
    late = [
        updated("a", output=2),
        updated("a", metadata={"k": 1}),
        updated("a", metadata={"k": 2}),
    ]
    node = only([started("a"), completed("a", at=2.0, output=1), *late])
    assert (node.output, node.ended_at) == (2, 2.0)
    assert node.metadata == {"from": "start", "k": 2}


@pytest.mark.parametrize("second", [completed("a", 9.0, output="y"), failed("a", "late", 9.0)])
def test_the_first_end_counts(second: Event) -> None:
    node = only([started("a"), completed("a", output="x"), second])
    assert (node.status, node.output, node.error, node.ended_at) == ("completed", "x", None, 2.0)


def test_a_completion_after_a_failure_changes_nothing() -> None:
    node = only([started("a"), failed("a", "e"), completed("a", output="x")])
    assert (node.status, node.output, node.error) == ("failed", None, "e")


def test_logs_stand_in_the_order_they_came() -> None:
    events = [
        started("a"),
        logged(["a"], "two", at=9.0, data={"step": 1}),
        completed("a"),
        logged(["a"], "one", at=3.0),
    ]
    assert only(events).logs == [
        TraceLog("info", "two", {"step": 1}, 9.0),
        TraceLog("info", "one", None, 3.0),
    ]


def test_a_line_for_several_nodes_is_in_each() -> None:
    fold = fold_of([started("a"), started("b"), logged(["a", "b"], "x"), logged([], "nowhere")])
    assert [[log.message for log in node.logs] for node in fold.nodes()] == [["x"], ["x"]]


def test_what_was_heard_of_a_node_that_never_started_is_not_shown() -> None:
    fold = fold_of([logged(["a"], "x"), completed("a"), updated("a", output=1)])
    assert fold.nodes() == []
    assert fold.node("a") is None


def test_other_events_are_none_of_its_business() -> None:
    fold = TraceFold()
    assert not fold.feed("item.appended", "run", 1.0, {"item": {}})
    assert not fold.feed("trace.unheard_of", "run", 1.0, {})
    assert "item.appended" not in TRACE_TYPES


def test_records_once_given_do_not_change() -> None:
    fold = fold_of([started("a")])
    before = fold.nodes()
    fold.feed(*completed("a"))
    assert before[0].status == "running"
    assert fold.nodes()[0].status == "completed"


def test_changing_a_record_does_not_reach_the_next() -> None:
    fold = fold_of([started("a"), logged(["a"], "x")])
    node = fold.nodes()[0]
    node.metadata["k"] = 1
    node.logs.clear()
    fold.feed(*updated("a", output=1))
    assert fold.nodes()[0].metadata == {"from": "start"}
    assert len(fold.nodes()[0].logs) == 1


# -- the tree ------------------------------------------------------------------------------------


def diamond() -> list[Event]:
    middle = [started(id, "a", 2.0) for id in "bcd"]
    return [started("a"), *middle, started("e", "bcd", 3.0)]


def test_a_join_is_one_object_below_each_of_its_parents() -> None:
    fold = fold_of(diamond())
    root = fold.root
    assert root is not None
    assert [child.id for child in root.children] == ["b", "c", "d"]
    joins = [child.children for child in root.children]
    assert all(each[0] is fold.node("e") for each in joins)
    assert fold.nodes()[-1].parent_ids == ["b", "c", "d"]


def test_a_walk_meets_each_node_once() -> None:
    root = fold_of(diamond()).root
    assert root is not None
    assert [node.id for node in root.walk()] == ["a", "b", "e", "c", "d"]


def test_a_parent_that_is_not_known_leaves_the_node_at_root_level() -> None:
    fold = fold_of([started("a", ["gone"]), started("b", ["a"])])
    assert fold.root is not None
    assert [node.id for node in fold.nodes()] == ["a", "b"]
    assert fold.root.parent_ids == ["gone"]


def test_a_child_heard_of_before_its_parent() -> None:
    fold = fold_of([started("b", "a", 2.0, "child"), started("a", at=1.0)])
    assert [node.id for node in fold.nodes()] == ["a", "b"]
    assert fold.root is fold.node("a")


def test_a_child_whose_clock_is_behind_still_comes_after_its_parent() -> None:
    events = [
        started("b", "a", at=3.0, ctx="child"),
        started("c", "b", at=4.0, ctx="child"),
        started("a", at=10.0),
        started("d", at=11.0),
    ]
    assert [node.id for node in fold_of(events).nodes()] == ["a", "b", "c", "d"]


def test_nodes_of_one_context_keep_their_order_when_its_clock_steps_back() -> None:
    events = [started("a", at=5.0), started("b", at=3.0), started("c", at=4.0)]
    assert [node.id for node in fold_of(events).nodes()] == ["a", "b", "c"]


def test_parents_in_a_circle_end_nothing() -> None:
    fold = fold_of([started("a", ["b", "a"]), started("b", "a", ctx="other"), started("c", "b")])
    assert {node.id for node in fold.nodes()} == {"a", "b", "c"}
    assert repr(fold.root)
    assert (
        fold.nodes()
        == fold_of(
            [started("a", ["b", "a"]), started("b", "a", ctx="other"), started("c", "b")]
        ).nodes()
    )


def test_a_start_told_twice_is_one_node() -> None:
    assert only([started("a", at=1.0), started("a", at=9.0)]).started_at == 1.0


def test_layers_of_joins_are_compared_and_told_in_no_time() -> None:
    events, above = [started("root")], ["root"]
    for layer in range(10):
        ids = [f"{layer}-{n}" for n in range(5)]
        events += [started(id, above, 2.0 + layer) for id in ids]
        above = ids
    one, two = fold_of(events).root, fold_of(events).root
    begun = time.perf_counter()
    assert one == two
    assert len(repr(one)) < 200
    assert one is not None
    assert len(list(one.walk())) == 51
    assert time.perf_counter() - begun < 2.0


def test_a_difference_far_below_is_seen() -> None:
    one = fold_of(diamond()).root
    two = fold_of([*diamond(), completed("e")]).root
    assert one != two
    assert one != "a"


def test_a_chain_longer_than_the_stack_is_deep() -> None:
    events = [started("0")]
    events += [started(str(n), [str(n - 1)], float(n)) for n in range(1, 3_000)]
    one, two = fold_of(events), fold_of(events)
    assert one.root == two.root
    assert [node.id for node in one.nodes()] == [str(n) for n in range(3_000)]


# -- contexts that end ---------------------------------------------------------------------------


def lost(ctx: str = "run", at: float = 7.0) -> Event:
    return "context.lost", ctx, at, {"reason": "worker died", "killed": False}


def test_running_nodes_of_a_lost_context_fail() -> None:
    events = [
        started("a"),
        started("b", "a", ctx="child"),
        started("c", "b", ctx="child"),
        completed("b", ctx="child"),
        lost("child"),
    ]
    a, b, c = fold_of(events).nodes()
    assert (a.status, b.status, c.status) == ("running", "completed", "failed")
    assert (c.error, c.ended_at) == ("context lost: worker died", 7.0)


def test_what_a_lost_context_had_recorded_counts_when_it_comes_late() -> None:
    node = only([lost(), started("a"), completed("a", output=1)])
    assert (node.status, node.output) == ("completed", 1)
    assert only([lost(), started("a")]).status == "failed"


def test_another_context_cannot_end_what_a_loss_has_ended() -> None:
    assert only([started("a"), lost(), completed("a", ctx="other")]).status == "failed"
    assert only([started("a"), completed("a", ctx="other"), lost()]).status == "completed"


def test_nodes_of_a_restarted_context_go_on() -> None:
    again = [started("a"), lost(), ("context.restarted", "run", 8.0, {})]
    assert only(again).status == "running"
    assert only([*again, completed("a", at=9.0)]).status == "completed"


def ended(status: str, error: Any = None) -> Event:
    return "context.ended", "run", 6.0, {"status": status, "error": error}


def test_what_a_context_leaves_running_ends_as_it_did() -> None:
    assert only([started("a"), ended("completed")]).status == "completed"
    node = only([started("a"), ended("cancelled", {"kind": "cancelled", "message": "stop"})])
    assert (node.status, node.error, node.ended_at) == ("failed", "stop", 6.0)
    assert only([started("a"), ended("failed")]).error == "its context is failed"


def test_a_context_that_starts_again_has_not_ended() -> None:
    events = [started("a"), ended("failed"), ("context.started", "run", 8.0, {"step": "s"})]
    assert only(events).status == "running"


# -- the order of contexts -----------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """What contexts record, causes first; a context ends nodes of its own or of its parent's.

    Each node is ended, updated and logged to by one context: with two, the order would tell.
    """
    contexts = ["run", "c1", "c2"]
    own: dict[str, list[str]] = {ctx: [] for ctx in contexts}
    keeper: dict[str, str] = {}
    events: list[Event] = []
    for step in range(draw(st.integers(1, 14))):
        ctx = draw(st.sampled_from(contexts))
        at = float(draw(st.integers(0, 5)))
        kept = [id for id, who in keeper.items() if who == ctx]
        what = draw(st.sampled_from(["start", "end", "fail", "update", "log"])) if kept else "start"
        if what == "start":
            known = [id for ids in own.values() for id in ids]
            parents = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
            id = f"n{step}"
            own[ctx].append(id)
            keeper[id] = draw(st.sampled_from(contexts))
            events.append(started(id, parents, at, ctx))
            continue
        id = draw(st.sampled_from(kept))
        more = draw(st.sampled_from([{}, {"output": step}]))
        events.append(
            {
                "end": completed(id, at, ctx, **more),
                "fail": failed(id, f"e{step}", at, ctx),
                "update": updated(id, ctx, metadata={f"k{step % 2}": step}, **more),
                "log": logged([id], f"line {step}", ctx, at),
            }[what]
        )
    return events


@given(histories(), st.randoms(use_true_random=False))
def test_the_trace_does_not_depend_on_how_contexts_are_interleaved(
    events: list[Event], random: Any
) -> None:
    lines = {ctx: [each for each in events if each[1] == ctx] for ctx in ("run", "c1", "c2")}
    turns = [each[1] for each in events]
    random.shuffle(turns)
    ahead = {ctx: iter(line) for ctx, line in lines.items()}
    mixed = fold_of(next(ahead[ctx]) for ctx in turns)
    wanted = fold_of(events)
    assert [node.id for node in mixed.nodes()] == [node.id for node in wanted.nodes()]
    assert mixed.nodes() == wanted.nodes()
    assert mixed.root == wanted.root


@given(histories())
def test_every_node_comes_after_its_parents(events: list[Event]) -> None:
    places = {node.id: n for n, node in enumerate(fold_of(events).nodes())}
    for node in fold_of(events).nodes():
        assert all(places[parent] < places[node.id] for parent in node.parent_ids)


# -- spaces --------------------------------------------------------------------------------------


def space(what: str, id: str = "s1", at: float = 1.0, **more: Any) -> Event:
    return f"space.{what}", "run", at, {"space_id": id, **more}


FACTS = {"label": "Memory", "type": "context", "icon": "db", "description": "d"}


def test_a_space_as_it_was_made() -> None:
    fold = fold_of([space("created", **FACTS, metadata={"a": 1})])
    assert fold.spaces() == [
        SpaceRecord("s1", "Memory", "context", "db", "d", {"a": 1}, {}, created_at=1.0)
    ]


def test_keys_of_a_space() -> None:
    events = [
        space("created"),
        space("set", key="a", value=1),
        space("set", key="b", value=None),
        space("set", key="a", value={"n": 2}),
        space("removed", key="gone"),
    ]
    assert fold_of(events).spaces()[0].data == {"a": {"n": 2}, "b": None}
    assert fold_of([*events, space("removed", key="a")]).spaces()[0].data == {"b": None}
    assert fold_of([*events, space("cleared")]).spaces()[0].data == {}


def test_a_deleted_space_is_gone_and_its_id_free_again() -> None:
    events = [space("created"), space("set", key="a", value=1), space("created", "s2")]
    events.append(space("deleted"))
    assert [each.id for each in fold_of(events).spaces()] == ["s2"]
    again = fold_of([*events, space("set", key="x", value=1), space("created", at=9.0)])
    assert [(each.id, each.data) for each in again.spaces()] == [("s2", {}), ("s1", {})]


def test_spaces_once_given_do_not_change() -> None:
    fold = fold_of([space("created")])
    before = fold.spaces()
    fold.feed(*space("set", key="a", value=1))
    before[0].data["x"] = 1
    assert fold.spaces()[0].data == {"a": 1}


# -- what is given to make nodes -----------------------------------------------------------------


def test_an_input_takes_its_option_as_a_dict() -> None:
    entry = ParallelInput({"url": "u"}, {"label": "API", "metadata": {"n": (1, 2)}})
    assert entry.option == TraceNodeOption(label="API", metadata={"n": [1, 2]})
    assert ParallelInput(None).option == TraceNodeOption()


def test_an_input_may_be_a_dict_itself() -> None:
    entry = ParallelInput.of({"input": 1, "option": {"type": "api"}})
    assert (entry.input, entry.option.type) == (1, "api")
    assert ParallelInput.of(entry) is entry
    assert ParallelInput.of({"input": None}).input is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (7, "int"),
        ("x", "str"),
        ({}, "`input`"),
        ({"input": 1, "options": {}}, "`options`"),
        ({"input": 1, "option": 5}, "option must be a dict"),
        ({"input": 1, "option": {"lable": "x"}}, "`lable`"),
        ({"input": 1, "option": {"label": 7}}, "`label`"),
        ({"input": 1, "option": {"metadata": [1]}}, "`metadata`"),
    ],
)
def test_what_is_wrong_with_an_entry_is_named(given: Any, named: str) -> None:
    with pytest.raises(nr.TraceError, match=named):
        ParallelInput.of(given)


def test_an_option_is_a_copy() -> None:
    metadata = {"deep": [1]}
    option = TraceNodeOption(metadata=metadata)
    metadata["deep"].append(2)
    assert option.as_dict() == {
        "label": "",
        "type": "",
        "icon": "",
        "description": "",
        "metadata": {"deep": [1]},
    }
