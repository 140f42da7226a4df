from __future__ import annotations

from contextvars import Context

import noetic_ray as nr
from noetic_ray.harness.session_queue import MessageQueue, SentMessage


def sent(queue: MessageQueue, text: str, mode: str = "next_turn") -> SentMessage:
    item = nr.user_message(text).model_copy(update={"id": text})
    message = SentMessage(text, (item,), mode, Context())
    queue.enter(message)
    return message


def drained(queue: MessageQueue) -> list[str]:
    found = []
    while (message := queue.next()) is not None:
        found.append(message.id)
    return found


def test_interrupts_come_first_then_what_was_left_then_the_others() -> None:
    queue = MessageQueue()
    for name in ("a", "b"):
        queue.add(sent(queue, name))
        queue.add(sent(queue, f"now {name}", "interrupt"))
        queue.offer(sent(queue, f"left {name}", "between_rounds"))
    assert len(queue) == 6
    assert queue.end_turn(lambda id: False) == []
    assert drained(queue) == ["now a", "now b", "left a", "left b", "a", "b"]


def test_what_was_taken_waits_no_longer_and_belongs_to_the_turn() -> None:
    queue = MessageQueue()
    taken, left = sent(queue, "taken"), sent(queue, "left")
    for message in (taken, left):
        queue.offer(message)
    queue.appended("taken")
    queue.appended("something else")
    assert len(queue) == 1
    assert set(queue) == {taken, left}
    assert queue.end_turn(lambda id: id == "taken") == [taken]
    assert list(queue) == [left]


def test_of_a_message_taken_in_part_the_rest_is_left() -> None:
    queue = MessageQueue()
    items = tuple(nr.user_message(n).model_copy(update={"id": n}) for n in "ab")
    message = SentMessage("b", items, "between_rounds", Context())
    queue.offer(message)
    queue.appended("a")
    queue.end_turn(lambda id: id == "a")
    assert queue.next() is message
    assert [item.id for item in message.items] == ["b"]


def test_clearing_drops_what_no_turn_took() -> None:
    queue = MessageQueue()
    queue.add(sent(queue, "a"))
    queue.offer(sent(queue, "b"))
    assert [message.id for message in queue.clear()] == ["a", "b"]
    assert len(queue) == 0
