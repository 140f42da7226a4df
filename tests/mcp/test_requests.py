"""From the methods of a port to JSON-RPC."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from noetic_ray.errors import McpError
from noetic_ray.mcp.port import METHODS
from noetic_ray.mcp.requests import encode, request


def _request(method: str, **arguments: Any) -> Any:
    return request("files", method, encode("files", arguments))


@pytest.mark.parametrize(
    ("method", "arguments", "wanted"),
    [
        ("list_tools", {}, ("tools/list", {})),
        ("list_tools", {"cursor": None}, ("tools/list", {})),
        ("list_resources", {"cursor": ""}, ("resources/list", {})),
        ("list_prompts", {"cursor": "c"}, ("prompts/list", {"cursor": "c"})),
        ("read_resource", {"uri": "a://b"}, ("resources/read", {"uri": "a://b"})),
        ("call_tool", {"name": "t"}, ("tools/call", {"name": "t"})),
        ("call_tool", {"name": "t", "arguments": "text"}, ("tools/call", {"name": "t"})),
        (
            "call_tool",
            {"name": "t", "arguments": {"a": [1, None]}},
            ("tools/call", {"name": "t", "arguments": {"a": [1, None]}}),
        ),
        (
            "get_prompt",
            {"name": "p", "arguments": {"n": 5, "b": True, "s": "x", "l": ["é"], "none": None}},
            (
                "prompts/get",
                {"name": "p", "arguments": {"n": "5", "b": "true", "s": "x", "l": '["é"]'}},
            ),
        ),
        ("ping", {}, ("ping", {})),
    ],
)
def test_requests(method: str, arguments: dict[str, Any], wanted: Any) -> None:
    assert _request(method, **arguments) == wanted


def test_every_method_of_a_port_has_a_request() -> None:
    for method in METHODS:
        assert _request(method, name="n", uri="u")[0]


def test_what_json_does_not_have_is_made_plain_or_refused() -> None:
    sent = _request("call_tool", name="t", arguments={"d": date(2024, 1, 2), "n": math.nan})
    assert sent[1]["arguments"] == {"d": "2024-01-02", "n": None}
    for wrong in (object(), "\ud800", b"\xff"):
        with pytest.raises(McpError, match="not JSON data"):
            encode("files", {"name": "t", "arguments": {"x": wrong}})


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("call_tool", {}), ("call_tool", {"name": 3}), ("read_resource", {"uri": ""})],
)
def test_a_missing_name_is_an_error_before_anything_is_sent(
    method: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(McpError, match="is to be a text"):
        _request(method, **arguments)


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(McpError, match="no request 'drop'"):
        _request("drop")
