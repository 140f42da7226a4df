"""Requests as Chat Completions bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputFile,
    InputImage,
    InputText,
    MessageItem,
    ReasoningItem,
    Refusal,
    WebSearchCallItem,
    assistant_message,
    developer_message,
    system_message,
    user_message,
)
from noetic_ray.models import OutputSpec
from noetic_ray.models.chat import Chat
from tests.support.hearing import LOOKUP, request


def body(*items: Any, official: bool = False, **options: Any) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(Chat(official).body(request(*items, **options)))
    return sent


def call(name: str = "lookup", arguments: str = "{}", call_id: str = "c1") -> FunctionCallItem:
    return FunctionCallItem(call_id=call_id, name=name, arguments=arguments)


def output(text: str, call_id: str = "c1") -> FunctionCallOutputItem:
    return FunctionCallOutputItem(call_id=call_id, output=text)


def test_a_request_streams_and_asks_for_usage() -> None:
    sent = body(instructions="be kind")
    assert sent == {
        "model": "fake-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hello"},
        ],
    }


def test_roles_map_to_messages() -> None:
    items = [system_message("a"), developer_message("b"), user_message("c"), assistant_message("d")]
    roles = [m["role"] for m in body(*items)["messages"]]
    assert roles == ["system", "system", "user", "assistant"]
    assert body(*items, official=True)["messages"][1]["role"] == "developer"


def test_a_round_of_calls_is_one_message_followed_by_its_outputs() -> None:
    sent = body(
        user_message("go"),
        assistant_message("let me see"),
        call(arguments='{"q": 1}'),
        call(call_id="c2"),
        output("one"),
        output("two", "c2"),
        assistant_message("done"),
    )
    _, calling, first, second, last = sent["messages"]
    assert calling["content"] == "let me see"
    assert [c["id"] for c in calling["tool_calls"]] == ["c1", "c2"]
    assert calling["tool_calls"][0]["function"] == {"name": "lookup", "arguments": '{"q": 1}'}
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "one"}
    assert second["tool_call_id"] == "c2"
    assert last == {"role": "assistant", "content": "done"}


def test_outputs_follow_their_calls_even_when_something_was_logged_between() -> None:
    sent = body(call(), developer_message("mind the gap"), output("one"))
    assert [m["role"] for m in sent["messages"]] == ["assistant", "tool", "system"]


def test_text_after_a_call_joins_the_message_of_the_call() -> None:
    sent = body(call(), assistant_message("looking"), output("one"))
    assert [m["role"] for m in sent["messages"]] == ["assistant", "tool"]
    assert sent["messages"][0]["content"] == "looking"


def test_two_rounds_of_calls_stay_apart() -> None:
    sent = body(call(), output("one"), call(call_id="c2"), output("two", "c2"))
    assert [m["role"] for m in sent["messages"]] == ["assistant", "tool"] * 2


def test_reasoning_and_server_items_are_left_out() -> None:
    sent = body(ReasoningItem(content="hm"), WebSearchCallItem(), user_message("x"))
    assert sent["messages"] == [{"role": "user", "content": "x"}]


def test_images_and_files() -> None:
    parts = (
        InputText(text="see"),
        InputImage(image_url="data:image/png;base64,AA", detail="low"),
        InputFile(file_data="data:application/pdf;base64,AA"),
        InputFile(file_id="f1", filename="a.pdf"),
    )
    content = body(MessageItem(role="user", content=parts))["messages"][0]["content"]
    assert content == [
        {"type": "text", "text": "see"},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,AA", "detail": "low"},
        },
        {
            "type": "file",
            "file": {"file_data": "data:application/pdf;base64,AA", "filename": "file"},
        },
        {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}},
    ]


def test_a_past_refusal_is_sent_as_the_assistants_words() -> None:
    refused = MessageItem(role="assistant", content=(Refusal(refusal="no"),))
    assert body(refused, user_message("x"))["messages"][0] == {"role": "assistant", "content": "no"}


@pytest.mark.parametrize("arguments", ["{", "null", "[]", '"x"', '{"a":1}{"b":2}', "x" * 10_000])
def test_past_malformed_arguments_reach_the_server_as_an_object(arguments: str) -> None:
    function = body(call(arguments=arguments))["messages"][0]["tool_calls"][0]["function"]
    assert json.loads(function["arguments"]) == {"malformed_arguments": arguments}


def test_past_empty_arguments_are_an_empty_object() -> None:
    function = body(call(arguments=""))["messages"][0]["tool_calls"][0]["function"]
    assert function["arguments"] == "{}"


def test_tools_and_tool_choice() -> None:
    settings = {"tool_choice": "lookup", "parallel_tool_calls": False}
    sent = body(tools=[LOOKUP], settings=settings)
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "lookup",
                "description": "Look something up.",
                "parameters": dict(LOOKUP.parameters),
            },
        }
    ]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "lookup"}}
    assert sent["parallel_tool_calls"] is False


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_tool_choice_modes(choice: str) -> None:
    assert body(tools=[LOOKUP], settings={"tool_choice": choice})["tool_choice"] == choice


def test_a_tool_choice_in_the_other_apis_form() -> None:
    settings = {"tool_choice": {"type": "function", "name": "lookup"}}
    sent = body(tools=[LOOKUP], settings=settings)
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "lookup"}}


def test_tool_settings_are_not_sent_without_tools() -> None:
    sent = body(settings={"tool_choice": "auto", "parallel_tool_calls": True})
    assert "tool_choice" not in sent
    assert "parallel_tool_calls" not in sent


def test_tools_of_the_provider_stand_beside_ours() -> None:
    extra = {"type": "web_search"}
    assert body(tools=[LOOKUP], settings={"tools": [extra]})["tools"][1] == extra


@pytest.mark.parametrize(
    ("official", "settings", "sent"),
    [
        (False, {"max_tokens": 5}, {"max_tokens": 5}),
        (True, {"max_tokens": 5}, {"max_completion_tokens": 5}),
        (False, {"max_completion_tokens": 7, "max_tokens": 5}, {"max_completion_tokens": 7}),
        (False, {"max_output_tokens": 9}, {"max_tokens": 9}),
        (False, {"max_tokens": None}, {}),
    ],
)
def test_the_output_limit_has_the_name_the_server_knows(
    official: bool, settings: dict[str, Any], sent: dict[str, Any]
) -> None:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    got = body(official=official, settings=settings)
    assert {k: v for k, v in got.items() if k in names} == sent


def test_unknown_settings_pass_through() -> None:
    settings = {"temperature": 0.5, "seed": 3, "my_extension": {"a": [1]}, "stop": None}
    sent = body(settings=settings)
    assert sent["temperature"] == 0.5
    assert sent["seed"] == 3
    assert sent["my_extension"] == {"a": [1]}
    assert "stop" not in sent


def test_stream_options_can_be_extended_or_left_out() -> None:
    sent = body(settings={"stream_options": {"continuous_usage_stats": True}})
    assert sent["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert "stream_options" not in body(settings={"stream_options": None})


def test_structured_output_is_strict_when_the_schema_allows_it() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    sent = body(output=OutputSpec("answer", schema))["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["name"] == "answer"
    assert sent["json_schema"]["strict"] is True
    assert sent["json_schema"]["schema"] == {
        **schema,
        "required": ["a"],
        "additionalProperties": False,
    }
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    loose = body(output=OutputSpec("answer", free))["response_format"]["json_schema"]
    assert loose == {"name": "answer", "schema": free, "strict": False}


def test_hazardous_values_become_valid_json() -> None:
    sent = body(
        user_message("half \ud83d of a pair"),
        output("\udc00"),
        settings={"temperature": float("nan"), "big": 10**5000, "raw": b"\xff"},
    )
    assert sent["messages"][0]["content"] == "half \ufffd of a pair"
    assert sent["temperature"] == "NaN"
    assert sent["big"].startswith("1000")
