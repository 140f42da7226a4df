"""The settings of MCP servers."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from noetic_ray.errors import ConfigError
from noetic_ray.mcp.servers import McpServer, check_servers


def test_a_server_is_frozen_and_survives_pickling() -> None:
    server = McpServer(command="tool", args=["--x"], env={"A": "1"}, timeout=5, replicas=2)
    assert pickle.loads(pickle.dumps(server)) == server
    assert server.args == ("--x",)
    with pytest.raises(AttributeError):
        server.timeout = 1  # type: ignore[misc]


def test_what_was_given_can_change_without_changing_the_server() -> None:
    env = {"A": "1"}
    server = McpServer(command="tool", env=env)
    env["A"] = "2"
    assert server.env == {"A": "1"}


def test_repr_names_variables_and_headers_without_their_values() -> None:
    local = McpServer(command="tool", env={"API_KEY": "secret-1"})
    remote = McpServer(url="https://example.com/mcp", headers={"Authorization": "secret-2"})
    told = f"{local!r} {remote!r}"
    assert "secret" not in told
    assert "API_KEY" in told
    assert "Authorization" in told


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "neither"),
        ({"command": "a", "url": "http://x"}, "both"),
        ({"command": "  "}, "command"),
        ({"command": 5}, "command"),
        ({"command": "a", "args": "--flag"}, "args"),
        ({"command": "a", "args": [1]}, "args"),
        ({"command": "a", "env": {"A": 1}}, "env"),
        ({"command": "a", "env": ["A=1"]}, "env"),
        ({"command": "a", "cwd": 3}, "cwd"),
        ({"command": "a", "headers": {"A": "b"}}, "headers"),
        ({"url": "ftp://x"}, "url"),
        ({"url": "http://[x"}, "url"),
        ({"url": "/mcp"}, "url"),
        ({"url": "http://x", "args": ["a"]}, "args"),
        ({"url": "http://x", "headers": {"A": 1}}, "headers"),
        ({"command": "a", "timeout": 0}, "timeout"),
        ({"command": "a", "timeout": float("inf")}, "timeout"),
        ({"command": "a", "timeout": float("nan")}, "timeout"),
        ({"command": "a", "timeout": True}, "timeout"),
        ({"command": "a", "timeout": "5"}, "timeout"),
        ({"command": "a", "replicas": 0}, "replicas"),
        ({"command": "a", "replicas": 1.5}, "replicas"),
        ({"command": "a", "shell": True}, "shell"),
    ],
)
def test_wrong_settings_are_told_with_the_name_of_the_client(
    settings: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        check_servers({"files": settings})
    assert caught.value.code == "INVALID_MCP_SERVER"
    assert "'files'" in str(caught.value)
    assert caught.value.hint


def test_wrong_settings_of_a_server_alone_are_told_too() -> None:
    with pytest.raises(ConfigError, match=r"McpServer: .*timeout") as caught:
        McpServer(command="a", timeout=-1)
    assert caught.value.code == "INVALID_MCP_SERVER"


def test_a_relative_directory_is_one_of_this_process() -> None:
    assert McpServer(command="a", cwd=Path("here")).cwd == os.path.join(os.getcwd(), "here")


def test_dicts_become_servers() -> None:
    given = McpServer(url="http://127.0.0.1:1/mcp")
    servers = check_servers({"a": {"command": "tool", "args": ("x",)}, "b": given})
    assert servers["a"] == McpServer(command="tool", args=("x",))
    assert servers["b"] is given
    assert check_servers(None) == {}


@pytest.mark.parametrize("wrong", [["a"], {"a": 3}, {"": {"command": "x"}}, {3: {"command": "x"}}])
def test_what_is_no_mapping_of_servers_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_servers(wrong)
    assert caught.value.code == "INVALID_MCP_SERVER"
