"""What an agent gets of a server's answer."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from noetic_ray.mcp.results import McpRecord, Page, ToolResult, record, tool_result


def _text(*said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each} for each in said]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({"content": _text('{"a": 1}')}, {"a": 1}),
        ({"content": _text("7")}, 7),
        ({"content": _text("plain")}, "plain"),
        ({"content": _text("null")}, None),
        ({"content": _text("")}, None),
        ({"content": _text(" \n")}, None),
        ({"content": []}, None),
        ({}, None),
        (None, None),
        ({"content": _text('{"n": 1}', "x")}, [{"n": 1}, "x"]),
        (
            {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png", "_meta": {}}]},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a://b", "text": "t"}}]},
            {"uri": "a://b", "text": "t"},
        ),
        ({"content": [{"type": "hologram", "w": 3}]}, {"type": "hologram", "w": 3}),
        ({"content": _text("said"), "structuredContent": {"a": 2}}, {"a": 2}),
        ({"content": [], "structuredContent": [1]}, [1]),
    ],
)
def test_value_is_the_convenient_form(answer: Any, value: Any) -> None:
    assert tool_result(answer).value == value


@pytest.mark.parametrize(
    ("content", "bare"),
    [
        (_text("7"), 7),
        (_text("word"), "word"),
        (_text("7"), "7"),
        (_text("1", "2"), [1, 2]),
        (_text("[1, 2]"), [1, 2]),
        (_text("a", "b"), ["a", "b"]),
        ([], []),
        ([], None),
        (_text('{"x": 1}'), {"x": 1}),
    ],
)
def test_an_answer_that_the_sdk_boxed_is_unboxed(content: Any, bare: Any) -> None:
    result = tool_result({"content": content, "structuredContent": {"result": bare}})
    assert result.value == bare
    assert result.structured == {"result": bare}


@pytest.mark.parametrize("content", [_text('{"result": 5}'), _text("done"), []])
def test_a_result_key_of_the_tool_itself_stays(content: Any) -> None:
    assert tool_result({"content": content, "structuredContent": {"result": 5}}).value == {
        "result": 5
    }


def test_the_caller_may_know_better() -> None:
    raw = {"content": [], "structuredContent": {"result": 5}}
    assert tool_result(raw, wrapped=True).value == 5
    assert tool_result({"content": _text("5"), **raw}, wrapped=False).value == {"result": 5}


def test_errors_keep_the_text_and_the_structured_answer() -> None:
    raw = {"content": _text("bad"), "structuredContent": {"why": 1}, "isError": True}
    result = tool_result(raw)
    assert (result.is_error, result.text, result.structured) == (True, "bad", {"why": 1})


def test_malformed_blocks_are_kept() -> None:
    raw = {"content": [{"type": "text"}, 7, {"type": "image", "data": 5}], "isError": "no"}
    result = tool_result(raw)
    assert result.content[0] == {"type": "text"}
    assert result.content[1] == {"type": "unknown", "value": 7}
    assert result.content[2].data == 5
    assert result.is_error is False
    assert result.text == ""
    assert tool_result({"content": {"type": "text", "text": "alone"}}).value == "alone"


def test_text_joins_the_text_blocks() -> None:
    content = [*_text("a"), {"type": "image"}, *_text("b")]
    assert tool_result({"content": content}).text == "a\nb"


def test_a_record_is_a_dict_with_attributes_in_both_spellings() -> None:
    tool = record({"name": "x", "inputSchema": {"maxItems": 3}, "_meta": {"k": 1}})
    assert isinstance(tool, dict)
    assert tool["inputSchema"] is tool.inputSchema
    assert tool.input_schema.max_items == 3
    assert tool.meta == {"k": 1}
    assert json.loads(json.dumps(tool)) == tool


def test_a_record_without_a_key_says_what_it_has() -> None:
    tool = record({"name": "x"})
    with pytest.raises(AttributeError, match="'title'; it has name"):
        _ = tool.title
    with pytest.raises(AttributeError, match="brackets"):
        tool.title = "t"
    assert tool.get("title") is None
    assert getattr(tool, "description", "none") == "none"


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_a_record_can_be_copied_and_pickled(again: Any) -> None:
    held = record({"a": {"b": [{"c": 1}]}})
    other = again(held)
    assert type(other) is McpRecord
    assert other == held
    assert other.a.b[0].c == 1


def test_results_and_pages_survive_pickling() -> None:
    result = tool_result({"content": _text("x"), "structuredContent": {"a": 1}})
    assert pickle.loads(pickle.dumps(result)) == result
    assert isinstance(result, ToolResult)
    page = Page([record({"name": "a"})], "next")
    assert pickle.loads(pickle.dumps(page)) == page
    assert [each.name for each in page] == ["a"]
    assert len(page) == 1
