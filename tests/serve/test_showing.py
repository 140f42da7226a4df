"""What is still to be shown of an output, and answers in one piece."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_ray.serve.narration import Said, Told
from noetic_ray.serve.showing import Shown, gathered


def shown(*said: Any) -> Shown:
    view = Shown()
    for each in said:
        view.take(each)
    return view


def sent(id: str, type: str = "text", **props: Any) -> Told:
    message = {"type": type, "props": props, "message_id": id}
    return Told("message.sent", "root", {"message_id": id, "message": message})


class Reply:
    text = "hello"


@pytest.mark.parametrize(
    ("said", "output", "missing"),
    [
        ([], "hello", "hello"),
        ([], Reply(), "hello"),
        ([], {"a": 1}, '{"a":1}'),
        ([], None, None),
        ([], "", None),
        ([Said("a", "text", "hel"), Said("a", "text", "lo")], "hello", None),
        ([Said("a", "text", "hello ")], "hello", None),
        ([Said("a", "text", "hel"), Said("b", "text", "lo")], "hello", None),
        ([sent("M1", content="hello"), sent("M2", content="bye")], "hello", None),
        ([sent("M1", content="hello")], "bye", "bye"),
        ([sent("M1", content="hello")], {"a": 1}, None),
        ([sent("M1", "image", url="http://x/y.png")], {"a": 1}, None),
        ([sent("M1", "loading", message="wait")], {"a": 1}, '{"a":1}'),
        ([sent("M1", "thinking", content="hello")], "hello", "hello"),
        ([sent("M1", content="")], {"a": 1}, '{"a":1}'),
    ],
)
def test_an_output_is_shown_when_nobody_has(said: Any, output: Any, missing: Any) -> None:
    assert shown(*said).missing(output) == missing


def test_pieces_and_messages_are_gathered_in_order() -> None:
    view = shown(
        sent("M1", content="one "),
        Said("a", "thinking", "hm"),
        Said("b", "text", "tw"),
        sent("M2", content=" three"),
        Said("b", "text", "o"),
    )
    message, error = gathered(view.messages(), str)
    assert error is None
    assert message["content"] == "one two three"
    assert message["reasoning_content"] == "hm"


def test_what_was_replaced_is_gone() -> None:
    view = shown(Said("a", "text", "wrong"), Said("a", "text", "right", whole=True))
    assert gathered(view.messages(), str)[0]["content"] == "right"


def test_an_error_that_was_shown_is_given_apart() -> None:
    view = shown(sent("M1", "error", message="out of stock", code="gone"))
    _, error = gathered(view.messages(), str)
    assert error is not None
    assert (error["message"], error["code"]) == ("out of stock", "gone")
