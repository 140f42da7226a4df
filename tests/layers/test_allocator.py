from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetic_ray.errors import ConfigError
from noetic_ray.layers.allocator import UNBOUNDED, Allocation, allocate
from noetic_ray.layers.base import BudgetWish


@pytest.mark.parametrize(
    ("wishes", "layers"),
    [
        (["auto"], (6000,)),
        (["auto", "auto"], (3000, 3000)),
        ([4800, "auto"], (3000, 3000)),
        ([2999, "auto"], (2999, 3001)),
    ],
)
def test_auto_layers_share_what_limited_ones_leave(
    wishes: list[BudgetWish], layers: tuple[int, ...]
) -> None:
    assert allocate(10_000, 0, 0, wishes) == Allocation(layers, 4000)


def test_the_least_comes_first_and_the_rest_is_divided() -> None:
    assert allocate(10_000, 1000, 1000, [(200, 1500), "auto"]) == Allocation((1500, 3380), 3120)


def test_without_an_auto_layer_the_shares_follow_the_headroom() -> None:
    assert allocate(1000, 0, 0, [300, 900]) == Allocation((150, 450), 400)


def test_what_limited_layers_cannot_use_is_for_the_history() -> None:
    assert allocate(10_000, 0, 0, [100, (50, 200)]) == Allocation((100, 200), 9700)
    assert allocate(10_000, 0, 0, [(70, 70)]) == Allocation((70,), 9930)


def test_a_layer_without_a_wish_takes_part_in_nothing() -> None:
    assert allocate(10_000, 0, 0, [None, "auto", None]) == Allocation((None, 6000, None), 4000)
    assert allocate(10_000, 500, 500, [None]) == Allocation((None,), 9000)
    assert allocate(10_000, 0, 0, []) == Allocation((), 10_000)


@pytest.mark.parametrize("total", [0, 999, 1000, -5, -math.inf])
def test_nothing_is_divided_when_nothing_is_left(total: float) -> None:
    assert allocate(total, 400, 600, [100, None, "auto"]) == Allocation((0, None, 0), 0)


def test_minimums_that_are_too_much_shrink_alike_and_the_history_gets_nothing() -> None:
    wishes: list[BudgetWish] = [(100, 500), (200, 200), "auto"]
    assert allocate(100, 0, 0, wishes) == Allocation((33, 66, 0), 0)
    assert allocate(300, 0, 0, wishes) == Allocation((100, 200, 0), 0)


def test_an_infinite_maximum_counts_as_auto_above_its_minimum() -> None:
    assert allocate(1100, 0, 0, [(100, math.inf)]) == Allocation((700,), 400)  # type: ignore[list-item]


def test_an_infinite_window_gives_numbers() -> None:
    given = allocate(math.inf, 4000, 0, [(10, 500), "auto", None])
    assert given.layers[0] == 500
    assert given.layers[1] is not None
    assert given.layers[1] > 10**15
    assert given.history > 10**15
    assert all(type(each) is int for each in (*given.layers[:2], given.history))


def test_fractions_of_a_token_are_dropped() -> None:
    assert allocate(1000.9, 0.5, 0, ["auto"]) == Allocation((600,), 400)


@pytest.mark.parametrize(
    "figures",
    [
        (math.nan, 0, 0, []),
        (1000, math.nan, 0, []),
        (1000, 0, math.nan, []),
        (math.inf, math.inf, 0, []),
        (1000, 0, math.inf, []),
        (1000, 0, 0, [math.nan]),
        (1000, 0, 0, [(0, math.nan)]),
        (1000, 0, 0, [(math.nan, 5)]),
        (1000, 0, 0, [(math.inf, math.inf)]),
        (1000, 0, 0, [(9, 5)]),
        (1000, 0, 0, [-1]),
        (0, 0, 0, [math.nan]),
    ],
)
def test_figures_that_make_no_sense_are_refused(figures: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        allocate(*figures)
    assert refused.value.code == "INVALID_WINDOW"
    assert refused.value.hint


tokens = st.integers(0, 2_000)
wish_lists = st.lists(
    st.one_of(
        st.none(),
        st.just("auto"),
        tokens,
        st.tuples(tokens, tokens).map(lambda pair: (min(pair), max(pair))),
        tokens.map(lambda least: (least, math.inf)),
    ),
    max_size=6,
)


def limits(wish: Any) -> tuple[float, float]:
    if wish == "auto":
        return 0, math.inf
    return wish if isinstance(wish, tuple) else (0, wish)


@settings(max_examples=150, deadline=None)
@given(st.integers(-100, 20_000), st.integers(0, 500), st.integers(0, 500), wish_lists)
def test_shares_stay_within_the_window_and_their_limits(
    total: int, reserve: int, system: int, wishes: list[Any]
) -> None:
    given = allocate(total, reserve, system, wishes)
    available = max(total - reserve - system, 0)
    assert [share is None for share in given.layers] == [wish is None for wish in wishes]
    both = [
        (share, *limits(wish))
        for share, wish in zip(given.layers, wishes, strict=True)
        if share is not None
    ]
    used = sum(share for share, _, _ in both) + given.history
    assert given.history >= 0
    assert used <= available
    if sum(least for _, least, _ in both) <= available:
        assert all(least <= share <= most for share, least, most in both)
        assert available - used < max(len(both), 1)
    else:
        assert given.history == 0
        assert all(0 <= share <= least for share, least, _ in both)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 20_000), st.integers(0, 50), wish_lists)
def test_nobody_gets_less_of_a_larger_window(total: int, more: int, wishes: list[Any]) -> None:
    for larger in (total + 1, total + more, UNBOUNDED, math.inf):
        small, large = allocate(total, 50, 50, wishes), allocate(larger, 50, 50, wishes)
        assert large.history >= small.history
        for before, after in zip(small.layers, large.layers, strict=True):
            assert before is None or (after is not None and after >= before)
