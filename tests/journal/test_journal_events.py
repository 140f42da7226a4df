from __future__ import annotations

import pickle

from noetic_ray.items import item_json, user_message
from noetic_ray.journal.events import Event, unwrap_item, wrap_item


def test_data_is_read_from_json_once() -> None:
    event = Event.of("r", (3, "t", "c", 1.5, b'{"a":[1]}'))
    assert (event.seq, event.type, event.run_id, event.context_id, event.time) == (
        3,
        "t",
        "r",
        "c",
        1.5,
    )
    assert event.data == {"a": [1]}
    assert event.data is event.data


def test_events_are_equal_when_they_say_the_same() -> None:
    one = Event.of("r", (3, "t", "c", 1.5, b'{"a":1}'))
    other = Event(3, "t", "r", "c", 1.5, {"a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != Event(3, "t", "r", "c", 1.5, {"a": 2})
    assert one != "event"


def test_events_survive_pickling_and_show_themselves() -> None:
    event = Event.of("r", (None, "model.delta", "c", 1.5, b'{"text":"x"}'))
    again = pickle.loads(pickle.dumps(event))
    assert again == event
    assert repr(again) == (
        "Event(seq=None, type='model.delta', run_id='r', context_id='c', time=1.5, "
        "data={'text': 'x'})"
    )


def test_events_can_be_matched() -> None:
    match Event(1, "run.ended", "r", "r", 0.0, {"status": "failed"}):
        case Event(type="run.ended", data={"status": status}):
            assert status == "failed"
        case _:
            raise AssertionError("no match")


def test_an_item_comes_out_of_its_event_as_it_went_in() -> None:
    raw = item_json(user_message('}{"'))
    assert unwrap_item(wrap_item(raw)) == raw
