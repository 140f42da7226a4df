"""Streamed Chat Completions answers as items."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    MessageItem,
    ReasoningItem,
    Refusal,
)
from noetic_ray.models.chat import Chat
from noetic_ray.models.failures import AttemptFailed
from tests.support import wires
from tests.support.hearing import Heard, plain, read, request
from tests.support.wires import call_delta, chat_chunk, chat_stream, chat_text, sse

ARGUMENTS = '{"q":"日本 \\"x\\"","n":[1,2]}'


def call(name: str = "lookup", arguments: str = "{}", call_id: str = "c1") -> FunctionCallItem:
    return FunctionCallItem(call_id=call_id, name=name, arguments=arguments)


def output(text: str, call_id: str = "c1") -> FunctionCallOutputItem:
    return FunctionCallOutputItem(call_id=call_id, output=text)


def test_text_usage_and_model() -> None:
    heard = Heard()
    reply = read(Chat(), chat_text("Hel", "lo"), heard)
    assert plain(reply) == [
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": ({"type": "output_text", "text": "Hello"},),
        }
    ]
    assert heard.deltas == [("text", "Hel"), ("text", "lo")]
    assert reply.model == "fake-1"
    assert reply.warnings == []
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (100, 20)
    assert reply.usage.cached_tokens == 0


FRAGMENTS: dict[str, list[wires.Json]] = {
    "each byte": [
        call_delta(0, "c1", "lookup", ""),
        *(call_delta(0, arguments=char) for char in ARGUMENTS),
    ],
    "whole": [call_delta(0, "c1", "lookup", ARGUMENTS)],
    "name then id": [
        call_delta(0, None, "lookup"),
        call_delta(0, "c1"),
        call_delta(0, arguments=ARGUMENTS),
    ],
    "id then name": [call_delta(0, "c1"), call_delta(0, None, "lookup", ARGUMENTS)],
    "null arguments first": [
        {
            "tool_calls": [
                {"index": 0, "id": "c1", "function": {"name": "lookup", "arguments": None}}
            ]
        },
        call_delta(0, arguments=ARGUMENTS),
    ],
    "id and name emptied later": [
        call_delta(0, "c1", "lookup", ARGUMENTS[:4]),
        {
            "tool_calls": [
                {"index": 0, "id": "", "function": {"name": "", "arguments": ARGUMENTS[4:]}}
            ]
        },
        {"tool_calls": [{"index": 0, "id": None, "function": {"name": None, "arguments": None}}]},
    ],
    "id and name repeated": [
        call_delta(0, "c1", "lookup", ARGUMENTS[:4]),
        call_delta(0, "c1", "lookup", ARGUMENTS[4:]),
    ],
    "another id in each fragment": [
        call_delta(0, "c1", "lookup", ARGUMENTS[:4]),
        call_delta(0, "other", None, ARGUMENTS[4:9]),
        call_delta(0, "third", "lookup", ARGUMENTS[9:]),
    ],
    "no index": [
        call_delta(None, "c1", "lookup", ARGUMENTS[:4]),
        call_delta(None, arguments=ARGUMENTS[4:]),
    ],
    "name in pieces": [
        call_delta(0, "c1", "look"),
        call_delta(0, None, "up"),
        call_delta(0, arguments=ARGUMENTS),
    ],
    "arguments as an object": [call_delta(0, "c1", "lookup", json.loads(ARGUMENTS))],
    "null function": [
        {"tool_calls": [{"index": 0, "id": "c1", "function": None}]},
        call_delta(0, None, "lookup", ARGUMENTS),
    ],
}


@pytest.mark.parametrize("shape", FRAGMENTS)
def test_call_fragments_of_every_shape(shape: str) -> None:
    heard = Heard()
    reply = read(Chat(), chat_stream(*FRAGMENTS[shape], finish="tool_calls"), heard)
    (item,) = reply.items
    assert isinstance(item, FunctionCallItem)
    assert (item.call_id, item.name) == ("c1", "lookup")
    assert json.loads(item.arguments) == json.loads(ARGUMENTS)
    assert item.provider_call_id is None
    assert json.loads(heard.text("arguments")) == json.loads(ARGUMENTS)


def test_the_last_fragment_may_come_with_the_finish_reason() -> None:
    last = {"index": 0, "delta": call_delta(0, arguments=ARGUMENTS), "finish_reason": "tool_calls"}
    stream = sse(
        [chat_chunk(call_delta(0, "c1", "lookup")), {**chat_chunk(), "choices": [last]}], done=True
    )
    (item,) = read(Chat(), stream).items
    assert isinstance(item, FunctionCallItem)
    assert item.arguments == ARGUMENTS


@pytest.mark.parametrize("index", [0, None])
def test_calls_told_apart_by_id_alone(index: int | None) -> None:
    stream = chat_stream(
        call_delta(index, "a", "one", '{"n":1}'),
        call_delta(index, "b", "two", "{}"),
        call_delta(index, "c", "two", '{"n":'),
        call_delta(index, None, None, "3}"),
    )
    calls = [i for i in read(Chat(), stream).items if isinstance(i, FunctionCallItem)]
    assert [(c.call_id, c.name, c.arguments) for c in calls] == [
        ("a", "one", '{"n":1}'),
        ("b", "two", "{}"),
        ("c", "two", '{"n":3}'),
    ]


def test_interleaved_calls_keep_their_order() -> None:
    stream = chat_stream(
        call_delta(0, "a", "one"),
        call_delta(1, "b", "two"),
        call_delta(0, arguments='{"n":'),
        call_delta(1, arguments="{}"),
        call_delta(0, arguments="1}"),
    )
    calls = [i for i in read(Chat(), stream).items if isinstance(i, FunctionCallItem)]
    assert [(c.name, c.arguments) for c in calls] == [("one", '{"n":1}'), ("two", "{}")]


def test_the_old_form_of_a_call() -> None:
    stream = chat_stream(
        {"function_call": {"name": "lookup", "arguments": '{"q"'}},
        {"function_call": {"arguments": ":1}"}},
        finish="function_call",
    )
    (item,) = read(Chat(), stream).items
    assert isinstance(item, FunctionCallItem)
    assert (item.name, item.arguments) == ("lookup", '{"q":1}')


def test_missing_empty_and_repeated_ids_become_unique() -> None:
    stream = chat_stream(
        call_delta(0, None, "a", "{}"),
        call_delta(1, "", "b", "{}"),
        call_delta(2, "call_0", "c", "{}"),
        call_delta(3, "call_0", "d", "{}"),
    )
    items = [i for i in read(Chat(), stream).items if isinstance(i, FunctionCallItem)]
    assert len({item.call_id for item in items}) == 4
    assert all(item.call_id for item in items)
    assert [item.provider_call_id for item in items] == [None, "", None, "call_0"]
    assert items[2].call_id == "call_0"


def test_an_id_used_earlier_in_the_conversation_is_replaced() -> None:
    asked = request(call(call_id="call_0"), output("x", "call_0"))
    (item,) = read(Chat(), wires.chat_call("lookup", "{}", "call_0"), asked=asked).items
    assert isinstance(item, FunctionCallItem)
    assert item.call_id != "call_0"
    assert item.provider_call_id == "call_0"


@pytest.mark.parametrize("arguments", ["", "{", "null", "[]", '{"a":1}{"b":2}', "x" * 1_000_000])
def test_malformed_arguments_come_back_as_they_are(arguments: str) -> None:
    (item,) = read(Chat(), wires.chat_call("lookup", arguments)).items
    assert isinstance(item, FunctionCallItem)
    assert item.arguments == arguments


REFUSALS = {
    "null content": chat_stream({"content": None, "refusal": "I can"}, {"refusal": "not."}),
    "empty content": chat_stream({"content": "", "refusal": "I cannot."}),
    "refusal part": chat_stream({"content": [{"type": "refusal", "refusal": "I cannot."}]}),
    "in the message": sse([wires.chat_whole({"content": None, "refusal": "I cannot."})], done=True),
}


@pytest.mark.parametrize("shape", REFUSALS)
def test_a_refusal_is_a_message_with_a_refusal_part(shape: str) -> None:
    heard = Heard()
    reply = read(Chat(), REFUSALS[shape], heard)
    (item,) = reply.items
    assert isinstance(item, MessageItem)
    assert item.content == (Refusal(refusal="I cannot."),)
    assert item.status == "completed"
    assert heard.text("refusal") == "I cannot."
    assert heard.text() == ""


def test_a_content_filter_is_a_refusal_even_without_a_word() -> None:
    (item,) = read(Chat(), chat_stream({"content": ""}, finish="content_filter")).items
    assert isinstance(item, MessageItem)
    assert [part.type for part in item.content] == ["refusal"]


def test_a_content_filter_keeps_the_text_and_drops_the_calls() -> None:
    deltas = [{"content": "How to"}, call_delta(0, "c1", "lookup", "{")]
    (item,) = read(Chat(), chat_stream(*deltas, finish="content_filter")).items
    assert isinstance(item, MessageItem)
    assert [part.type for part in item.content] == ["output_text", "refusal"]


def test_truncated_text_is_incomplete_with_a_warning() -> None:
    reply = read(Chat(), chat_text("Once upon", finish="length"))
    assert [item.status for item in reply.items] == ["incomplete"]
    assert len(reply.warnings) == 1
    assert "length" in reply.warnings[0]


def test_only_the_last_item_of_a_truncated_answer_is_incomplete() -> None:
    deltas = [{"content": "a"}, call_delta(0, "c1", "x", "{}"), call_delta(1, "c2", "x", '{"a')]
    reply = read(Chat(), chat_stream(*deltas, finish="length"))
    assert [item.status for item in reply.items] == ["completed", "completed", "incomplete"]


def test_a_truncation_before_the_first_word_is_an_incomplete_message() -> None:
    reply = read(Chat(), chat_stream({"content": ""}, finish="length"))
    (item,) = reply.items
    assert isinstance(item, MessageItem)
    assert item.status == "incomplete"
    assert reply.warnings


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_deltas_become_an_item_before_the_message(key: str) -> None:
    heard = Heard()
    reply = read(Chat(), chat_stream({key: "let "}, {key: "me"}, {"content": "yes"}), heard)
    thought, message = reply.items
    assert isinstance(thought, ReasoningItem)
    assert [getattr(part, "text", None) for part in thought.content] == ["let me"]
    assert message.type == "message"
    assert heard.text("reasoning") == "let me"


@pytest.mark.parametrize(
    "stream",
    [
        chat_stream(),
        chat_stream({"content": ""}),
        chat_stream({"content": None, "tool_calls": None}),
        chat_stream({"reasoning": "only thoughts"}),
        b"data: [DONE]\n\n",
    ],
)
def test_an_empty_answer_is_a_failed_attempt(stream: bytes) -> None:
    with pytest.raises(AttemptFailed, match="nothing") as caught:
        read(Chat(), stream)
    if stream.startswith(b"data: {"):
        assert caught.value.retryable


USAGES: list[tuple[Any, Any]] = [
    ({"prompt_tokens": 7, "completion_tokens": 3}, (7, 3, None, None)),
    (
        {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None},
        (7, 3, None, None),
    ),
    (
        {
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": None},
        },
        (7, 3, None, None),
    ),
    (
        {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}},
        (7, 3, 0, None),
    ),
    (
        {
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "new_field": {"x": 1},
            "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2, "other": 1},
        },
        (7, 3, 5, 2),
    ),
    ({"prompt_tokens": 7, "completion_tokens": 3, "prompt_cache_hit_tokens": 4}, (7, 3, 4, None)),
    ({"prompt_tokens": 7, "cache_creation_input_tokens": 0}, (7, 0, None, 0)),
    ({"prompt_tokens": None, "completion_tokens": None}, None),
    ({}, None),
    (None, None),
]


@pytest.mark.parametrize(("usage", "expected"), USAGES)
def test_usage_as_reported(usage: Any, expected: Any) -> None:
    chunk = {**chat_chunk(), "choices": [], "usage": usage}
    head = {**chat_chunk({"content": "x"}), "usage": None}
    reply = read(Chat(), sse([head, chat_chunk({}, "stop"), chunk], done=True))
    got = reply.usage and (
        reply.usage.input_tokens,
        reply.usage.output_tokens,
        reply.usage.cached_tokens,
        reply.usage.cache_write_tokens,
    )
    assert got == expected


def test_no_usage_chunk_means_unknown_usage() -> None:
    reply = read(Chat(), sse([chat_chunk({"content": "x"}, "stop")], done=True))
    assert reply.usage is None


def test_an_end_without_the_done_mark_is_fine_after_a_finish_reason() -> None:
    assert read(Chat(), sse([chat_chunk({"content": "x"}), chat_chunk({}, "stop")])).items


def test_an_end_without_either_is_a_broken_stream() -> None:
    with pytest.raises(AttemptFailed, match="broke"):
        read(Chat(), sse([chat_chunk({"content": "x"})]))


def test_unknown_fields_and_other_choices_are_ignored() -> None:
    chunk = chat_chunk({"content": "x", "audio": {"a": 1}, "annotations": []}, logprobs=None)
    other = {**chat_chunk(), "choices": [{"index": 1, "delta": {"content": "y"}}]}
    empty = {**chat_chunk(), "choices": None, "prompt_filter_results": []}
    reply = read(Chat(), sse([empty, chunk, other, chat_chunk({}, "stop")], done=True))
    assert reply.items[0].content[0].text == "x"  # type: ignore[union-attr]


def test_a_surrogate_pair_cut_in_two_deltas_is_whole_again() -> None:
    heard = Heard()
    halves = [
        'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{"content":"\\ude00b"},"finish_reason":"stop"}]}\n\n',
    ]
    reply = read(Chat(), sse(halves, done=True), heard)
    assert reply.items[0].content[0].text == "a😀b"  # type: ignore[union-attr]
    assert heard.deltas == [("text", "a"), ("text", "😀b")]


def test_lone_surrogates_and_raw_control_characters_do_not_crash() -> None:
    raw = 'data: {"choices":[{"index":0,"delta":{"content":"\\udc00\x0bx\\ud83d"}}]}\n\n'
    reply = read(Chat(), sse([raw, chat_chunk({}, "stop")], done=True))
    assert reply.items[0].content[0].text == "\ufffd\x0bx\ufffd"  # type: ignore[union-attr]


ERRORS: list[tuple[Any, bool, int]] = [
    (
        {"message": "maximum context length is 10", "type": "BadRequestError", "code": 400},
        False,
        400,
    ),
    ({"message": "x", "code": "context_length_exceeded"}, False, 200),
    ({"message": "x", "type": "invalid_request_error"}, False, 200),
    ({"message": "the context window is too small"}, False, 200),
    ({"message": "x", "code": "insufficient_quota"}, False, 200),
    ({"message": "x", "type": "rate_limit_error"}, True, 429),
    ({"message": "x", "code": 429}, True, 429),
    ({"message": "x", "code": "502"}, True, 502),
    ({"message": "x", "type": "server_error"}, True, 200),
    ({"message": "x", "type": "overloaded_error"}, True, 200),
    ({"message": "something went wrong"}, True, 200),
    ("plain words", True, 200),
]


@pytest.mark.parametrize(("error", "retryable", "status"), ERRORS)
def test_errors_inside_a_stream_are_told_apart(error: Any, retryable: bool, status: int) -> None:
    stream = sse([chat_chunk({"content": "x"}), {"error": error}])
    with pytest.raises(AttemptFailed) as caught:
        read(Chat(), stream)
    assert (caught.value.retryable, caught.value.status) == (retryable, status)
    assert caught.value.rate_limited is (status == 429)


def test_errors_in_other_places_of_a_stream() -> None:
    flat = {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}
    named = 'event: error\ndata: {"message": "no", "code": 401}\n\n'
    words = "event: error\ndata: upstream is gone\n\n"
    for each, status in ((flat, 400), (named, 401), (words, 200)):
        with pytest.raises(AttemptFailed) as caught:
            read(Chat(), sse([each]))
        assert caught.value.status == status


def test_a_finish_reason_of_error_is_a_failure() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502}}
    with pytest.raises(AttemptFailed) as caught:
        read(Chat(), sse([{**chat_chunk(), "choices": [choice]}]))
    assert caught.value.status == 502
