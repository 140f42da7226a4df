"""What clients are told of a root's answers, whatever happens to the pieces."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.items import MessageItem, OutputText
from noetic_ray.journal.events import Event
from noetic_ray.serve.narration import Narration, Said, Told


class Heard:
    """A client: it keeps what it gets, and takes back only if it can."""

    def __init__(self, replaces: bool = False) -> None:
        self.narration = Narration("root", replaces)
        self.replaces = replaces
        self.texts: dict[str, str] = {}
        self.said: list[Said] = []

    def event(self, type: str, context_id: str = "root", **data: Any) -> Heard:
        for each in self.narration.feed(Event(1, type, "root", context_id, 0.0, data)):
            assert isinstance(each, Said)
            self.said.append(each)
            before = "" if each.whole else self.texts.get(each.message_id, "")
            self.texts[each.message_id] = before + each.text
        return self

    def start(self) -> Heard:
        return self.event("model.started", model="m")

    def pieces(self, *texts: str, kind: str = "text") -> Heard:
        for text in texts:
            self.event("model.delta", kind=kind, text=text)
        return self

    def end(self, *texts: str, status: str = "completed") -> Heard:
        self.event("model.completed", model="m")
        for text in texts:
            self.item(text, status)
        return self.event("step.completed")

    def item(self, text: str, status: str = "completed") -> Heard:
        content = [OutputText(text=text)]
        item = MessageItem(role="assistant", content=content, status=status)  # type: ignore[arg-type]
        return self.event("item.appended", item=item.model_dump(exclude_none=True))

    @property
    def text(self) -> str:
        return "".join(t for id, t in self.texts.items() if not id.endswith("-thinking"))


@pytest.fixture(params=[False, True], ids=["keeps", "replaces"])
def heard(request: pytest.FixtureRequest) -> Heard:
    return Heard(request.param)


def test_pieces_are_passed_on_as_they_come(heard: Heard) -> None:
    heard.start().pieces("he", "llo").end("hello")
    assert [said.text for said in heard.said] == ["he", "llo"]


def test_two_answers_are_two_messages(heard: Heard) -> None:
    heard.start().pieces("one").end("one")
    heard.start().pieces("two").end("two")
    assert heard.texts == {"answer-1": "one", "answer-2": "two"}


def test_an_answer_without_pieces_comes_whole(heard: Heard) -> None:
    assert heard.start().end("hello").text == "hello"


def test_what_was_missed_is_said_at_the_end(heard: Heard) -> None:
    heard.start().pieces("he")
    heard.narration.miss()
    heard.pieces("o").end("hello")
    assert heard.text == "hello"


def test_after_a_gap_the_next_answer_comes_in_pieces_again(heard: Heard) -> None:
    heard.start()
    heard.narration.miss()
    heard.pieces("x").end("one")
    heard.start().pieces("tw", "o").end("two")
    assert heard.text == "onetwo"
    assert len(heard.said) == 3


def test_an_answer_of_several_messages_is_said_once(heard: Heard) -> None:
    assert heard.start().pieces("AB").end("A", "B").text == "AB"


def test_an_answer_of_several_messages_that_was_missed(heard: Heard) -> None:
    heard.start()
    heard.narration.miss()
    assert heard.end("A", "B").text == "AB"


def test_a_second_attempt_takes_the_place_of_the_first() -> None:
    heard = Heard(replaces=True)
    heard.start().pieces("wrong").event("model.retried", discarded=True)
    heard.pieces("right").end("right")
    assert heard.text == "right"


def test_a_second_attempt_that_begins_alike_says_only_what_is_new() -> None:
    heard = Heard()
    heard.start().pieces("once upon").event("model.retried", discarded=True)
    heard.pieces("once ", "upon ", "a time").end("once upon a time")
    assert heard.text == "once upon a time"


def test_a_second_attempt_that_differs_begins_a_paragraph() -> None:
    heard = Heard()
    heard.start().pieces("wrong").event("model.retried", discarded=True)
    heard.pieces("ri", "ght").end("right")
    assert heard.text == "wrong\n\nright"


def test_a_second_attempt_that_is_shorter_is_still_said() -> None:
    heard = Heard()
    heard.start().pieces("no way").event("model.retried", discarded=True)
    heard.pieces("no").end("no")
    assert heard.text == "no way"


def test_text_that_a_layer_sent_back_is_taken_back() -> None:
    heard = Heard(replaces=True)
    heard.start().pieces("http://x").event("model.completed", model="m")
    heard.event("model.retried", discarded=True)
    heard.start().pieces("no link").end("no link")
    assert heard.text == "no link"


def test_answers_written_at_the_same_time_come_whole(heard: Heard) -> None:
    heard.start().pieces("on").start().pieces("TW", "e", "O")
    heard.event("model.completed", model="m").item("one")
    heard.event("model.completed", model="m").item("TWO")
    assert heard.text in ("oneTWO", "one\n\nTWO")


def test_other_contexts_write_for_themselves(heard: Heard) -> None:
    heard.event("model.started", "child", model="m")
    heard.event("model.delta", "child", kind="text", text="psst")
    heard.event("model.completed", "child", model="m")
    assert heard.said == []


def test_what_a_body_logs_itself_is_not_said(heard: Heard) -> None:
    heard.item("from elsewhere")
    heard.start().pieces("hi").end("hi")
    heard.item("a note")
    assert heard.text == "hi"


def test_calls_and_refusals_are_not_said(heard: Heard) -> None:
    heard.start().pieces('{"a":1}', kind="arguments").pieces("no", kind="refusal").end()
    assert heard.said == []


def test_thoughts_are_said_as_such(heard: Heard) -> None:
    heard.start().pieces("hm", kind="reasoning").pieces("yes").end("yes")
    assert [(said.type, said.text) for said in heard.said] == [("thinking", "hm"), ("text", "yes")]


def test_a_cut_answer_is_known_as_such(heard: Heard) -> None:
    heard.start().pieces("on").end("on and", status="incomplete")
    assert heard.narration.cut_off
    assert heard.text == "on and"
    heard.start().end("done")
    assert not heard.narration.cut_off


def test_messages_pass_through_from_anywhere() -> None:
    narration = Narration("root", False)
    data = {"message_id": "M1", "message": {"type": "text", "props": {}, "message_id": "M1"}}
    event = Event(3, "message.sent", "root", "child", 0.0, data)
    assert list(narration.feed(event)) == [Told("message.sent", "child", data)]
    assert nr.item_text(nr.user_message("x")) == "x"
