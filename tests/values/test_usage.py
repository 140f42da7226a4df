from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from noetic_ray.items import FunctionCallItem, assistant_message
from noetic_ray.usage import RoundMeta, RoundUsage, StepMeta, TokenUsage, estimate_tokens


def test_totals_start_at_zero_with_nothing_reported_about_the_cache() -> None:
    assert TokenUsage() == TokenUsage(0, 0, 0, None)


def test_rounds_are_added_up() -> None:
    usage = TokenUsage()
    usage.add(RoundUsage(10, 5))
    usage.add(RoundUsage(1, 2))
    assert usage == TokenUsage(11, 7, 18, None)


def test_reported_zero_differs_from_not_reported() -> None:
    usage = TokenUsage()
    usage.add(RoundUsage(1, 1, cached_tokens=0))
    assert usage.cached == 0
    usage.add(RoundUsage(1, 1))
    assert usage.cached == 0
    usage.add(RoundUsage(1, 1, cached_tokens=7))
    assert usage.cached == 7


def test_a_response_that_reported_nothing_is_only_counted() -> None:
    usage = TokenUsage(1, 2, 3, 4)
    usage.add(None)
    assert usage == TokenUsage(1, 2, 3, 4, unreported=1)
    usage.merge(usage.copy())
    assert usage.unreported == 2


def test_what_was_used_since_an_earlier_moment() -> None:
    earlier = TokenUsage(1, 2, 3)
    later = earlier.copy()
    later.add(RoundUsage(10, 20, cached_tokens=0))
    later.add(None)
    assert later.minus(earlier) == TokenUsage(10, 20, 30, 0, unreported=1)
    assert later.minus(later) == TokenUsage(0, 0, 0, 0)


def test_children_are_merged() -> None:
    usage = TokenUsage(1, 1, 2)
    usage.merge(TokenUsage(3, 4, 7))
    assert usage == TokenUsage(4, 5, 9, None)
    usage.merge(TokenUsage(0, 0, 0, 0))
    assert usage.cached == 0


def test_a_copy_goes_its_own_way() -> None:
    usage = TokenUsage(1, 1, 2, 0)
    copy = usage.copy()
    copy.add(RoundUsage(5, 5))
    assert usage == TokenUsage(1, 1, 2, 0)
    assert copy.total == 12


def test_round_sums_keep_unreported_figures_unreported() -> None:
    total = RoundUsage.over([RoundUsage(1, 2), None, RoundUsage(3, 4, cache_write_tokens=0)])
    assert total == RoundUsage(4, 6, None, 0)
    assert RoundUsage.over([]) == RoundUsage()


def test_step_meta_covers_all_rounds_and_keeps_each() -> None:
    call = FunctionCallItem(call_id="c", name="n", arguments="{}")
    text = assistant_message("done")
    first = RoundMeta((call,), RoundUsage(10, 1, 0), 0.5, (call,))
    last = RoundMeta((), RoundUsage(20, 2), 0.25, (text,))
    meta = StepMeta.over([first, last])
    assert meta.tool_calls == (call,)
    assert meta.usage == RoundUsage(30, 3, 0)
    assert meta.cost == 0.75
    assert meta.response_items == (call, text)
    assert meta.rounds == (first, last)


def test_step_meta_without_reports_has_neither_usage_nor_cost() -> None:
    meta = StepMeta.over([RoundMeta()])
    assert meta.usage is None
    assert meta.cost is None


def test_records_are_frozen_and_pickle() -> None:
    meta = StepMeta(usage=RoundUsage(1, 2), rounds=(RoundMeta(),))
    assert pickle.loads(pickle.dumps(meta)) == meta
    assert pickle.loads(pickle.dumps(TokenUsage(1, 2, 3))) == TokenUsage(1, 2, 3)
    with pytest.raises(FrozenInstanceError):
        meta.cost = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_estimate_is_a_quarter_of_the_characters_rounded_up(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens
