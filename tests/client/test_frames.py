"""The frames of both formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetic_ray.client.frames import DONE, Frame, Framer, frames_of, sse
from noetic_ray.client.message import APPENDED, REPLACED, SENT
from noetic_ray.usage import TokenUsage


def standard(**more: Any) -> Framer:
    return Framer("standard", "run-1", created=1_700_000_000.9, **more)


def delta_of(frames: list[Frame]) -> dict[str, Any]:
    (frame,) = frames
    delta: dict[str, Any] = frame["choices"][0]["delta"]
    return delta


def delta(type: str, props: dict[str, Any], message_id: str = "M1") -> dict[str, Any]:
    return delta_of(standard().sent(message_id, type, props))


# -- cui -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["cui", "cui-web", "cui-native", "cui-desktop"])
def test_cui_gets_the_message_as_it_is(accept: str) -> None:
    frames = Framer(accept).sent("M1", "text", {"content": "Hello"})
    assert frames == [{"type": "text", "props": {"content": "Hello"}, "message_id": "M1"}]


@pytest.mark.parametrize("type", ["image", "action", "event", "error", "tool", "tool_call"])
def test_cui_gets_every_type_as_it_is(type: str) -> None:
    assert Framer("cui").sent("M1", type, {"a": 1}) == [
        {"type": type, "props": {"a": 1}, "message_id": "M1"}
    ]


def test_cui_gets_extra_keys() -> None:
    extra = {"block_id": "B1", "metadata": {"sequence": 3}}
    framer = Framer("cui")
    assert framer.sent("M1", "text", {}, extra)[0].items() >= extra.items()
    assert framer.replaced("M1", "text", {}, extra)[0].items() >= extra.items()


def test_cui_gets_a_replacement_as_a_delta_of_the_whole() -> None:
    (frame,) = Framer("cui").replaced("M1", "text", {"content": "Done"})
    assert frame == {
        "type": "text",
        "props": {"content": "Done"},
        "message_id": "M1",
        "delta": True,
        "delta_action": "replace",
    }


def test_cui_gets_added_text_as_a_delta_of_the_content() -> None:
    added = {"delta": True, "delta_action": "append", "delta_path": "content"}
    framer = Framer("cui")
    wanted = {"type": "text", "props": {"content": "x"}, "message_id": "M1", **added}
    assert framer.appended("M1", "text", "x") == [wanted]
    assert framer.text_delta("M1", "x") == [wanted]
    assert framer.reasoning_delta("M1", "x") == [{**wanted, "type": "thinking"}]


def test_cui_gets_a_failure_as_a_message() -> None:
    (frame,) = Framer("cui").error("step_failed", "it broke")
    assert frame["type"] == "error"
    assert frame["props"] == {"message": "it broke", "kind": "step_failed", "code": "server_error"}


def test_cui_just_ends() -> None:
    assert Framer("cui").finish("stop", TokenUsage(1, 2, 3)) == []


# -- standard ------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["standard", "openai", "weird", "", None])
def test_standard_gets_chat_completion_chunks(accept: str | None) -> None:
    (frame,) = Framer(accept, created=12.7).sent("M1", "text", {"content": "Hello"})
    assert frame == {
        "id": "M1",
        "object": "chat.completion.chunk",
        "created": 12,
        "model": "noetic-ray",
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "Hello"},
                "finish_reason": None,
            }
        ],
    }


def test_only_the_first_text_says_who_speaks() -> None:
    framer = standard()
    assert "role" not in delta_of(framer.sent("M1", "loading", {}))
    assert delta_of(framer.sent("M2", "thinking", {"content": "a"}))["role"] == "assistant"
    assert delta_of(framer.sent("M3", "text", {"content": "b"})) == {"content": "b"}
    assert delta_of(framer.text_delta("M4", "c")) == {"content": "c"}


@pytest.mark.parametrize("content", [None, 7, {"a": 1}])
def test_content_that_is_no_text_is_empty(content: Any) -> None:
    assert delta("text", {"content": content}) == {"role": "assistant", "content": ""}


def test_thinking_is_reasoning() -> None:
    assert delta("thinking", {"content": "hm"}) == {"role": "assistant", "reasoning_content": "hm"}
    assert delta_of(standard().reasoning_delta("M1", "hm"))["reasoning_content"] == "hm"


def test_loading_is_reasoning() -> None:
    assert delta("loading", {"message": "Searching"}) == {"reasoning_content": "Searching"}
    assert delta("loading", {}) == {"reasoning_content": "Processing..."}


def test_a_tool_call_has_one_entry() -> None:
    function = {"name": "add", "arguments": '{"a":1}'}
    assert delta("tool_call", {"id": "c1", "function": function}) == {
        "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]
    }


@pytest.mark.parametrize("id", [None, 7])
def test_a_tool_call_without_an_id_has_none(id: Any) -> None:
    assert delta("tool_call", {"id": id}) == {"tool_calls": []}


def test_arguments_of_a_tool_call_are_text() -> None:
    call = delta("tool_call", {"id": "c", "function": {"name": "f", "arguments": {"a": [1]}}})
    assert call["tool_calls"][0]["function"]["arguments"] == '{"a":[1]}'


def test_tool_calls_of_one_stream_have_an_index_each() -> None:
    framer = standard()
    calls = [framer.sent(id, "tool_call", {"id": id}) for id in ("M1", "M2")]
    calls.append(framer.replaced("M1", "tool_call", {"id": "M1"}))
    assert [delta_of(each)["tool_calls"][0]["index"] for each in calls] == [0, 1, 0]


def test_an_error_is_no_chunk() -> None:
    framer = standard()
    assert framer.sent("M1", "error", {"message": "m", "code": "rate", "type": "t"}) == [
        {"error": {"message": "m", "type": "t", "code": "rate"}}
    ]
    (frame,) = framer.sent("M1", "error", {})
    assert frame["error"]["code"] == frame["error"]["type"] == "server_error"
    assert frame["error"]["message"]


def test_a_failure_is_an_error() -> None:
    assert standard().error("model_failed", "no answer", 503) == [
        {"error": {"message": "no answer", "type": "model_failed", "code": 503}}
    ]


def test_an_image_is_drawn() -> None:
    assert delta("image", {"url": "https://x/a.png", "alt": "A cat"}) == {
        "content": "![A cat](https://x/a.png)"
    }
    assert delta("image", {"url": "u"})["content"] == "![Image](u)"


def test_an_image_without_an_address_is_linked() -> None:
    assert delta("image", {})["content"] == "[image](/v1/runs/run-1/messages/M1)"


@pytest.mark.parametrize("type", ["audio", "video"])
def test_sounds_and_films_are_linked_by_their_own_address(type: str) -> None:
    content = delta(type, {"url": "https://x/a", "title": "Talk"})["content"]
    assert content.startswith("[")
    assert content.endswith(" Talk](https://x/a)")
    assert delta(type, {})["content"].endswith(f" {type}](/v1/runs/run-1/messages/M1)")


@pytest.mark.parametrize(
    ("props", "label"),
    [({"title": "T", "name": "N"}, "T"), ({"name": "N"}, "N"), ({"label": " L "}, "L"), ({}, "x")],
)
def test_other_types_are_linked_to_their_page(props: dict[str, Any], label: str) -> None:
    assert delta("x", props)["content"] == f"[{label}](/v1/runs/run-1/messages/M1)"


def test_a_page_of_ones_own_can_be_linked() -> None:
    framer = standard(view=lambda id: f"https://page/{id}")
    assert delta_of(framer.sent("M1", "tool", {}))["content"] == "[tool](https://page/M1)"


def test_an_id_in_a_link_is_quoted() -> None:
    link = delta("tool", {}, "M1@ab/c d)")["content"]
    assert link == "[tool](/v1/runs/run-1/messages/M1@ab%2Fc%20d%29)"


@pytest.mark.parametrize("label", ["a](http://evil) [b", "a\n\n# b", "`x`", "\\"])
def test_a_label_stays_in_its_link(label: str) -> None:
    content = delta("tool", {"title": label})["content"]
    inside = content.removeprefix("[").removesuffix("](/v1/runs/run-1/messages/M1)")
    plain = inside.replace("\\\\", "").replace("\\[", "").replace("\\]", "").replace("\\`", "")
    assert not set(plain) & set("[]`\n\\")


def test_an_address_stays_in_its_link() -> None:
    content = delta("image", {"url": "x) [y](javascript:z)\n"})["content"]
    assert content == "![Image](x%29%20[y]%28javascript:z%29)"


def test_actions_and_most_events_are_not_told() -> None:
    framer = standard()
    assert framer.sent("M1", "action", {"name": "open"}) == []
    assert framer.sent("M2", "event", {"event": "stream_end"}) == []
    assert framer.sent("M3", "event", {"event": "stream_start"}) == []


@pytest.mark.parametrize("props", [{"trace_id": "t"}, {"data": {"trace_id": "t"}}])
def test_the_start_of_a_traced_stream_links_to_its_trace(props: dict[str, Any]) -> None:
    told = delta("event", {"event": "stream_start", **props})
    assert told == {"content": "[trace](/v1/runs/run-1/messages/M1)"}


def test_a_replacement_is_one_more_chunk_with_the_whole_text() -> None:
    framer = standard()
    framer.sent("M1", "text", {"content": "Step 1"})
    (frame,) = framer.replaced("M1", "text", {"content": "Done"})
    assert frame["id"] == "M1"
    assert frame["choices"][0]["delta"] == {"content": "Done"}


def test_the_last_chunk_says_why_it_ends() -> None:
    (frame,) = standard().finish("length")
    assert frame["id"] == "run-1"
    assert frame["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]


@pytest.mark.parametrize(
    "usage",
    [
        TokenUsage(10, 5, 15, 4),
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    ],
)
def test_usage_has_a_chunk_of_its_own(usage: Any) -> None:
    _, frame = standard().finish(usage=usage)
    assert frame["choices"] == []
    assert frame["usage"]["total_tokens"] == 15
    assert frame["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}


def test_usage_that_was_not_reported_is_not_told() -> None:
    _, frame = standard().finish(usage=TokenUsage(1, 2, 3))
    assert "prompt_tokens_details" not in frame["usage"]


# -- events --------------------------------------------------------------------------------------


def data(id: str, type: str, content: str, **extra: Any) -> dict[str, Any]:
    message = {**extra, "type": type, "props": {"content": content}, "message_id": id}
    return {"message_id": id, "message": message}


HISTORY = [
    ("run.started", "run-1", 90.0, {}),
    (SENT, "run-1", 100.5, data("M1", "text", "a", block_id="B1")),
    (APPENDED, "run-1", 101.0, data("M1", "text", "b")),
    (REPLACED, "child", 102.0, data("M1", "text", "c")),
]


def test_frames_of_events_for_cui() -> None:
    frames = frames_of(HISTORY, "cui", "run-1")
    assert [frame.get("delta_action") for frame in frames] == [None, "append", "replace"]
    assert frames[0]["block_id"] == "B1"
    assert [frame["props"]["content"] for frame in frames] == ["a", "b", "c"]


def test_frames_of_events_for_standard_are_dated_by_the_first_message() -> None:
    frames = frames_of(HISTORY, "openai", "run-1")
    assert {frame["created"] for frame in frames} == {100}
    assert [frame["choices"][0]["delta"]["content"] for frame in frames] == ["a", "b", "c"]
    assert frames == frames_of(HISTORY, "openai", "run-1")


def test_events_are_left_as_they_were() -> None:
    before = json.dumps(HISTORY)
    frames_of(HISTORY, "cui", "run-1")
    assert json.dumps(HISTORY) == before


@pytest.mark.parametrize("accept", ["cui", "standard"])
def test_a_change_recorded_early_is_told_after_its_message(accept: str) -> None:
    framer = Framer(accept, "run-1")
    assert framer.feed(REPLACED, "child", data("M1", "text", "new")) == []
    first, second = framer.feed(SENT, "run-1", data("M1", "text", "old"))
    assert "old" in json.dumps(first)
    assert "new" in json.dumps(second)


def test_what_was_held_back_is_told_at_the_end() -> None:
    framer = Framer("cui", "run-1")
    framer.feed(APPENDED, "child", data("M1", "text", "x"))
    assert [frame["props"]["content"] for frame in framer.finish()] == ["x"]
    assert framer.rest() == []


# -- on the wire ---------------------------------------------------------------------------------


def test_a_frame_as_a_server_sent_event() -> None:
    assert sse({"a": "é\n"}) == 'data: {"a":"é\\n"}\n\n'.encode()
    assert DONE == b"data: [DONE]\n\n"


@given(st.text())
def test_a_frame_is_one_line_whatever_it_says(text: str) -> None:
    wire = sse(Framer("cui").sent("M1", "text", {"content": text})[0])
    assert wire.startswith(b"data: ")
    assert wire.endswith(b"\n\n")
    assert not set(b"\r\n") & set(wire[:-2])


PROPS = st.dictionaries(
    st.sampled_from(["content", "url", "alt", "title", "message", "id", "function", "event"]),
    st.none() | st.text(max_size=8) | st.integers() | st.dictionaries(st.text(), st.text()),
)
TYPES = st.sampled_from(
    ["text", "thinking", "loading", "tool_call", "error", "image", "audio", "action", "event", "x"]
)


# The first example imports the client, which takes longer than an example may.
@settings(deadline=None)
@given(st.lists(st.tuples(TYPES, PROPS), max_size=6))
def test_every_chunk_is_one_to_an_openai_client(sent: list[tuple[str, dict[str, Any]]]) -> None:
    types = pytest.importorskip("openai.types.chat")
    framer = standard()
    frames = [
        frame for n, (type, props) in enumerate(sent) for frame in framer.sent(f"M{n}", type, props)
    ]
    for frame in [*frames, *framer.finish(usage=TokenUsage(1, 2, 3))]:
        if "error" not in frame:
            types.ChatCompletionChunk.model_validate_json(sse(frame)[len(b"data: ") :])
        else:
            assert set(frame["error"]) == {"message", "type", "code"}
