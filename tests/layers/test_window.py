from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetic_ray.errors import ConfigError
from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    MessageItem,
    ReasoningItem,
    assistant_message,
    developer_message,
    item_text,
    system_message,
    user_message,
)
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.estimates import Estimates, estimate_item
from noetic_ray.layers.window import Assembled, Parts, Window, assemble
from noetic_ray.log import ItemLog


def cost(item: Item) -> int:
    """One token a character, so that tests can say what an item costs."""
    return len(item.arguments if isinstance(item, FunctionCallItem) else item_text(item))


def said(*sizes: int) -> list[Item]:
    return [user_message("x" * size) for size in sizes]


def call(call_id: str, size: int = 1) -> Item:
    return FunctionCallItem(call_id=call_id, name="f", arguments="x" * size)


def output(call_id: str, size: int = 1) -> Item:
    return FunctionCallOutputItem(call_id=call_id, output="x" * size)


def block(*items: Item) -> Block:
    return Block("layer", items, tokens=0)


def room(tokens: float, **options: Any) -> Window:
    """A window with that many tokens to fill."""
    return Window(token_budget=tokens + 100, response_reserve=100, **options)


@dataclass(frozen=True)
class Bands:
    anchor: list[Item]
    history: list[Item]
    live: list[Item]
    updates: list[Item]
    tail: list[Item]


def bands(shown: Assembled) -> Bands:
    items = list(shown.items)
    counts = (
        shown.anchor_items,
        shown.history_items,
        shown.live_items,
        shown.update_items,
        shown.tail_items,
    )
    cut = []
    for count in counts:
        cut.append(items[:count])
        del items[:count]
    assert not items
    return Bands(*cut)


def same(one: Sequence[Item], other: Sequence[Item]) -> bool:
    return [id(item) for item in one] == [id(item) for item in other]


def shown(parts: Parts, window: Window | None, start: int = 0, **more: Any) -> Assembled:
    return assemble(parts, window, Estimates(cost), start, **more)


# -- the settings --------------------------------------------------------------------------------


def test_a_window_is_large_and_leaves_out_the_oldest() -> None:
    window = Window()
    assert (window.token_budget, window.response_reserve) == (128_000, 4_000)
    assert (window.overflow, window.size, window.model) == ("truncate", None, None)


@pytest.mark.parametrize(
    "options",
    [
        {"token_budget": 4_000},
        {"token_budget": 100, "response_reserve": 200},
        {"token_budget": math.nan},
        {"token_budget": "many"},
        {"token_budget": True},
        {"response_reserve": -1},
        {"response_reserve": math.nan},
        {"token_budget": math.inf, "response_reserve": math.inf},
        {"overflow": "drop"},
        {"overflow": None},
        {"overflow": "sliding_window"},
        {"overflow": "sliding_window", "size": 0},
        {"overflow": "sliding_window", "size": -1},
        {"overflow": "sliding_window", "size": 2.5},
        {"overflow": "sliding_window", "size": True},
        {"size": False},
        {"size": 5},
        {"model": "small"},
        {"overflow": "summarize", "model": " "},
        {"overflow": "summarize", "model": 5},
        {"overflow": "summarize", "size": 5},
    ],
)
def test_a_window_that_makes_no_sense_is_refused_where_it_is_written(
    options: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError) as refused:
        Window(**options)
    assert refused.value.code == "INVALID_WINDOW"
    assert refused.value.hint


def test_settings_that_make_sense() -> None:
    assert Window(size=0).size is None
    assert Window(overflow="sliding_window", size=1).size == 1
    assert Window(overflow="summarize").model is None
    assert Window(overflow="summarize", model="small").model == "small"
    assert Window(token_budget=math.inf).token_budget == math.inf
    assert Window(token_budget=1, response_reserve=0).response_reserve == 0


def test_a_window_is_a_value() -> None:
    window = Window(token_budget=5_000, overflow="sliding_window", size=3)
    assert pickle.loads(pickle.dumps(window)) == window
    assert replace(window, size=4).size == 4
    with pytest.raises(FrozenInstanceError):
        window.size = 5  # type: ignore[misc]


# -- bands ---------------------------------------------------------------------------------------


def full() -> Parts:
    return Parts(
        anchor=[block(system_message("anchor")), block(), block(developer_message("two"))],
        history=ItemLog(said(3, 4)).items,
        live=[block(developer_message("live"))],
        updates=developer_message("news"),
        tail=said(2, 1),
        system_tokens=7,
    )


@pytest.mark.parametrize("window", [None, Window()])
def test_the_bands_stand_in_their_order(window: Window | None) -> None:
    parts = full()
    given = shown(parts, window)
    cut = bands(given)
    assert [item_text(item) for item in cut.anchor] == ["anchor", "two"]
    assert same(cut.history, parts.history)
    assert [item_text(item) for item in cut.live] == ["live"]
    assert cut.updates == [parts.updates]
    assert same(cut.tail, parts.tail)
    assert given.cache_boundary == 2
    assert (given.history_start, given.dropped) == (0, None)
    tokens = given.tokens
    assert (tokens.anchor, tokens.history, tokens.live) == (9, 7, 4)
    assert (tokens.updates, tokens.tail, tokens.total) == (4, 3, 27)


def test_without_parts_nothing_is_shown() -> None:
    given = shown(Parts(), Window())
    assert given.items == ()
    assert given.tokens.total == 0
    assert given.history_start == 0


def test_what_does_not_fit_is_passed_over_and_later_ones_may_fit() -> None:
    one, two, three = said(30, 80, 20)
    parts = Parts(anchor=[block(one, two), block(three)])
    assert bands(shown(parts, room(50))).anchor == [one, three]
    assert bands(shown(parts, room(49))).anchor == [one]
    assert bands(shown(parts, room(130))).anchor == [one, two, three]


def test_real_items_are_measured_by_their_estimate() -> None:
    items = [user_message("short"), user_message("long" * 200), user_message("brief")]
    fits = estimate_item(items[0]) + estimate_item(items[2])
    parts = Parts(live=[block(*items)])
    assert bands(assemble(parts, room(fits), Estimates())).live == [items[0], items[2]]
    assert bands(assemble(parts, room(fits - 1), Estimates())).live == [items[0]]


def test_with_too_little_room_updates_and_tail_are_shown_all_the_same() -> None:
    given = shown(full(), Window(token_budget=2, response_reserve=1))
    cut = bands(given)
    assert (len(cut.updates), len(cut.tail)) == (1, 2)
    assert (cut.anchor, cut.history, cut.live) == ([], [], [])
    assert (given.history_start, given.dropped) == (2, (0, 2))


def test_instructions_news_and_tail_come_out_of_the_same_budget() -> None:
    parts = full()
    needed = 7 + 27
    assert len(shown(parts, room(needed)).items) == len(shown(parts, None).items)
    assert bands(shown(parts, room(needed - 1))).history == list(parts.history[1:])


def test_layers_claim_before_the_history_and_the_anchored_before_the_live() -> None:
    parts = Parts(
        anchor=[block(*said(40))], live=[block(*said(40))], history=said(10, 10), tail=said(10)
    )
    for size, expected in ((110, (1, 1, 2)), (100, (1, 1, 1)), (89, (1, 0, 2)), (49, (0, 0, 2))):
        given = shown(parts, room(size))
        assert (given.anchor_items, given.live_items, given.history_items) == expected


# -- the history ---------------------------------------------------------------------------------


def test_the_newest_items_that_fit_are_kept_without_a_gap() -> None:
    history = said(5, 5, 40, 5, 5)
    given = shown(Parts(history=history), room(30))
    assert same(bands(given).history, history[3:])
    assert (given.history_start, given.dropped) == (3, (0, 3))


def test_a_first_cut_keeps_all_that_fits_and_later_cuts_leave_room() -> None:
    history = said(*[10] * 20)
    first = shown(Parts(history=history), room(100))
    assert first.history_start == 10
    later = shown(Parts(history=history + said(10)), room(100), first.history_start)
    assert later.history_start == 21 - 7
    assert later.dropped == (10, 14)


def test_a_cut_stays_while_what_follows_it_fits() -> None:
    history, start, starts = said(*[10] * 8), 0, []
    for _ in range(40):
        history += said(10)
        given = shown(Parts(history=history), room(100), start)
        start = given.history_start
        starts.append(start)
    assert starts[:12] == [0, 0, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13]
    assert starts == sorted(starts)
    assert len(set(starts)) == 12


def test_a_start_hides_what_is_before_it_even_without_a_budget() -> None:
    history = [call("a"), output("a"), *said(1, 1)]
    for window in (None, Window()):
        given = shown(Parts(history=history), window, 1)
        assert same(bands(given).history, history[2:])
        assert given.history_start == 1
        assert given.dropped is None


def test_a_start_behind_the_end_shows_nothing() -> None:
    given = shown(Parts(history=said(1)), Window(), 5)
    assert (given.items, given.history_start, given.dropped) == ((), 1, None)


def test_a_large_item_is_kept_when_it_fits_at_all() -> None:
    history = said(10, 10, 90)
    given = shown(Parts(history=history), room(100), 1)
    assert given.history_start == 1
    given = shown(Parts(history=history), room(95), 1)
    assert same(bands(given).history, history[2:])


def test_a_sliding_window_shows_exactly_the_newest() -> None:
    history, start = said(*[10] * 5), 0
    window = room(1_000, overflow="sliding_window", size=4)
    for _ in range(5):
        history += said(10)
        given = shown(Parts(history=history), window, start)
        start = given.history_start
        assert same(bands(given).history, history[-4:])
        assert start == len(history) - 4


def test_a_sliding_window_keeps_to_the_budget_too() -> None:
    history = said(*[10] * 9)
    window = room(25, overflow="sliding_window", size=4)
    assert same(bands(shown(Parts(history=history), window, 2)).history, history[-2:])
    assert same(bands(shown(Parts(history=history[:3]), window)).history, history[1:3])


def test_a_sliding_window_begins_after_outputs_it_cut_off_from_their_call() -> None:
    history = [call("a"), output("a"), *said(1, 1)]
    window = room(1_000, overflow="sliding_window", size=3)
    given = shown(Parts(history=history), window)
    assert same(bands(given).history, history[2:])
    assert (given.history_start, given.dropped) == (2, (0, 2))


def test_a_sliding_window_may_have_no_limit_of_tokens() -> None:
    window = Window(token_budget=math.inf, overflow="sliding_window", size=2)
    history = said(10**6, 10**6, 10**6)
    assert same(bands(shown(Parts(history=history), window)).history, history[1:])


# -- calls and their outputs ---------------------------------------------------------------------


def test_a_call_that_was_never_answered_is_left_out() -> None:
    history = [*said(1), call("a"), *said(1), call("b"), output("b")]
    assert same(bands(shown(Parts(history=history), Window())).history, [history[0], *history[2:]])


def test_an_output_without_its_call_is_left_out() -> None:
    history = [output("a"), *said(1), call("b"), output("b"), output("b")]
    given = shown(Parts(history=history), Window())
    assert same(bands(given).history, history[1:4])
    assert given.history_start == 0


def test_of_two_calls_with_one_id_the_last_was_answered() -> None:
    history = [call("a"), *said(1), call("a"), output("a")]
    assert same(bands(shown(Parts(history=history), Window())).history, history[1:])


def test_an_output_before_its_call_is_no_answer() -> None:
    history = [output("a"), *said(1), call("a")]
    assert same(bands(shown(Parts(history=history), Window())).history, history[1:2])


def test_a_call_may_be_answered_in_the_tail() -> None:
    history = [*said(1), call("a"), call("b")]
    tail = [output("a"), call("b"), output("b")]
    given = shown(Parts(history=history, tail=tail), Window())
    assert same(bands(given).history, history[:2])
    assert same(bands(given).tail, tail)


def test_a_cut_between_a_call_and_its_output_drops_both() -> None:
    history = [call("a", 50), output("a", 10), *said(10)]
    given = shown(Parts(history=history), room(60))
    assert same(bands(given).history, history[2:])
    assert (given.history_start, given.dropped) == (2, (0, 2))


def test_a_cut_among_several_calls_of_an_answer_takes_all_of_them() -> None:
    calls = [call("a", 10), call("b", 10), output("a", 10), output("b", 10)]
    history = [*said(100), *calls, *said(20)]
    window = room(100, overflow="summarize")
    given = shown(Parts(history=history), window)
    assert same(bands(given).history, history[5:])
    assert given.dropped == (0, 5)


def test_thoughts_go_with_the_call_they_led_to() -> None:
    thought, other = ReasoningItem(content="hm"), ReasoningItem(content="so")
    history = [*said(1), thought, call("a"), other, call("b"), call("c"), output("c"), *said(1)]
    given = bands(shown(Parts(history=history), Window())).history
    assert same(given, [history[0], other, *history[5:]])


def test_thoughts_before_an_answer_stay() -> None:
    history = [ReasoningItem(content="hm"), assistant_message("yes"), call("a"), *said(1)]
    given = bands(shown(Parts(history=history), Window())).history
    assert same(given, [*history[:2], history[3]])


def test_a_log_without_a_budget_is_shown_as_it_is() -> None:
    log = ItemLog([call("a"), *said(1)])
    assert same(shown(Parts(history=log.items), None).items, log.items)


# -- summaries -----------------------------------------------------------------------------------


def test_what_falls_out_is_reported_and_half_of_the_room_stays_free() -> None:
    history = said(*[10] * 11)
    window = room(100, overflow="summarize")
    assert shown(Parts(history=history[:10]), window).dropped is None
    given = shown(Parts(history=history), window)
    assert (given.dropped, given.history_start) == ((0, 6), 6)


def test_a_summary_comes_first_in_the_history_and_is_paid_before_it() -> None:
    history = said(*[10] * 9)
    summary = developer_message("s" * 30)
    window = room(100, overflow="summarize")
    parts = Parts(anchor=[block(*said(10))], history=history)
    given = shown(parts, window, 3, summary=summary)
    assert same(bands(given).history, [summary, *history[3:]])
    assert (given.history_items, given.tokens.history, given.dropped) == (7, 90, None)
    again = shown(parts, window, 2, summary=summary)
    assert again.dropped == (2, 6)
    assert bands(again).history[0] is summary


def test_a_summary_too_large_for_the_room_is_passed_over() -> None:
    history = said(10)
    summary = developer_message("s" * 101)
    given = shown(Parts(history=history), room(100, overflow="summarize"), summary=summary)
    assert same(given.items, history)


def test_summaries_are_rare() -> None:
    history, start, summary, written = said(*[10] * 5), 0, None, 0
    window = room(200, overflow="summarize")
    for _ in range(100):
        history += said(10)
        given = shown(Parts(history=history), window, start, summary=summary)
        if given.dropped:
            written += 1
            summary = developer_message("s" * 20)
            start = given.history_start
            given = shown(Parts(history=history), window, start, summary=summary)
            assert given.dropped is None
        assert given.tokens.total <= 200
    assert written <= 100 // 8


# -- cost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", ["truncate", "summarize", "sliding_window"])
def test_the_work_depends_on_the_window_and_not_on_the_history(overflow: Any) -> None:
    looked: list[Item] = []

    def count(item: Item) -> int:
        looked.append(item)
        return 10

    log = ItemLog(said(*range(10_000)))
    size = 250 if overflow == "sliding_window" else None
    window = room(2_000, overflow=overflow, size=size)
    start = 0
    for _ in range(3):
        given = assemble(Parts(history=log.items), window, Estimates(count), start)
        start = given.history_start
        assert given.history_items <= 200
        assert len(looked) <= 202
        looked.clear()
        log.append(user_message("more"))


def test_the_next_turn_looks_at_new_items_only() -> None:
    looked: list[Item] = []
    estimates = Estimates(lambda item: looked.append(item) or 10)  # type: ignore[func-returns-value]
    log = ItemLog(said(*range(150)))
    assemble(Parts(history=log.items), room(2_000), estimates)
    looked.clear()
    added = log.append(user_message("more"))
    assemble(Parts(history=log.items), room(2_000), estimates)
    assert looked == [added]


# -- properties ----------------------------------------------------------------------------------

sizes = st.integers(0, 30)
messages = sizes.map(lambda size: said(size)[0])
ids = st.sampled_from("abcde")
anything = st.one_of(
    messages,
    messages,
    st.builds(call, ids, sizes),
    st.builds(output, ids, sizes),
    sizes.map(lambda size: ReasoningItem(content="x" * size)),
)
histories = st.lists(anything, max_size=25)
blocks = st.lists(st.lists(messages, max_size=3).map(lambda items: block(*items)), max_size=3)
every_part = st.builds(
    Parts,
    anchor=blocks,
    history=histories,
    live=blocks,
    updates=st.one_of(st.none(), messages),
    tail=st.lists(anything, max_size=4),
    system_tokens=sizes,
)
windows = st.one_of(
    st.builds(room, st.integers(1, 400)),
    st.builds(room, st.integers(1, 400), overflow=st.just("summarize")),
    st.builds(
        room, st.integers(1, 400), overflow=st.just("sliding_window"), size=st.integers(1, 12)
    ),
)


def is_part_of(some: Sequence[Item], all: Sequence[Item]) -> bool:
    left = iter(all)
    return all_in(some, left)


def all_in(some: Sequence[Item], left: Any) -> bool:
    return all(any(item is other for other in left) for item in some)


def block_items(several: Sequence[Block]) -> list[Item]:
    return [item for each in several for item in each.items]


def unpaired(history: Sequence[Item], tail: Sequence[Item]) -> list[Item]:
    """Calls with no output after them, and outputs in the history with no call before them."""
    left: list[Item] = []
    both = [*history, *tail]
    for place, item in enumerate(history):
        others: Sequence[Item] = ()
        if isinstance(item, FunctionCallItem):
            others = [x for x in both[place:] if isinstance(x, FunctionCallOutputItem)]
        elif isinstance(item, FunctionCallOutputItem):
            others = [x for x in history[:place] if isinstance(x, FunctionCallItem)]
        else:
            continue
        if not any(each.call_id == item.call_id for each in others):  # type: ignore[union-attr]
            left.append(item)
    return left


@settings(max_examples=200, deadline=None)
@given(every_part, windows, st.integers(0, 26))
def test_what_is_shown_is_in_order_complete_where_promised_and_within_budget(
    parts: Parts, window: Window, start: int
) -> None:
    given = shown(parts, window, start)
    cut = bands(given)
    start = min(start, len(parts.history))
    assert is_part_of(cut.anchor, block_items(parts.anchor))
    assert is_part_of(cut.live, block_items(parts.live))
    assert same(cut.updates, [parts.updates] if parts.updates else [])
    assert same(cut.tail, parts.tail)

    assert start <= given.history_start <= len(parts.history)
    moved = given.history_start > start
    assert given.dropped == ((start, given.history_start) if moved else None)
    since = parts.history[given.history_start :]
    assert is_part_of(cut.history, since)
    assert unpaired(cut.history, cut.tail) == []
    assert all(
        any(item is kept for kept in cut.history) for item in since if isinstance(item, MessageItem)
    )
    if window.size:
        assert len(since) <= window.size

    fixed = sum(map(cost, [*cut.updates, *cut.tail])) + parts.system_tokens
    left = max(window.token_budget - window.response_reserve - fixed, 0)
    claimed = sum(map(cost, [*cut.anchor, *cut.live]))
    assert claimed + sum(map(cost, since)) <= left
    tokens = given.tokens
    assert tokens.total == sum(map(cost, given.items))
    assert tokens.history == sum(map(cost, cut.history))
    assert tokens.anchor + tokens.live == claimed


@settings(max_examples=100, deadline=None)
@given(every_part, windows, st.integers(0, 26))
def test_the_same_again_from_where_it_was_cut_shows_the_same(
    parts: Parts, window: Window, start: int
) -> None:
    given = shown(parts, window, start)
    again = shown(parts, window, given.history_start)
    assert same(again.items, given.items)
    assert again.dropped is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=60), st.lists(st.integers(1, 9), min_size=1))
def test_turn_by_turn_at_most_a_quarter_less_is_kept_than_fits(
    lengths: list[int], chunks: list[int]
) -> None:
    history, size, start, turn = said(*lengths), 100, 0, 0
    length = 0
    while length < len(history):
        length += chunks[turn % len(chunks)]
        turn += 1
        until = history[:length]
        given = shown(Parts(history=until), room(size), start)
        start = given.history_start
        fits = shown(Parts(history=until), room(size)).tokens.history
        before = cost(until[start - 1]) if start else 0
        assert given.tokens.history <= fits
        assert given.tokens.history + before > size * 0.75 or start == 0
        assert given.tokens.history >= fits - size / 4 - before
