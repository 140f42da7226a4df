"""Pins, updates, re-anchors and what provider caches say: the pure part of anchoring."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.items import item_json
from noetic_ray.layers.anchoring import Draft, Plan, judge
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.epochs import Lineage
from noetic_ray.usage import RoundUsage, estimate_tokens

CACHE = nr.ContextCache()


def block(id: str, text: str, wish: Any = "auto", moved: bool = False) -> Block:
    return Block(id, (nr.developer_message(text),), estimate_tokens(text), wish, moved)


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
    assert 'action="add"' in said(second)
    assert "two" in said(second)
    assert entry(second, "b").served == "fresh"


def test_two_changes_make_one_message() -> None:
    thread = Thread()
    thread.turn(block("a", "one"), block("b", "two"))
    plan = thread.turn(block("a", "uno"), block("b", "due"))
    assert said(plan).count("<context_update") == 1
    assert said(plan).index('"a"') < said(plan).index('"b"')


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


@pytest.mark.parametrize("silent", [(), (block("b", "two"),)])
def test_a_pin_whose_layer_is_silent_or_gone_is_retracted_each_turn(silent: Any) -> None:
    thread = Thread()
    first = thread.turn(block("a", "one"), block("b", "two"))
    for _ in range(2):
        plan = thread.turn(*silent)
        assert prefix(plan) == prefix(first)
        assert '<layer id="a" action="retract"/>' in said(plan)
        assert (entry(plan, "a").token_count, entry(plan, "a").items) == (0, 0)


def test_a_layer_s_own_words_are_preferred_and_empty_ones_are_not() -> None:
    thread = Thread()
    thread.turn(block("a", "a long text"))
    stale = Draft.open(thread.lineage, [block("a", "a longer text")], "be brief", CACHE).stale
    assert [(each.prev, each.next) for each in stale] == [("a long text", "a longer text")]
    plan = thread.turn(block("a", "a longer text"), deltas={"a": "one word more"})
    assert "one word more" in said(plan)
    assert "a longer text" not in said(plan)
    assert "a longer text" in said(thread.turn(block("a", "a longer text"), deltas={"a": ""}))


def test_a_change_that_words_cannot_tell_starts_anew() -> None:
    call = nr.FunctionCallItem(call_id="c", name="x", arguments="{}")
    other = nr.FunctionCallItem(call_id="d", name="y", arguments="{}")
    thread = Thread()
    thread.turn(Block("a", (call,), 5))
    plan = thread.turn(Block("a", (other,), 5))
    assert reason(plan) == "delta-overflow"
    assert plan.update is None
    assert [item for each in plan.anchor for item in each.items] == [other]


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
    assert reason(thread.turn(block("a", "two"), room=5)) == "delta-overflow"


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


def test_a_restless_layer_moves_behind_the_history_and_a_calm_one_back() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=4))
    plans = [thread.turn(block("clock", f"now: {n}")) for n in range(4)]
    rates = [entry(plan, "clock").churn_rate for plan in plans]
    assert [round(rate, 2) for rate in rates] == [0.0, 0.5, 0.67, 0.75]
    assert {plan.epoch.id for plan in plans if plan.epoch} == {"t:a#0"}
    anew = thread.turn(block("clock", "now: 4"))
    assert (reason(anew), anew.epoch.id if anew.epoch else "") == ("max-age", "t:a#1")
    assert entry(anew, "clock").placement == "live"
    places = [entry(thread.turn(block("clock", "calm")), "clock").placement for _ in range(12)]
    assert places[0] == "live"
    assert places[-1] == "anchor"


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


def test_a_dropped_plan_has_changed_nothing() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    thread.lineage.pending = True
    before = thread.lineage.to_json()
    preview = thread.turn(block("a", "two"), keep=False)
    assert reason(preview) == "cache-miss"
    assert thread.lineage.to_json() == before


def test_without_anchoring_all_stands_before_the_history() -> None:
    thread = Thread(nr.ContextCache(enabled=False))
    for n in range(3):
        plan = thread.turn(block("b", f"{n}", "live"), block("a", "x"))
        assert [each.layer_id for each in plan.anchor] == ["b", "a"]
        assert (plan.live, plan.update, plan.epoch) == ((), None, None)
        assert [each.layer_id for each in plan.entries] == ["a", "b"]
        assert {each.churn_rate for each in plan.entries} == {None}


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


def test_half_of_a_small_prefix_is_enough() -> None:
    thread = aged(3)
    thread.reads(30, prefix=40)
    assert not thread.lineage.pending
    thread.reads(19, prefix=40)
    assert thread.lineage.pending


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


def test_a_hit_forgives() -> None:
    thread = aged(2)
    thread.reads(0)
    thread.turn(block("a", "one"))
    thread.turn(block("a", "one"))
    thread.reads(500)
    assert thread.lineage.misses == 0


# -- whatever comes ----------------------------------------------------------------------------

texts = st.sampled_from(["", "one", "two", "a longer text of several words", "x" * 900])
turns = st.lists(
    st.dictionaries(st.sampled_from("abc"), texts, max_size=3), min_size=1, max_size=14
)


def blocks_of(turn: dict[str, str]) -> list[Block]:
    return [block(id, turn[id]) for id in sorted(turn) if turn[id]]


@settings(max_examples=150, deadline=None)
@given(turns)
def test_the_prefix_moves_only_when_it_starts_anew(history: list[dict[str, str]]) -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=5))
    before: list[bytes] | None = None
    for turn in history:
        plan = thread.turn(*blocks_of(turn))
        if reason(plan) is None:
            assert prefix(plan) == before
        before = prefix(plan)


@settings(max_examples=150, deadline=None)
@given(turns)
def test_the_model_can_know_every_newest_text(history: list[dict[str, str]]) -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=5))
    for turn in history:
        plan = thread.turn(*blocks_of(turn))
        known = {each.layer_id: nr.item_text(each.items[0]) for each in plan.anchor}
        told = said(plan)
        for id in "abc":
            now = turn.get(id, "")
            live = [each for each in plan.live if each.layer_id == id]
            if live:
                assert nr.item_text(live[0].items[0]) == now
            elif f'<layer id="{id}" action="retract"/>' in told:
                assert not now
            elif f'<layer id="{id}"' in told:
                assert now in told
            else:
                assert known.get(id, "") == now


@settings(max_examples=100, deadline=None)
@given(turns, st.integers(0, 13))
def test_a_memory_that_was_stored_goes_on_the_same(
    history: list[dict[str, str]], place: int
) -> None:
    kept, stored = Thread(), Thread()
    for number, turn in enumerate(history):
        blocks = blocks_of(turn)
        if number == place:
            data = from_json(to_json_bytes(stored.lineage.to_json()))
            stored.lineage = Lineage.from_json(data)
        one, two = kept.turn(*blocks), stored.turn(*blocks)
        assert prefix(one) == prefix(two)
        assert (said(one), one.entries, one.epoch) == (said(two), two.entries, two.epoch)


@pytest.mark.parametrize(
    "wrong",
    [
        {"enabled": 1},
        {"max_epoch_assemblies": 0},
        {"min_cached_tokens": -1},
        {"churn_decay": 2},
        {"delta_budget_fraction": float("nan")},
        {"auto_promote_churn": 0.9},
    ],
)
def test_wrong_settings_are_refused(wrong: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.ContextCache(**wrong)
    assert caught.value.code == "INVALID_CONTEXT_CACHE"
