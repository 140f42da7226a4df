"""Messages of a chat completion become items and an input."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

import noetic_ray as nr
from noetic_ray.serve.conversation import take_apart
from noetic_ray.serve.problems import Problem
from noetic_ray.serve.shapes import ChatMessage

MESSAGES: TypeAdapter[list[ChatMessage]] = TypeAdapter(list[ChatMessage])
IMAGE = {"type": "image_url", "image_url": {"url": "http://x.test/cat.png", "detail": "low"}}


def apart(*messages: dict[str, Any]) -> tuple[str | None, list[Any]]:
    return take_apart(MESSAGES.validate_python(list(messages)))


def test_the_last_text_of_the_user_is_the_input() -> None:
    text, items = apart({"role": "user", "content": "hi"})
    assert (text, items) == ("hi", [])


def test_roles_before_it_become_messages() -> None:
    roles = ["system", "developer", "user", "assistant"]
    text, items = apart(
        *({"role": role, "content": role.upper()} for role in roles),
        {"role": "user", "content": "hi"},
    )
    assert text == "hi"
    assert [(item.role, nr.item_text(item)) for item in items] == [(r, r.upper()) for r in roles]
    assert items[3].content[0].type == "output_text"


def test_tool_calls_and_their_outputs() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    text, items = apart(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "user", "content": "and?"},
    )
    assert text == "and?"
    assert [item.type for item in items] == ["function_call", "function_call_output"]
    assert (items[0].call_id, items[0].name, items[0].arguments) == ("c1", "add", '{"a":1}')
    assert (items[1].call_id, items[1].output) == ("c1", "3")


def test_texts_as_parts_are_still_an_input() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert apart({"role": "user", "content": parts}) == ("one\ntwo", [])


def test_a_picture_stays_in_the_log_and_there_is_no_input() -> None:
    text, items = apart({"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]})
    assert text is None
    assert [part.type for part in items[0].content] == ["input_text", "input_image"]
    assert items[0].content[1].detail == "low"


@pytest.mark.parametrize("role", ["assistant", "system"])
def test_a_last_message_of_somebody_else_stays_in_the_log(role: str) -> None:
    text, items = apart({"role": role, "content": "go on"})
    assert text is None
    assert [item.role for item in items] == [role]


def test_a_refusal_is_kept() -> None:
    _, items = apart(
        {"role": "assistant", "content": None, "refusal": "no"}, {"role": "user", "content": "?"}
    )
    assert items[0].content[0].refusal == "no"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "c", "content": [IMAGE]},
        {"role": "assistant", "content": [IMAGE]},
        {"role": "system", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
)
def test_parts_in_the_wrong_place_are_named(message: dict[str, Any]) -> None:
    with pytest.raises(Problem, match=r"messages\.0") as caught:
        apart(message, {"role": "user", "content": "x"})
    assert caught.value.status == 422
