"""Pins, updates, re-anchors and what provider caches say: the pure part of anchoring."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.items import item_json
from noetic_ray.layers.anchoring import Draft, Plan, judge
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.epochs import Lineage, text_of
from noetic_ray.usage import RoundUsage, estimate_tokens

CACHE = nr.ContextCache()


def block(id: str, text: str, wish: Any = "auto", moved: bool = False) -> Block:
    return Block(id, (nr.developer_message(text),), estimate_tokens(text), wish, moved)


def call(id: str, name: str = "x", wish: Any = "auto") -> Block:
    """A layer that shows something that is no text."""
    item = nr.FunctionCallItem(id="i", call_id="c", name=name, arguments="{}")
    return Block(id, (item,), 5, wish)


class Thread:
    """A conversation: each turn assembles and, unless told otherwise, is accepted."""

    def __init__(self, cache: nr.ContextCache = CACHE, key: str = "t:a") -> None:
        self.cache = cache
        self.lineage = Lineage(key)

    def turn(
        self,
        *blocks: Block,
        instructions: str = "be brief",
        deltas: Any = None,
        room: int | None = None,
        keep: bool = True,
    ) -> Plan:
        draft = Draft.open(self.lineage, blocks, instructions, self.cache)
        plan = draft.finish(deltas or {}, room)
        if keep:
            self.lineage = plan.lineage
        return plan

    def reads(self, cached: int | None, written: int | None = None, prefix: int = 1000) -> None:
        judge(self.lineage, RoundUsage(2000, 10, cached, written), prefix, self.cache)


def prefix(plan: Plan) -> list[bytes]:
    return [item_json(item) for each in plan.anchor for item in each.items]


def shown(plan: Plan) -> list[str]:
    return [nr.item_text(item) for each in plan.anchor for item in each.items]


def said(plan: Plan) -> str:
    return "" if plan.update is None else nr.item_text(plan.update)


UPDATE = re.compile(r'<layer id="(\w+)" action="(\w+)"(?:/>|>\n(.*?)\n</layer>)', re.DOTALL)


def told(plan: Plan) -> list[tuple[str, str, str]]:
    """What the update says: (layer, action, text), in its order."""
    return UPDATE.findall(said(plan))


def reason(plan: Plan) -> str | None:
    assert plan.epoch is not None
    return plan.epoch.reanchor_reason


def entry(plan: Plan, id: str) -> Any:
    return next(each for each in plan.entries if each.layer_id == id)


def test_a_changing_text_stays_pinned_and_its_newest_is_told() -> None:
    thread = Thread()
    plans = [thread.turn(block("clock", f"now: {n}")) for n in range(3)]
    assert all(shown(plan) == ["now: 0"] for plan in plans)
    assert plans[0].update is None
    for n in (1, 2):
        assert "replace" in said(plans[n])
        assert f"now: {n}" in said(plans[n])
        assert plans[n].update.role == "developer"  # type: ignore[union-attr]


def test_the_prefix_is_the_same_turn_after_turn() -> None:
    thread = Thread()
    plans = [
        thread.turn(block("stable", "s"), block("clock", f"now: {n}"), block("also", "a"))
        for n in range(4)
    ]
    assert all(prefix(plan) == prefix(plans[0]) for plan in plans)
    assert [plan.epoch.age for plan in plans if plan.epoch] == [1, 2, 3, 4]


def test_a_layer_seen_later_is_added_behind_the_history() -> None:
    thread = Thread()
    first = thread.turn(block("a", "one"))
    second = thread.turn(block("a", "one"), block("b", "two"))
    assert prefix(second) == prefix(first)
    assert told(second) == [("b", "add", "two")]
    assert entry(second, "b").served == "fresh"
    third = thread.turn(block("a", "one"), block("b", "three"), deltas={"b": "plus one"})
    assert told(third) == [("b", "add", "three")], "what was never shown cannot be changed"
    assert thread.turn(block("a", "one")).update is None


def test_two_changes_make_one_message() -> None:
    thread = Thread()
    thread.turn(block("a", "one"), block("b", "two"))
    plan = thread.turn(block("a", "uno"), block("b", "due"))
    assert told(plan) == [("a", "replace", "uno"), ("b", "replace", "due")]
    assert said(plan).count("<context_update") == 1
    assert "supersedes" in said(plan).splitlines()[1]


def test_a_message_goes_through_the_layers_in_slot_order() -> None:
    thread = Thread()
    thread.turn(block("b", "2"), block("c", "3"), block("d", "4"), block("f", "6"))
    now = [block("a", "1"), block("b", "two"), block("d", "4"), block("e", "5"), block("f", "six")]
    actions = [(id, action) for id, action, _ in told(thread.turn(*now))]
    assert actions == [
        ("a", "add"),
        ("b", "replace"),
        ("c", "retract"),
        ("e", "add"),
        ("f", "replace"),
    ]
    assert [id for id, *_ in told(thread.turn(block("x", "1"), block("c", "?")))] == list("bxcdf")


def test_the_same_news_are_the_same_text() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    plans = [thread.turn(block("a", "two"), block("b", "new")) for _ in range(2)]
    assert said(plans[0]) == said(plans[1])


def test_new_ids_around_the_same_text_are_no_change() -> None:
    thread = Thread()
    first = thread.turn(block("a", "one"))
    second = thread.turn(block("a", "one"))
    assert second.update is None
    assert prefix(second) == prefix(first)
    assert second.anchor[0].items[0] is first.anchor[0].items[0]


def test_the_message_names_its_epoch() -> None:
    thread = Thread(key='t:"x"&#1')
    thread.turn(block("a", "one"))
    plan = thread.turn(block("a", "two"))
    assert plan.epoch is not None
    assert plan.epoch.id == 't:"x"&#1#0'
    assert "epoch='t:\"x\"&amp;#1#0'" in said(plan)


def test_a_text_that_is_back_where_it_was_needs_no_message() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    assert thread.turn(block("a", "two")).update is not None
    assert thread.turn(block("a", "one")).update is None


@pytest.mark.parametrize(
    "silent", [(), (block("b", "two"),), (Block("a", (), 0), block("b", "two"))]
)
def test_a_pin_whose_layer_is_silent_or_gone_is_retracted_each_turn(silent: Any) -> None:
    thread = Thread()
    first = thread.turn(block("a", "one"), block("b", "two"))
    for _ in range(2):
        plan = thread.turn(*silent)
        assert prefix(plan) == prefix(first)
        assert '<layer id="a" action="retract"/>' in said(plan)
        assert (entry(plan, "a").token_count, entry(plan, "a").items) == (0, 0)
    assert thread.turn(block("a", "one"), block("b", "two")).update is None


def test_a_layer_that_never_showed_anything_is_not_listed() -> None:
    thread = Thread()
    for _ in range(2):
        plan = thread.turn(Block("a", (), 0), block("b", "two"))
        assert [each.layer_id for each in plan.entries] == ["b"]
        assert plan.update is None
    assert told(thread.turn(block("a", "one"), block("b", "two"))) == [("a", "add", "one")]


def test_a_layer_s_own_words_are_preferred_and_empty_ones_are_not() -> None:
    thread = Thread()
    thread.turn(block("a", "a long text"))
    stale = Draft.open(thread.lineage, [block("a", "a longer text")], "be brief", CACHE).stale
    assert [(each.prev, each.next) for each in stale] == [("a long text", "a longer text")]
    plan = thread.turn(block("a", "a longer text"), deltas={"a": "one word more"})
    assert "one word more" in said(plan)
    assert "a longer text" not in said(plan)
    assert "a longer text" in said(thread.turn(block("a", "a longer text"), deltas={"a": ""}))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([call("a")], [call("a", "y")]),
        ([call("a")], [block("a", "one")]),
        ([block("a", "one")], [call("a")]),
        ([call("a")], []),
        ([], [call("a")]),
    ],
)
def test_a_change_that_words_cannot_tell_starts_anew(before: Any, now: Any) -> None:
    thread = Thread()
    thread.turn(block("b", "two"), *before)
    plan = thread.turn(block("b", "three"), *now)
    assert reason(plan) == "delta-overflow"
    assert plan.update is None
    assert [each.layer_id for each in plan.anchor] == ["b", *[each.layer_id for each in now]]
    assert plan.anchor[1:] == tuple(now)


def test_what_is_no_text_is_pinned_too() -> None:
    thread = Thread()
    first = thread.turn(call("a"))
    second = thread.turn(call("a"))
    assert reason(second) is None
    assert prefix(second) == prefix(first)


def test_a_large_change_starts_anew() -> None:
    thread = Thread()
    thread.turn(block("a", "x" * 3200))
    plan = thread.turn(block("a", "y" * 3200))
    assert reason(plan) == "delta-pressure"
    assert plan.update is None
    assert shown(plan) == ["y" * 3200]


def test_a_change_the_window_has_no_room_for_starts_anew() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    fits = thread.turn(block("a", "two"), keep=False)
    assert fits.epoch is not None
    needed = fits.epoch.delta_tokens
    assert reason(thread.turn(block("a", "two"), room=needed, keep=False)) is None
    tight = thread.turn(block("a", "two"), room=needed - 1)
    assert reason(tight) == "delta-overflow"
    assert (tight.update, shown(tight)) == (None, ["two"])
    assert reason(thread.turn(block("a", "two"), room=0)) is None, "no news need no room"


def test_a_share_of_the_pinned_text_may_change_where_that_is_more() -> None:
    thread = Thread()
    thread.turn(block("big", "x" * 20_000), block("a", "one"))
    plan = thread.turn(block("big", "x" * 20_000), block("a", "y" * 2_000))
    assert reason(plan) is None


@pytest.mark.parametrize("wish", ["auto", "anchor", "live"])
def test_a_recall_that_moved_its_state_is_never_pinned(wish: Any) -> None:
    thread = Thread()
    for n in range(3):
        plan = thread.turn(block("a", f"{n}", wish, moved=True))
        assert plan.anchor == ()
        assert [each.layer_id for each in plan.live] == ["a"]
        assert entry(plan, "a").placement == "live"


@pytest.mark.parametrize("now", [block("a", "2", moved=True), block("a", "2", "live")])
def test_a_pinned_layer_that_becomes_live_is_retracted(now: Block) -> None:
    thread = Thread()
    first = thread.turn(block("a", "1"))
    plan = thread.turn(now)
    assert prefix(plan) == prefix(first)
    assert told(plan) == [("a", "retract", "")]
    assert plan.live == (now,)
    assert (entry(plan, "a").placement, entry(plan, "a").served) == ("live", "fresh")


def test_an_explicit_wish_wins() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=4))
    for n in range(20):
        plan = thread.turn(block("l", f"{n}", "live"), block("a", f"{n}", "anchor"))
        assert [each.layer_id for each in plan.live] == ["l"]
        assert [each.layer_id for each in plan.anchor] == ["a"]


def test_conversations_do_not_share_epochs() -> None:
    one, two = Thread(key="t:a"), Thread(key="x:child")
    one.turn(block("a", "one"))
    plan = two.turn(block("a", "two"))
    assert shown(plan) == ["two"]
    assert plan.epoch is not None
    assert plan.epoch.id == "x:child#0"


def test_new_instructions_start_anew() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    plan = thread.turn(block("a", "two"), instructions="be long")
    assert reason(plan) == "instructions-changed"
    assert shown(plan) == ["two"]


def test_the_first_reason_counts_in_their_order() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=1))
    assert reason(thread.turn(block("a", "one"))) == "cold-start"
    thread.lineage.pending = True
    assert reason(thread.turn(block("a", "1"), instructions="x")) == "instructions-changed"
    thread.lineage.pending = True
    assert reason(thread.turn(block("a", "1"), instructions="x")) == "cache-miss"
    assert reason(thread.turn(block("a", "1"), instructions="x")) == "max-age"
    full = Thread()
    full.turn(call("a"), block("b", "x"))
    large = block("b", "y" * 9_000)
    assert reason(full.turn(call("a", "y"), large, keep=False)) == "delta-overflow"
    assert reason(full.turn(call("a"), large, room=9, keep=False)) == "delta-overflow"
    assert reason(full.turn(call("a"), large)) == "delta-pressure"


def test_only_the_first_window_of_an_epoch_has_a_reason() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=3))
    plans = [thread.turn(block("a", "one")) for _ in range(7)]
    why = ["cold-start", None, None, "max-age", None, None, "max-age"]
    assert [reason(plan) for plan in plans] == why
    assert [plan.epoch.id for plan in plans if plan.epoch][::3] == ["t:a#0", "t:a#1", "t:a#2"]


def test_missing_instructions_are_empty_ones() -> None:
    lineage = Draft.open(Lineage("x:1"), [], None, CACHE).finish({}).lineage
    assert reason(Draft.open(lineage, [], "", CACHE).finish({})) is None


def test_what_a_warm_cache_would_hold() -> None:
    thread = Thread()
    thread.turn(block("a", "x" * 40), block("l", "y" * 400, "live"), instructions="i" * 8)
    plan = thread.turn(block("a", "x"), block("l", "z" * 400, "live"), instructions="i" * 8)
    assert plan.expected_prefix == 2 + 10
    assert plan.epoch is not None
    assert (plan.epoch.anchor_tokens, plan.epoch.live_tokens) == (10, 100)
    assert plan.epoch.delta_tokens > 0


def test_a_dropped_plan_has_changed_nothing() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    thread.lineage.pending = True
    before = thread.lineage.to_json()
    preview = thread.turn(block("a", "two"), keep=False)
    assert reason(preview) == "cache-miss"
    assert thread.lineage.to_json() == before
    thread.lineage.pending = False
    before = thread.lineage.to_json()
    assert thread.turn(block("a", "two"), block("b", "x"), keep=False).update is not None
    assert thread.lineage.to_json() == before


def test_a_draft_can_be_finished_again() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    draft = Draft.open(thread.lineage, [block("a", "two")], "be brief", CACHE)
    assert reason(draft.finish({}, room=0)) == "delta-overflow"
    one, two = draft.finish({"a": "x"}), draft.finish({"a": "x"})
    assert (said(one), one.entries, one.epoch) == (said(two), two.entries, two.epoch)
    assert one.lineage.to_json() == two.lineage.to_json()


def test_without_anchoring_all_stands_before_the_history() -> None:
    thread = Thread(nr.ContextCache(enabled=False))
    for n in range(3):
        plan = thread.turn(block("b", f"{n}", "live"), block("a", "x"))
        assert [each.layer_id for each in plan.anchor] == ["b", "a"]
        assert (plan.live, plan.update, plan.epoch) == ((), None, None)
        assert [each.layer_id for each in plan.entries] == ["a", "b"]
        assert {each.churn_rate for each in plan.entries} == {None}
        assert {each.rebill_tokens for each in plan.entries} == {0}
        assert plan.lineage is thread.lineage
        assert plan.expected_prefix == estimate_tokens("be brief") + 1 + 1
    assert thread.lineage == Lineage("t:a")


def test_no_layers_have_an_epoch_too() -> None:
    thread = Thread()
    assert [thread.turn().epoch.age for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr]


def test_served_and_changed_say_what_happened() -> None:
    thread = Thread()
    first = entry(thread.turn(block("a", "x" * 40)), "a")
    assert (first.served, first.changed, first.rebill_tokens) == ("fresh", False, 0)
    second = entry(thread.turn(block("a", "y" * 40)), "a")
    assert (second.served, second.changed, second.rebill_tokens) == ("pinned", True, 10)
    third = entry(thread.turn(block("a", "y" * 40)), "a")
    assert (third.served, third.changed, third.rebill_tokens) == ("pinned", False, 10)
    fourth = entry(thread.turn(block("a", "z" * 40)), "a")
    assert fourth.rebill_tokens == 20


def test_a_change_is_billed_with_the_whole_of_what_is_pinned() -> None:
    thread = Thread()
    big = block("big", "x" * 4000)
    thread.turn(big, block("a", "1" * 40), block("l", "1", "live"))
    plan = thread.turn(big, block("a", "2" * 40), block("l", "2", "live"), block("n", "1"))
    plan = thread.turn(big, block("a", "2" * 40), block("l", "3", "live"), block("n", "2"))
    bills = {each.layer_id: each.rebill_tokens for each in plan.entries}
    assert bills == {"a": 1010, "big": 0, "l": 0, "n": 0}
    assert {each.layer_id for each in plan.entries if each.changed} == {"l", "n"}
    anew = thread.turn(big, block("a", "3"), instructions="other")
    assert entry(anew, "a").changed
    assert entry(anew, "a").rebill_tokens == 0


def test_entries_are_sorted_by_layer() -> None:
    plan = Thread().turn(block("c", "1"), block("a", "2", "live"), block("b", "3"))
    assert [each.layer_id for each in plan.entries] == ["a", "b", "c"]


# -- what providers say ------------------------------------------------------------------------


def aged(assemblies: int) -> Thread:
    thread = Thread()
    for _ in range(assemblies):
        thread.turn(block("a", "one"))
    return thread


def test_a_provider_that_says_nothing_is_not_asked_again() -> None:
    thread = aged(1)
    thread.reads(None)
    assert thread.lineage.blind
    thread.reads(0)
    for _ in range(3):
        assert reason(thread.turn(block("a", "one"))) is None
    blind = aged(1)
    judge(blind.lineage, None, 100, CACHE)
    assert blind.lineage.blind


def test_zero_read_and_something_written_is_no_miss() -> None:
    thread = aged(3)
    thread.reads(0, 9000)
    assert (thread.lineage.misses, thread.lineage.pending, thread.lineage.blind) == (
        0,
        False,
        False,
    )


def test_a_young_epoch_is_not_judged() -> None:
    thread = aged(1)
    thread.reads(0)
    assert (thread.lineage.misses, thread.lineage.pending) == (0, False)


def test_a_miss_starts_anew_and_three_make_blind() -> None:
    thread = aged(2)
    for miss in (1, 2):
        thread.reads(0)
        assert thread.lineage.misses == miss
        assert reason(thread.turn(block("a", "one"))) == "cache-miss"
        thread.turn(block("a", "one"))
    thread.reads(0)
    assert thread.lineage.blind
    assert reason(thread.turn(block("a", "one"))) is None


def test_the_blind_are_not_consulted_in_later_epochs_either() -> None:
    thread = aged(2)
    for _ in range(3):
        thread.reads(0)
    assert (thread.lineage.blind, thread.lineage.pending) == (True, False)
    thread.turn(block("a", "one"), instructions="other")
    thread.reads(5000)
    assert (thread.lineage.blind, thread.lineage.misses) == (True, 3)


@pytest.mark.parametrize(
    ("cached", "expected", "missed"),
    [(99, 1000, True), (100, 1000, False), (30, 40, False), (20, 40, False), (19, 40, True)],
)
def test_how_much_is_a_hit(cached: int, expected: int, missed: bool) -> None:
    thread = aged(2)
    thread.reads(cached, prefix=expected)
    assert (thread.lineage.pending, thread.lineage.misses) == (missed, int(missed))


def test_a_hit_forgives() -> None:
    thread = aged(2)
    thread.reads(0)
    thread.turn(block("a", "one"))
    thread.turn(block("a", "one"))
    thread.reads(500)
    assert thread.lineage.misses == 0


# -- whatever comes ----------------------------------------------------------------------------

WISHES = {"a": "auto", "b": "anchor", "c": "auto", "d": "live"}
texts = st.sampled_from(["", "one", "two", "a longer\ntext of several words", "x" * 900])


@st.composite
def shows(draw: Any) -> list[Block]:
    """What some layers show in one window, in an order that may change."""
    blocks = []
    for id in draw(st.permutations("abcd")) if draw(st.booleans()) else "abcd":
        kind = draw(st.sampled_from(["text", "text", "text", "several", "moved", "call", "none"]))
        if kind == "call":
            blocks.append(call(id, draw(st.sampled_from("xy")), WISHES[id]))
        elif kind == "several":
            items = tuple(nr.developer_message(text) for text in draw(st.lists(texts, max_size=3)))
            blocks.append(Block(id, items, 10, WISHES[id]))  # type: ignore[arg-type]
        elif kind != "none":
            blocks.append(block(id, draw(texts), WISHES[id], kind == "moved"))
    return blocks


turns = st.lists(shows(), min_size=1, max_size=14)


def content(each: Block) -> Any:
    text = text_of(each.items)
    return each.items if text is None else text


@settings(max_examples=100, deadline=None)
@given(turns)
def test_the_prefix_moves_only_when_it_starts_anew(history: list[list[Block]]) -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=5))
    before: list[bytes] | None = None
    for blocks in history:
        plan = thread.turn(*blocks)
        if reason(plan) is None:
            assert prefix(plan) == before
        else:
            assert plan.update is None
        before = prefix(plan)


@settings(max_examples=100, deadline=None)
@given(turns)
def test_the_model_can_know_what_every_layer_says_now(history: list[list[Block]]) -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=5))
    for blocks in history:
        plan = thread.turn(*blocks)
        known = {each.layer_id: content(each) for each in plan.anchor}
        for id, action, text in told(plan):
            assert (id in known) == (action != "add")
            known[id] = text
            if action == "retract":
                del known[id]
        for each in plan.live:
            assert each.layer_id not in known
            known[each.layer_id] = content(each)
        assert known == {each.layer_id: content(each) for each in blocks if each.items}
