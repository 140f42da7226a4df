from __future__ import annotations

import json
from typing import Any

import pytest

from noetic_ray.items import (
    ExtensionItem,
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
    parse_item,
    system_message,
    user_message,
)
from noetic_ray.models import OutputSpec
from noetic_ray.models.failures import AttemptFailed
from noetic_ray.models.responses import Responses
from tests.support.hearing import LOOKUP, Heard, plain, read, request
from tests.support.wires import (
    call_item,
    message_item,
    refusal_item,
    response_whole,
    responses_events,
    responses_stream,
    sse,
)

THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAA",
    "status": "completed",
}


def body(*items: Any, model: str = "fake-1", **options: Any) -> dict[str, Any]:
    asked = request(*items, **options)
    asked.model = model
    sent: dict[str, Any] = json.loads(Responses().body(asked))
    return sent


def end(items: list[Any], kind: str = "response.completed", **extra: Any) -> dict[str, Any]:
    status = kind.removeprefix("response.")
    return {"type": kind, "response": response_whole(items, status=status, **extra)}


# Requests


def test_a_request_streams_and_stores_nothing() -> None:
    assert body(instructions="be kind") == {
        "model": "fake-1",
        "instructions": "be kind",
        "input": [{"type": "message", "role": "user", "content": "hello"}],
        "store": False,
        "stream": True,
    }


def test_roles_go_out_as_they_are() -> None:
    items = [system_message("a"), developer_message("b"), user_message("c"), assistant_message("d")]
    sent = body(*items)["input"]
    assert [m["role"] for m in sent] == ["system", "developer", "user", "assistant"]
    assert sent[3] == {"type": "message", "role": "assistant", "content": "d"}


def test_images_and_files() -> None:
    parts = (
        InputText(text="see"),
        InputImage(image_url="https://x/y.png"),
        InputFile(file_url="https://x/y.pdf"),
        InputFile(file_data="data:application/pdf;base64,AA"),
    )
    assert body(MessageItem(role="user", content=parts))["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
        {"type": "input_file", "file_url": "https://x/y.pdf"},
        {
            "type": "input_file",
            "file_data": "data:application/pdf;base64,AA",
            "filename": "file",
        },
    ]


def test_calls_and_outputs() -> None:
    sent = body(
        FunctionCallItem(call_id="c1", name="lookup", arguments="{}"),
        FunctionCallOutputItem(call_id="c1", output="42"),
    )
    assert sent["input"] == [
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
    ]


def test_encrypted_reasoning_goes_back_as_it_came() -> None:
    (item,) = read(Responses(), responses_stream([THOUGHT, message_item("yes")])).items[:1]
    assert isinstance(item, ReasoningItem)
    (sent,) = body(item)["input"]
    assert sent == {k: v for k, v in THOUGHT.items() if k != "status"}


def test_reasoning_with_nothing_to_carry_stays_behind() -> None:
    summary = parse_item({**THOUGHT, "encrypted_content": None, "content": []})
    assert body(summary)["input"] == []
    sent = body(ReasoningItem(content="open thoughts"))["input"]
    assert sent == [
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "open thoughts"}],
        }
    ]


def test_thinking_models_are_asked_for_their_encrypted_thoughts() -> None:
    wanted = ["reasoning.encrypted_content"]
    assert body(model="gpt-5.1")["include"] == wanted
    assert body(model="o3")["include"] == wanted
    assert body(settings={"reasoning": {"effort": "low"}})["include"] == wanted
    both = body(model="o3", settings={"include": ["file_search_call.results"]})["include"]
    assert both == ["file_search_call.results", *wanted]
    for model in ("gpt-4o", "gpt-5-chat-latest", "llama"):
        assert "include" not in body(model=model)


def test_server_items_go_back_with_their_id() -> None:
    search = WebSearchCallItem(id="x", provider_id="ws_1", action={"type": "search", "query": "q"})
    assert body(search)["input"] == [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        }
    ]


def test_extension_items_of_others_stay_behind() -> None:
    assert body(ExtensionItem(type="acme:note", data={"a": 1}))["input"] == []


def test_the_phase_of_a_message_goes_back() -> None:
    stream = responses_stream([message_item("thinking aloud", phase="commentary")])
    (item,) = read(Responses(), stream).items
    assert body(item)["input"][0]["phase"] == "commentary"


def test_tools_tool_choice_and_limits() -> None:
    settings = {
        "tool_choice": {"type": "function", "function": {"name": "lookup"}},
        "parallel_tool_calls": False,
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "temperature": 0,
        "custom": [1],
    }
    sent = body(tools=[LOOKUP], settings=settings)
    assert sent["tools"] == [
        {
            "type": "function",
            "name": "lookup",
            "description": "Look something up.",
            "parameters": dict(LOOKUP.parameters),
            "strict": False,
        }
    ]
    assert sent["tool_choice"] == {"type": "function", "name": "lookup"}
    assert sent["parallel_tool_calls"] is False
    assert sent["max_output_tokens"] == 7
    assert "max_tokens" not in sent
    assert sent["temperature"] == 0
    assert sent["custom"] == [1]


def test_settings_of_the_other_api_are_translated() -> None:
    sent = body(settings={"reasoning_effort": "high", "verbosity": "low"})
    assert sent["reasoning"] == {"effort": "high"}
    assert sent["text"] == {"verbosity": "low"}
    assert "reasoning_effort" not in sent


def test_structured_output() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    sent = body(output=OutputSpec("answer", schema), settings={"text": {"verbosity": "low"}})
    assert sent["text"]["verbosity"] == "low"
    assert sent["text"]["format"] == {
        "type": "json_schema",
        "name": "answer",
        "strict": True,
        "schema": {**schema, "required": ["a"], "additionalProperties": False},
    }


# Answers


@pytest.mark.parametrize("named", [True, False])
def test_text_calls_and_usage(named: bool) -> None:
    heard = Heard()
    items = [message_item("Hello world"), call_item("lookup", '{"q":1}')]
    reply = read(Responses(), responses_stream(items, pieces=3, named=named), heard)
    message, call = reply.items
    assert isinstance(message, MessageItem)
    assert message.id == "msg_1"
    assert message.content[0].text == "Hello world"  # type: ignore[union-attr]
    assert isinstance(call, FunctionCallItem)
    assert (call.call_id, call.name, call.arguments) == ("call_1", "lookup", '{"q":1}')
    assert call.id == "fc_1"
    assert heard.text() == "Hello world"
    assert heard.text("arguments") == '{"q":1}'
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (100, 0)
    assert reply.model == "fake-1"


def test_items_are_taken_from_their_own_events_when_the_end_has_none() -> None:
    items = [message_item("Hello"), call_item("lookup", "{}")]
    whole = read(Responses(), responses_stream(items))
    bare = read(Responses(), responses_stream(items, end=end([])))
    assert plain(whole) == plain(bare)


def test_text_that_came_as_deltas_only_is_kept() -> None:
    deltas = [{"type": "response.output_text.delta", "delta": piece} for piece in ("a", "b")]
    (item,) = read(Responses(), sse([*deltas, end([])])).items
    assert isinstance(item, MessageItem)
    assert item.content[0].text == "ab"  # type: ignore[union-attr]


def test_unknown_fields_stay_on_items() -> None:
    item = {**call_item("lookup", "{}"), "namespace": "x", "caller": {"a": 1}}
    (kept,) = read(Responses(), responses_stream([item])).items
    assert kept.model_extra == {"namespace": "x", "caller": {"a": 1}}


def test_an_item_without_a_model_of_ours_survives_and_goes_back() -> None:
    raw = {"type": "mcp_call", "id": "mcp_1", "name": "x", "output": "y"}
    item, _ = read(Responses(), responses_stream([raw, message_item("ok")])).items
    assert isinstance(item, ExtensionItem)
    assert item.type == "openai:mcp_call"
    assert body(item)["input"] == [raw]


def test_an_item_of_openrouter_goes_back_as_it_came() -> None:
    raw = {"type": "openrouter:web_search", "id": "ow_1", "status": "completed", "action": "q"}
    item, _ = read(Responses(), responses_stream([raw, message_item("ok")])).items
    assert body(item)["input"] == [raw]


def test_odd_statuses_and_null_contents_do_no_harm() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "searching"}
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": None,
        "status": None,
    }
    items = [search, thought, {**message_item("ok"), "status": "in_progress"}]
    reply = read(Responses(), responses_stream(items, end=end(items)))
    assert [item.type for item in reply.items] == ["web_search_call", "reasoning", "message"]
    assert {item.status for item in reply.items} == {"completed"}


def test_repeated_and_empty_call_ids_become_unique() -> None:
    items = [call_item("a", "{}", ""), call_item("b", "{}", "c"), call_item("c", "{}", "c")]
    calls = list(read(Responses(), responses_stream(items)).items)
    ids = [c.call_id for c in calls if isinstance(c, FunctionCallItem)]
    assert len(set(ids)) == 3
    assert ids[1] == "c"
    assert [getattr(c, "provider_call_id", None) for c in calls] == ["", None, "c"]


def test_arguments_that_are_no_text_become_text() -> None:
    null = {**call_item("a", "", "c1"), "arguments": None}
    whole = {**call_item("a", "", "c2"), "arguments": {"q": 1}}
    one, two = read(Responses(), sse([end([null, whole])])).items
    assert isinstance(one, FunctionCallItem)
    assert isinstance(two, FunctionCallItem)
    assert (one.arguments, two.arguments) == ("", '{"q":1}')


def test_a_streamed_refusal() -> None:
    heard = Heard()
    reply = read(Responses(), responses_stream([refusal_item("I cannot.")], pieces=4), heard)
    (item,) = reply.items
    assert isinstance(item, MessageItem)
    assert item.content == (Refusal(refusal="I cannot."),)
    assert heard.text("refusal") == "I cannot."
    assert heard.text() == ""


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        ([], ["refusal"]),
        ([message_item("")], ["refusal"]),
        ([message_item("How to")], ["output_text", "refusal"]),
        ([message_item("How to"), call_item("x", "{")], ["output_text", "refusal"]),
        ([refusal_item("no")], ["refusal"]),
    ],
)
def test_a_content_filter_is_a_refusal(items: list[Any], parts: list[str]) -> None:
    last = end(items, "response.incomplete", incomplete_details={"reason": "content_filter"})
    (item,) = read(Responses(), responses_stream(items, end=last)).items
    assert isinstance(item, MessageItem)
    assert [part.type for part in item.content] == parts


@pytest.mark.parametrize("items", [[message_item("Once")], []])
def test_truncation_is_incomplete_with_a_warning(items: list[Any]) -> None:
    last = end(items, "response.incomplete", incomplete_details={"reason": "max_output_tokens"})
    reply = read(Responses(), responses_stream(items, end=last))
    assert [item.status for item in reply.items] == ["incomplete"]
    assert "max_output_tokens" in reply.warnings[0]


def test_reasoning_deltas_are_heard() -> None:
    heard = Heard()
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "delta": "hm "},
        {"type": "response.reasoning_text.delta", "delta": "so"},
    ]
    read(Responses(), sse([*deltas, *responses_events([THOUGHT, message_item("x")])]), heard)
    assert heard.text("reasoning") == "hm so"


@pytest.mark.parametrize("items", [[], [THOUGHT], [message_item("")]])
def test_an_empty_answer_is_a_failed_attempt(items: list[Any]) -> None:
    with pytest.raises(AttemptFailed, match="nothing") as caught:
        read(Responses(), responses_stream(items))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 7, "output_tokens": 3}, (7, 3, None)),
        ({"input_tokens": 7, "output_tokens": 3, "input_tokens_details": None}, (7, 3, None)),
        (
            {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 0}},
            (7, 3, 0),
        ),
        (None, None),
    ],
)
def test_usage_as_reported(usage: Any, expected: Any) -> None:
    reply = read(Responses(), sse([end([message_item("x")], usage=usage)]))
    got = reply.usage and (
        reply.usage.input_tokens,
        reply.usage.output_tokens,
        reply.usage.cached_tokens,
    )
    assert got == expected


@pytest.mark.parametrize(
    ("code", "retryable", "status"),
    [
        ("rate_limit_exceeded", True, 429),
        ("server_error", True, 200),
        ("invalid_prompt", False, 200),
        ("context_length_exceeded", False, 200),
        ("image_too_large", False, 200),
    ],
)
def test_failures_inside_a_stream(code: str, retryable: bool, status: int) -> None:
    error = {"code": code, "message": "it failed"}
    failed = end([], "response.failed", error=error)
    for last in (failed, {"type": "error", **error}, {"type": "error", "error": error}):
        with pytest.raises(AttemptFailed, match="it failed") as caught:
            read(Responses(), responses_stream([message_item("x")], end=last))
        assert (caught.value.retryable, caught.value.status) == (retryable, status)


def test_an_end_without_the_terminal_event_is_a_broken_stream() -> None:
    events = responses_events([message_item("x")])[:-1]
    with pytest.raises(AttemptFailed, match="broke"):
        read(Responses(), sse(events, named=True))
