from __future__ import annotations

import pickle
import sys
import threading
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

from noetic_ray.errors import DuplicateItem, ItemSchemaMismatch
from noetic_ray.items import ExtensionItem, Item, MessageItem, item_text, user_message
from noetic_ray.log import ItemLog


def messages(count: int) -> list[Item]:
    return [user_message(str(n)) for n in range(count)]


def test_an_empty_log() -> None:
    log = ItemLog()
    assert len(log) == 0
    assert log.items == ()
    assert list(log) == []
    assert log.since(0) == ()
    with pytest.raises(IndexError):
        log[0]


def test_append_returns_the_very_item_and_keeps_order() -> None:
    log, items = ItemLog(), messages(3)
    for item in items:
        assert log.append(item) is item
    assert list(log) == items
    assert all(a is b for a, b in zip(log.items, items, strict=True))


def test_reading() -> None:
    items = messages(5)
    log = ItemLog(items)
    assert log[0] is items[0]
    assert log[-1] is items[4]
    assert log[1:3] == tuple(items[1:3])
    assert log[::-2] == tuple(items[::-2])
    assert log.since(3) == tuple(items[3:])
    assert log.since(9) == ()
    assert log.since(-1) == tuple(items)
    assert items[2] in log
    assert log.items.index(items[2]) == 2
    assert list(reversed(log.items)) == items[::-1]
    for wrong in (5, -6):
        with pytest.raises(IndexError):
            log.items[wrong]


def test_the_view_is_the_same_object_between_appends_and_never_changes() -> None:
    log = ItemLog(messages(2))
    held = log.items
    assert log.items is held
    copy = list(held)
    log.append(user_message("new"))
    assert log.items is not held
    assert len(held) == 2
    assert list(held) == copy
    assert held[-1] is copy[-1]
    assert held[:] == tuple(copy)
    assert len(log.items) == 3


def test_the_view_cannot_be_changed() -> None:
    view: Any = ItemLog(messages(2)).items
    with pytest.raises(AttributeError):
        view.append(user_message("x"))
    with pytest.raises(TypeError):
        view[0] = user_message("x")
    with pytest.raises(TypeError):
        del view[0]
    with pytest.raises(AttributeError):
        view.extra = 1


def test_the_view_equals_tuples_lists_and_views_by_content() -> None:
    items = messages(3)
    view = ItemLog(items).items
    assert view == tuple(items)
    assert view == items
    assert view == ItemLog(items).items
    assert view != items[:2]
    assert view != [*items[:2], user_message("2")]
    assert view != "text"


def test_dicts_are_parsed() -> None:
    log = ItemLog()
    item = log.append({"type": "message", "role": "user", "content": "hi"})
    assert isinstance(item, MessageItem)
    assert log[0] is item
    with pytest.raises(ItemSchemaMismatch):
        log.append({"foo": 1})
    with pytest.raises(ItemSchemaMismatch):
        log.append("text")  # type: ignore[arg-type]
    assert len(log) == 1


def test_the_same_id_with_the_same_content_adds_nothing() -> None:
    log = ItemLog()
    first = log.append({"id": "a", "type": "message", "role": "user", "content": "hi"})
    again = log.append({"id": "a", "type": "message", "role": "user", "content": "hi"})
    assert again is first
    assert log.append(first) is first
    assert len(log) == 1


def test_the_same_id_with_other_content_is_an_error() -> None:
    log = ItemLog()
    log.append(MessageItem(id="a", role="user", content="hi"))
    with pytest.raises(DuplicateItem) as caught:
        log.append(MessageItem(id="a", role="user", content="ho"))
    assert caught.value.item_id == "a"
    with pytest.raises(DuplicateItem):
        log.append(MessageItem(id="a", role="user", content="hi", status="failed"))
    assert len(log) == 1


def test_an_item_from_a_provider_is_always_appended() -> None:
    log = ItemLog()
    item = MessageItem(id="a", role="user", content="hi")
    assert log.append_from_provider(item) is item
    renamed = log.append_from_provider(item)
    assert renamed.id != "a"
    assert renamed.provider_id == "a"
    assert renamed.model_dump(exclude={"id", "provider_id"}) == item.model_dump(exclude={"id"})
    assert item.provider_id is None
    child = log.fork()
    assert child.append_from_provider(item).provider_id == "a"
    assert len(log) == 2
    assert len(child) == 3


def test_the_observer_sees_each_new_item_once_in_order() -> None:
    seen: list[Item] = []
    given = user_message("given")
    log = ItemLog([given], on_append=seen.append)
    first = log.append(user_message("a"))
    log.append(first)
    log.append(given)
    second = log.append_from_provider(first)
    assert seen == [first, second]


def test_an_observer_may_append() -> None:
    log = ItemLog()
    echo = user_message("echo")

    def observe(item: Item) -> None:
        log.append(echo)

    log.on_append = observe
    log.append(user_message("a"))
    assert [item_text(item) for item in log] == ["a", "echo"]


def test_a_fork_starts_with_the_parents_items_and_goes_its_own_way() -> None:
    parent = ItemLog(messages(3))
    child = parent.fork()
    assert child.items == parent.items
    assert child.sealed == 3
    mine, yours = user_message("mine"), user_message("yours")
    parent.append(mine)
    child.append(yours)
    assert list(parent)[3:] == [mine]
    assert list(child)[3:] == [yours]
    assert child.since(3) == (yours,)
    assert child[1:4] == (*parent[1:3], yours)
    assert parent.sealed == 0


def test_a_fork_copies_no_item() -> None:
    parent = ItemLog(messages(1000))
    child = parent.fork()
    assert all(a is b for a, b in zip(parent, child, strict=True))
    assert child._own == []
    assert child._segments[0].items is parent._own


def test_forks_of_forks() -> None:
    logs = [ItemLog(messages(2))]
    for n in range(20):
        logs.append(logs[-1].fork())
        if n % 3:
            logs[-1].append(user_message(f"level {n}"))
            logs[-2].append(user_message(f"late {n}"))
    for parent, child in pairwise(logs):
        assert child.items[: child.sealed] == parent.items[: child.sealed]
    last = logs[-1]
    assert [last[n] for n in range(len(last))] == list(last)
    assert [last[-n - 1] for n in range(len(last))] == list(last)[::-1]
    assert last[3:9:2] == tuple(list(last)[3:9:2])
    with pytest.raises(IndexError):
        last[len(last)]


def test_ids_are_unique_over_the_inherited_items_only() -> None:
    parent = ItemLog()
    parent.append(MessageItem(id="a", role="user", content="1"))
    child = parent.fork()
    with pytest.raises(DuplicateItem):
        child.append(MessageItem(id="a", role="user", content="2"))
    child.append(MessageItem(id="a", role="user", content="1"))
    assert len(child) == 1
    parent.append(MessageItem(id="b", role="user", content="parent's"))
    item = child.append(MessageItem(id="b", role="user", content="child's"))
    assert child[1] is item


class Ticket(BaseModel):
    number: int


def test_rules_for_extension_items_hold_and_are_inherited() -> None:
    log = ItemLog(item_types={"acme:ticket": Ticket}, strict=True)
    for each in (log, log.fork(), pickle.loads(pickle.dumps(log))):
        each.append(ExtensionItem(type="acme:ticket", data={"number": 1}))
        with pytest.raises(ItemSchemaMismatch):
            each.append(ExtensionItem(type="acme:ticket", data={}))
        with pytest.raises(ItemSchemaMismatch):
            each.append_from_provider({"type": "acme:other", "data": {}})
        assert len(each) == 1 or each is not log
    free = ItemLog()
    free.append(ExtensionItem(type="acme:other", data={}))


def test_logs_and_views_pickle_with_their_items() -> None:
    parent = ItemLog(messages(2))
    log = parent.fork()
    log.append(user_message("x"))
    assert pickle.loads(pickle.dumps(log)).items == log.items
    assert pickle.loads(pickle.dumps(log.items)) == tuple(log.items)


def test_an_empty_log_is_tiny() -> None:
    log = ItemLog()
    assert sys.getsizeof(log) + sys.getsizeof(log._own) < 200
    assert log._ids is None


def test_threads_append_while_others_read() -> None:
    log = ItemLog()
    seen: list[Item] = []
    log.on_append = seen.append
    start, failures = threading.Barrier(6), []
    done = threading.Event()

    def write() -> None:
        start.wait()
        for n in range(500):
            log.append(user_message(str(n)))
            log.append(MessageItem(id=f"same {n}", role="user", content="x"))

    def read() -> None:
        start.wait()
        while not done.is_set():
            view = log.items
            length = len(view)
            fork = log.fork()
            if len(list(view)) != length or len(fork) < length:
                failures.append((length, len(fork)))

    writers = [threading.Thread(target=write) for _ in range(4)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert len(log) == 4 * 500 + 500
    assert all(a is b for a, b in zip(log, seen, strict=True))
