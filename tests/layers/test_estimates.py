from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from noetic_ray.items import (
    ExtensionItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    InputText,
    Item,
    MessageItem,
    user_message,
)
from noetic_ray.layers.estimates import Estimates, estimate_item
from noetic_ray.log import ItemLog
from noetic_ray.usage import estimate_tokens


class Counted:
    """One token an item, and a list of what was looked at."""

    def __init__(self) -> None:
        self.seen: list[Item] = []

    def __call__(self, item: Item) -> int:
        self.seen.append(item)
        return 1


def messages(count: int) -> Iterator[Item]:
    return (user_message(str(n)) for n in range(count))


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("four", 1), ("fives", 2), ("12345678", 2)])
def test_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_an_item_costs_its_json_as_it_is_sent() -> None:
    item = user_message("hello")
    sent = '{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}'
    assert estimate_item(item) == estimate_tokens(sent)


def test_what_a_provider_does_not_get_costs_nothing() -> None:
    plain = FunctionCallItem(id="1", call_id="c", name="f", arguments="{}")
    booked = FunctionCallItem(
        id="a-much-longer-id",
        status="incomplete",
        provider_id="their-id",
        provider_call_id="their-call",
        call_id="c",
        name="f",
        arguments="{}",
    )
    assert estimate_item(plain) == estimate_item(booked)


def test_data_of_an_item_counts_whatever_its_names() -> None:
    small = ExtensionItem(type="acme:note", data={"id": "x"})
    large = ExtensionItem(type="acme:note", data={"id": "x" * 401})
    assert estimate_item(large) == estimate_item(small) + 100


def test_characters_count_and_not_bytes() -> None:
    assert estimate_item(user_message("é" * 40)) == estimate_item(user_message("e" * 40))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_item_no_json_can_hold_is_estimated_too() -> None:
    odd = FunctionCallOutputItem.model_construct(
        type="function_call_output", id="1", call_id="c", output=object()
    )
    assert estimate_item(odd) > 0


def test_an_item_is_estimated_once() -> None:
    count = Counted()
    estimates = Estimates(count)
    item = user_message("x")
    assert [estimates.of(item) for _ in range(3)] == [1, 1, 1]
    assert estimates.total([item, item]) == 2
    assert count.seen == [item]


def test_equal_items_are_told_apart() -> None:
    costs = iter((5, 7))
    estimates = Estimates(lambda item: next(costs))
    one, other = user_message("x"), user_message("x")
    assert (estimates.of(one), estimates.of(other), estimates.of(one)) == (5, 7, 5)


def test_a_new_item_at_the_address_of_a_gone_one_gets_its_own_estimate() -> None:
    estimates = Estimates(limit=4)
    for n in range(200):
        item = user_message("x" * n)
        assert estimates.of(item) == estimate_item(item)
        del item


def test_the_cache_is_bounded_and_keeps_what_is_in_use() -> None:
    count = Counted()
    estimates = Estimates(count, limit=10)
    first, used = user_message("first"), user_message("used")
    gone = weakref.ref(first)
    estimates.of(first)
    for item in messages(50):
        estimates.of(used)
        estimates.of(item)
    assert sum(item is used for item in count.seen) == 1
    count.seen.clear()
    del first, item
    gc.collect()
    assert gone() is None


def test_a_log_that_grew_by_one_item_is_not_visited_again() -> None:
    count = Counted()
    estimates = Estimates(count, limit=2)
    log = ItemLog(messages(10_000))
    assert estimates.history_total(log.items) == 10_000
    count.seen.clear()
    added = log.append(user_message("new"))
    assert estimates.history_total(log.items) == 10_001
    assert count.seen == [added]
    assert estimates.history_total(log.items) == 10_001
    assert len(count.seen) == 1


def test_a_fork_goes_on_where_its_log_was() -> None:
    count = Counted()
    estimates = Estimates(count, limit=2)
    log = ItemLog(messages(100))
    estimates.history_total(log.items)
    fork = log.fork()
    fork.append(user_message("new"))
    count.seen.clear()
    assert estimates.history_total(fork.items) == 101
    assert len(count.seen) == 1


def test_another_or_a_shorter_log_is_added_up_anew() -> None:
    estimates = Estimates()
    log = ItemLog(messages(5))
    before = log.items
    log.append(user_message("more"))
    for view in (log.items, before, ItemLog(messages(9)).items, ItemLog().items, log.items):
        assert estimates.history_total(view) == sum(map(estimate_item, view))


def test_a_log_that_shares_only_its_ends_is_another() -> None:
    estimates = Estimates()
    first, last, long = user_message("first"), user_message("last"), user_message("x" * 400)
    for items in ([first, last], [long, last], [long, first, last], [long, last, first]):
        view = ItemLog(items).items
        assert estimates.history_total(view) == sum(map(estimate_item, view))


def test_a_plain_list_may_have_changed_in_the_middle() -> None:
    estimates = Estimates()
    items = list(messages(4))
    estimates.history_total(items)
    items[1] = user_message("x" * 400)
    assert estimates.history_total(items) == sum(map(estimate_item, items))


def test_a_picture_sent_as_text_does_not_count_by_its_length() -> None:
    text = InputText(text="what is this?")
    image = InputImage(image_url="data:image/png;base64," + "A" * 1_000_000)
    file = InputFile(file_data="data:application/pdf;base64," + "A" * 1_000_000)
    plain = estimate_item(MessageItem(role="user", content=[text]))
    assert estimate_item(MessageItem(role="user", content=[text, image])) == plain + 1_000
    assert estimate_item(MessageItem(role="user", content=[file, text, image])) == plain + 6_000
