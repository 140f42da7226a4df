"""What is remembered of epochs: as JSON, as digests, and as how often layers change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.items import item_json
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.epochs import Churn, Lineage, Pin, digest_of, text_of
from tests.layers.test_anchoring import Thread, block, entry, prefix, reason, said, shows

# -- how often layers change -------------------------------------------------------------------


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
    assert places == sorted(places, reverse=True), "it moves once"


def test_bands_move_only_when_an_epoch_begins() -> None:
    thread = Thread()
    places = [entry(thread.turn(block("a", f"{n}")), "a").placement for n in range(20)]
    assert set(places) == {"anchor"}
    plan = thread.turn(block("a", "20"), instructions="other")
    assert (entry(plan, "a").placement, plan.anchor) == ("live", ())


@pytest.mark.parametrize(
    ("changes", "band"), [(0, "anchor"), (1, "anchor"), (2, "anchor"), (5, "live"), (9, "live")]
)
def test_a_band_follows_the_share_of_changed_windows(changes: int, band: str) -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=10))
    for n in range(10):
        thread.turn(block("a", f"{min(n, changes)}"))
    assert entry(thread.turn(block("a", "x")), "a").placement == band


def test_between_the_two_shares_a_layer_stays_where_it_is() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=10, churn_decay=0))
    for n in range(10):
        thread.turn(block("restless", f"{n}"), block("calm", f"{min(n, 3)}"))
    for n in range(10):
        plan = thread.turn(block("restless", f"{10 + min(n, 2)}"), block("calm", "3"))
    assert [entry(plan, id).placement for id in ("restless", "calm")] == ["live", "anchor"]
    plan = thread.turn(block("restless", "12"), block("calm", "3"))
    assert [entry(plan, id).placement for id in ("restless", "calm")] == ["live", "anchor"]


def test_a_layer_as_calm_as_allowed_comes_back() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=10, churn_decay=0))
    for n in range(20):
        plan = thread.turn(block("a", f"{min(n, 11)}"))
    churn = entry(plan, "a").churn_rate
    assert (churn, entry(plan, "a").placement) == (0.2, "live")
    assert entry(thread.turn(block("a", "11")), "a").placement == "anchor"


def test_just_enough_windows_move_a_layer() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=3, min_churn_samples=3))
    for n in range(3):
        thread.turn(block("a", f"{n}"))
    assert entry(thread.turn(block("a", "3")), "a").placement == "live"


def test_too_few_windows_move_nobody() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=2, churn_decay=0))
    for n in range(12):
        assert entry(thread.turn(block("a", f"{n}")), "a").placement == "anchor"


def test_old_windows_count_less() -> None:
    thread = Thread(nr.ContextCache(max_epoch_assemblies=2, churn_decay=0.5))
    for n in range(2):
        thread.turn(block("a", f"{n}"))
    churn = thread.turn(block("a", "1")).lineage.churn["a"]
    assert (churn.seen, churn.changed) == (2 * 0.5 + 1, 1 * 0.5)


def test_a_rate_is_the_share_of_changed_windows() -> None:
    churn = Churn()
    assert churn.rate is None
    churn = churn.observed(False).observed(True).observed(True)
    assert (churn.seen, churn.changed, churn.rate) == (3, 2, 2 / 3)
    assert churn.decayed(0.5) == Churn(1.5, 1.0)
    assert churn.decayed(0).rate is None


# -- digests and texts -------------------------------------------------------------------------


def message(text: str, **more: Any) -> Any:
    return nr.parse_item({"type": "message", "role": "developer", "content": text, **more})


def extension(**fields: Any) -> Any:
    return nr.parse_item({"type": "acme:note", "id": "i", **fields})


def test_the_id_and_status_of_a_message_do_not_count() -> None:
    one = message("hello", id="1", note={"x": 1, "y": 2})
    other = message("hello", id="2", status="incomplete", note={"y": 2, "x": 1})
    assert digest_of([one]) == digest_of([other])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([message("a")], [message("b")]),
        ([message("a")], [message("a", role="user")]),
        ([message("a")], [message("a", note=None)]),
        ([message("a"), message("b")], [message("b"), message("a")]),
        ([message("a"), message("b")], [message("ab")]),
        ([extension(data={"x": 1})], [extension(data={"x": 1}, id="j")]),
        ([extension(data={"x": 1})], [extension(data={"x": 1}, status="failed")]),
        ([extension(data={"x": None})], [extension(data={})]),
        ([extension(data={})], [extension(data={}, more=None)]),
        ([message("a")], []),
    ],
)
def test_all_else_counts(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)


def test_keys_count_in_no_order() -> None:
    one, other = (
        extension(data={"x": [{"a": 1, "b": 2}]}),
        extension(data={"x": [{"b": 2, "a": 1}]}),
    )
    assert digest_of([one]) == digest_of([other])


def test_the_text_of_messages() -> None:
    parts = message([{"type": "input_text", "text": text} for text in ("one ", "two")])
    assert text_of([parts]) == "one two"
    assert text_of([parts, nr.assistant_message("three")]) == "one two\nthree"
    assert text_of([]) == ""
    assert text_of([message([])]) == ""


@pytest.mark.parametrize(
    "item",
    [
        extension(data={}),
        message([{"type": "input_image", "image_url": "x"}]),
        message([{"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]),
        nr.ReasoningItem(content="thought"),
    ],
)
def test_other_items_have_no_text(item: Any) -> None:
    assert text_of([message("a"), item]) is None


# -- as JSON -----------------------------------------------------------------------------------


def test_a_lineage_is_named_by_its_key_and_generation() -> None:
    lineage = Lineage("t:a#b")
    assert [Thread(key="t:#1#").turn().epoch.id, lineage.generation] == ["t:#1#" + "#0", -1]  # type: ignore[union-attr]
    lineage.generation = 12
    assert lineage.epoch_id == "t:a#b#12"


def test_a_copy_goes_its_own_way() -> None:
    thread = Thread()
    thread.turn(block("a", "one"))
    before = thread.lineage.to_json()
    copy = thread.lineage.copy()
    assert copy == thread.lineage
    assert copy.pins[0] is thread.lineage.pins[0], "what never changes is shared"
    copy.last["a"] = "x"
    copy.churn["a"] = Churn(9, 9)
    copy.rebill["a"] = 9
    copy.age = 9
    assert thread.lineage.to_json() == before
    before["last"]["a"] = "y"
    assert thread.lineage.last["a"] != "y"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
more = st.dictionaries(st.sampled_from(["note", "callId", "x-y", "\u00e4"]), values, max_size=2)
spoken = st.text(max_size=12) | st.sampled_from(["\ud800 alone", "\u2028", "</layer>", "\x00"])
parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("input_text"), "text": spoken}),
    st.fixed_dictionaries({"type": st.just("output_text"), "text": spoken, "annotations": values}),
    st.fixed_dictionaries({"type": st.just("input_file"), "fileId": spoken}),
)
items = st.builds(
    lambda fields, extra: nr.parse_item({**extra, **fields}),
    st.one_of(
        st.fixed_dictionaries(
            {
                "type": st.just("message"),
                "role": st.sampled_from(["developer", "user", "assistant"]),
                "content": spoken | st.lists(parts, max_size=3),
            }
        ),
        st.fixed_dictionaries(
            {"type": st.just("acme:note"), "data": st.dictionaries(spoken, values)}
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("function_call"),
                "call_id": spoken,
                "name": spoken,
                "arguments": spoken,
            }
        ),
        st.fixed_dictionaries(
            {"type": st.just("reasoning"), "content": spoken, "summary": st.none() | spoken}
        ),
        st.fixed_dictionaries(
            {"type": st.just("image_generation_call"), "result": st.none() | spoken}
        ),
    ),
    more,
)


def stored(lineage: Lineage) -> Lineage:
    return Lineage.from_json(from_json(to_json_bytes(lineage.to_json())))


@settings(max_examples=150, deadline=None)
@given(st.text(), st.lists(items, max_size=4))
def test_pinned_items_are_the_same_bytes_after_a_reload(key: str, shown: list[Any]) -> None:
    thread = Thread(key=key)
    thread.turn(Block("a", tuple(shown), 7))
    back = stored(thread.lineage)
    assert back == thread.lineage
    assert back.epoch_id == f"{key}#0"
    pins = [[item_json(item) for item in pin.items] for pin in back.pins]
    assert pins == ([[item_json(item) for item in shown]] if shown else [])
    assert [pin.digest for pin in back.pins] == [digest_of(pin.items) for pin in back.pins]
    assert Lineage.from_json(json.loads(json.dumps(thread.lineage.to_json()))) == back


def test_a_key_that_no_utf8_can_hold_is_mended_at_once() -> None:
    lineage = Lineage("t:\ud800")
    assert lineage.key == "t:\ufffd"
    assert stored(lineage) == lineage


windows = st.fixed_dictionaries(
    {
        "blocks": shows(),
        "instructions": st.sampled_from(["be brief"] * 6 + ["be long"]),
        "room": st.sampled_from([None, None, None, 60]),
        "keep": st.sampled_from([True, True, True, False]),
        "cached": st.sampled_from([0, 0, 50, 500, "nothing"]),
    }
)


@settings(max_examples=100, deadline=None)
@given(st.lists(windows, min_size=1, max_size=12), st.sets(st.integers(0, 11), min_size=1))
def test_a_memory_that_was_stored_goes_on_the_same(history: Any, reloads: set[int]) -> None:
    cache = nr.ContextCache(max_epoch_assemblies=5)
    kept, reloaded = Thread(cache), Thread(cache)
    for number, window in enumerate(history):
        if number in reloads:
            reloaded.lineage = stored(reloaded.lineage)
        cached, blocks = window["cached"], window["blocks"]
        how = {name: window[name] for name in ("instructions", "room", "keep")}
        one, two = kept.turn(*blocks, **how), reloaded.turn(*blocks, **how)
        assert prefix(one) == prefix(two)
        assert (said(one), reason(one)) == (said(two), reason(two))
        assert (one.entries, one.epoch, one.live) == (two.entries, two.epoch, two.live)
        assert one.expected_prefix == two.expected_prefix
        for thread in (kept, reloaded):
            thread.reads(None if cached == "nothing" else cached)
        assert kept.lineage == reloaded.lineage
        assert to_json_bytes(kept.lineage.to_json()) == to_json_bytes(reloaded.lineage.to_json())


GOOD: dict[str, Any] = Lineage(
    "t:a", 0, 1, "i", (Pin("a", (message("x", id="i"),), 1, "x", "d"),), {"a": "d"}, {"a": Churn(1)}
).to_json()


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "text",
        {},
        {**GOOD, "generation": "x"},
        {**GOOD, "age": float("inf")},
        {**GOOD, "pins": 1},
        {**GOOD, "pins": [{"layer": "a", "tokens": 1, "digest": "d"}]},
        {**GOOD, "pins": [{"layer": "a", "items": [{"type": "?"}], "tokens": 1, "digest": "d"}]},
        {**GOOD, "churn": [1]},
        {**GOOD, "churn": {"a": [1, 2, 3]}},
        {**GOOD, "churn": {"a": ["x", 2]}},
        {**GOOD, "last": 5},
    ],
)
def test_other_data_is_refused_in_one_way(wrong: Any) -> None:
    assert Lineage.from_json(GOOD).key == "t:a"
    with pytest.raises(ValueError, match=r"."):
        Lineage.from_json(wrong)
