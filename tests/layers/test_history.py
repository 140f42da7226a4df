"""The cut of a history keeps what the task is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.items import Item
from noetic_ray.log import ItemLog
from tests.layers.builtin.support import Hosted


def pair(number: int) -> list[Item]:
    call = nr.FunctionCallItem(call_id=f"c{number}", name="t", arguments="{}")
    return [call, nr.FunctionCallOutputItem(call_id=f"c{number}", output="o")]


async def test_the_user_s_message_stays_where_no_assistant_spoke() -> None:
    items = [nr.user_message("the task"), *(item for n in range(30) for item in pair(n))]
    shown = await Hosted(nr.layers.history(40)).project(items)
    assert list(shown) == items


async def test_the_cut_goes_no_further_back_than_it_finds_something() -> None:
    items = [*(item for n in range(50) for item in pair(n)), nr.user_message("u")]
    items += [item for n in range(50, 75) for item in pair(n)]
    shown = await Hosted(nr.layers.history(40)).project(items)
    assert list(shown) == items[100:]


async def test_the_cap_holds_with_a_system_message_too() -> None:
    rules = nr.system_message("rules")
    notes = [nr.developer_message(str(n)) for n in range(6)]
    items = [rules, nr.user_message("u"), nr.assistant_message("a"), *notes]
    shown = await Hosted(nr.layers.history(2)).project(items)
    assert shown[0] is rules
    assert len(shown) <= 8


kinds = st.lists(st.sampled_from(["user", "assistant", "developer", "system", "pair"]), max_size=80)


@settings(deadline=None)
@given(kinds, st.integers(2, 12))
async def test_a_cut_is_paired_capped_in_order_and_from_the_end(
    chosen: list[Any], most: int
) -> None:
    items: list[Item] = []
    for number, kind in enumerate(chosen):
        items += pair(number) if kind == "pair" else [nr.MessageItem(role=kind, content="m")]
    view = ItemLog(items).items
    shown = await Hosted(nr.layers.history(most)).project(view)
    if len(items) <= most:
        assert shown is view
        return
    calls = [item.call_id for item in shown if isinstance(item, nr.FunctionCallItem)]
    outputs = [item.call_id for item in shown if isinstance(item, nr.FunctionCallOutputItem)]
    assert calls == outputs
    assert len(shown) <= 4 * most
    assert [item for item in items if item in shown] == list(shown)
    newest = [item for item in items[-most:] if isinstance(item, nr.MessageItem)]
    assert all(item in shown for item in newest)


@pytest.mark.parametrize("wrong", [1, 10_001, True, 2.0, "40", None])
def test_its_length_has_a_code_of_its_own(wrong: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.layers.history(wrong)
    assert caught.value.code == "INVALID_HISTORY_MAX_ITEMS"
