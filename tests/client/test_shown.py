"""What a client shows in the end, and that its frames lead there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_ray.client.frames import Frame, frames_of
from noetic_ray.client.message import APPENDED, REPLACED, SENT, Message
from noetic_ray.client.shown import ShownFold

Event = tuple[str, str, float, dict[str, Any]]


def event(type: str, id: str, message: dict[str, Any] | str, context: str = "run") -> Event:
    if isinstance(message, str):
        message = {"type": "text", "props": {"content": message}}
    return type, context, 0.0, {"message_id": id, "message": {**message, "message_id": id}}


def shown(events: list[Event]) -> list[Message]:
    fold = ShownFold()
    for type, context_id, _, data in events:
        assert fold.feed(type, context_id, data)
    return fold.messages()


def apply_frames(frames: list[Frame]) -> list[tuple[str, str, dict[str, Any]]]:
    """A client of a `cui-*` format: what it shows after these frames, as (id, type, props)."""
    views: dict[str, tuple[str, dict[str, Any]]] = {}
    for frame in frames:
        id, type, props = frame["message_id"], frame["type"], dict(frame["props"])
        known = views.get(id)
        if known is None or frame.get("delta_action") != "append":
            views[id] = type, props
            continue
        path, old = frame["delta_path"], dict(known[1])
        head = old.get(path)
        old[path] = (head if isinstance(head, str) else "") + props[path]
        views[id] = known[0], old
    return [(id, *view) for id, view in views.items()]


def test_messages_stand_in_the_order_of_their_first_send() -> None:
    events = [
        event(SENT, "M1", "one"),
        event(SENT, "M2", "two"),
        event(REPLACED, "M1", "three"),
    ]
    assert [(each.id, each.props["content"]) for each in shown(events)] == [
        ("M1", "three"),
        ("M2", "two"),
    ]


def test_a_replacement_is_whole() -> None:
    first = {"type": "text", "props": {"content": "a", "status": "run"}}
    events = [
        event(SENT, "M1", first),
        event(REPLACED, "M1", {"type": "image", "props": {"url": "u"}}),
    ]
    assert shown(events) == [Message("M1", "image", {"url": "u"}, "run")]


def test_added_text_goes_to_the_end() -> None:
    events = [event(SENT, "M1", "a"), *(event(APPENDED, "M1", text) for text in "bcd")]
    assert shown(events) == [Message("M1", "text", {"content": "abcd"}, "run")]


def test_a_replacement_takes_added_text_with_it() -> None:
    events = [
        event(SENT, "M1", "a"),
        event(APPENDED, "M1", "b"),
        event(REPLACED, "M1", "c"),
        event(APPENDED, "M1", "d"),
    ]
    assert shown(events)[0].props == {"content": "cd"}


def test_a_message_belongs_to_the_context_that_sent_it() -> None:
    events = [event(SENT, "M1", "a", "run"), event(REPLACED, "M1", "b", "child")]
    assert shown(events) == [Message("M1", "text", {"content": "b"}, "run")]


def test_a_change_recorded_before_its_message_is_applied_after_it() -> None:
    events = [
        event(REPLACED, "M1", "new", "child"),
        event(APPENDED, "M1", "er", "child"),
        event(SENT, "M1", "old", "run"),
    ]
    assert shown(events) == [Message("M1", "text", {"content": "newer"}, "run")]
    assert apply_frames(frames_of(events, "cui", "r")) == [("M1", "text", {"content": "newer"})]


def test_a_change_whose_message_never_came_is_shown_all_the_same() -> None:
    events = [event(REPLACED, "M1", "new", "child"), event(SENT, "M2", "x")]
    assert [each.id for each in shown(events)] == ["M2", "M1"]


def test_asking_in_between_changes_nothing() -> None:
    fold = ShownFold()
    fold.feed(REPLACED, "child", event(REPLACED, "M1", "new")[3])
    assert fold.messages() == [Message("M1", "text", {"content": "new"}, "child")]
    fold.feed(SENT, "run", event(SENT, "M1", "old")[3])
    before = fold.messages()
    before[0].props["content"] = "by hand"
    assert fold.messages() == [Message("M1", "text", {"content": "new"}, "run")]


def test_other_events_are_none_of_its_business() -> None:
    fold = ShownFold()
    assert not fold.feed("item.appended", "run", {"item": {}})
    assert fold.messages() == []


CONTENTS = st.text(max_size=5)
MESSAGES = st.one_of(
    CONTENTS.map(lambda text: {"type": "text", "props": {"content": text}}),
    CONTENTS.map(lambda text: {"type": "thinking", "props": {"content": text}, "block_id": "B1"}),
    st.just({"type": "image", "props": {"url": "u"}}),
    st.just({"type": "tool", "props": {"name": "t", "result": [1, {"a": None}]}}),
    st.just({"type": "loading", "props": {}}),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """What one context can do: it changes only what it has sent."""
    events: list[Event] = []
    sent: list[str] = []
    for _ in range(draw(st.integers(0, 15))):
        action = draw(st.sampled_from((SENT, REPLACED, APPENDED))) if sent else SENT
        if action == SENT:
            sent.append(f"M{len(sent) + 1}")
            events.append(event(SENT, sent[-1], draw(MESSAGES)))
            continue
        id = draw(st.sampled_from(sent))
        message = draw(CONTENTS) if action == APPENDED else draw(MESSAGES)
        events.append(event(action, id, message))
    return events


@given(histories(), st.sampled_from(["cui", "cui-web", "cui-native", "cui-desktop"]))
def test_frames_lead_to_what_is_shown(events: list[Event], accept: str) -> None:
    applied = apply_frames(frames_of(events, accept, "run"))
    assert applied == [(each.id, each.type, each.props) for each in shown(events)]


@given(histories(), st.randoms(use_true_random=False))
def test_changes_by_another_context_may_be_recorded_first(events: list[Event], random: Any) -> None:
    sends = [each for each in events if each[0] == SENT]
    changes = [(each[0], "child", *each[2:]) for each in events if each[0] != SENT]
    both = [0] * len(sends) + [1] * len(changes)
    random.shuffle(both)
    ahead = [iter(sends), iter(changes)]
    mixed = [next(ahead[side]) for side in both]
    wanted = shown([*sends, *changes])
    assert sorted(shown(mixed), key=str) == sorted(wanted, key=str)
    applied = apply_frames(frames_of(mixed, "cui", "run"))
    assert applied == [(each.id, each.type, each.props) for each in shown(mixed)]


@pytest.mark.parametrize("accept", ["standard", "cui"])
def test_no_events_make_no_frames(accept: str) -> None:
    assert frames_of([], accept, "run") == []
    assert shown([]) == []
