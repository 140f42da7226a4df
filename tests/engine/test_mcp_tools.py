"""nr.mcp_tools: what a model sees of a server's tools, and what it is told."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.mcp.tools import expand

ECHO = Path(__file__).parents[1] / "support" / "mcp_servers" / "echo.py"
SERVER = nr.McpServer(command=sys.executable, args=[str(ECHO)])


def calling(name: str, **args: Any) -> Callable[[Any], Any]:
    """A model that calls one tool, then says what it was told, and what it was offered."""

    def script(request: Any) -> Any:
        told = [item for item in request.items if item.type == "function_call_output"]
        if told:
            names = [tool.name for tool in request.tools]
            return json.dumps({"told": told[-1].output, "status": told[-1].status, "names": names})
        return nr.testing.call(name, **args)

    return script


def ask(make_harness: Any, model: Any, own: Any, **options: Any) -> Any:
    """What the model said in the end."""
    harness = make_harness(
        nr.testing.ScriptedModel(model), placement="inline", mcp={"echo": SERVER}, **options
    )
    return json.loads(harness.run(nr.call_model("ask", "m", tools=own), "go"))


def test_a_model_calls_a_servers_tool_under_its_own_name(make_harness: Any) -> None:
    said = ask(make_harness, calling("echo__ping", count=2, message="hi"), [nr.mcp_tools("echo")])
    assert json.loads(said["told"]) == {"message": "hi", "count": 2}
    assert said["status"] == "completed"
    assert "echo__ping" in said["names"]


def test_a_tool_that_fails_is_told_as_failed_with_its_text(make_harness: Any) -> None:
    said = ask(make_harness, calling("echo__boom"), [nr.mcp_tools("echo")])
    assert said["status"] == "failed"
    assert "kaput" in said["told"]


def test_include_and_exclude_choose_among_the_tools(make_harness: Any) -> None:
    tools = [nr.mcp_tools("echo", include=["p*", "nil"], exclude=["pic"])]
    said = ask(make_harness, calling("echo__ping"), tools)
    assert said["names"] == ["echo__ping", "echo__nil"]


def test_harness_tools_may_be_a_servers_too(make_harness: Any) -> None:
    said = ask(make_harness, calling("echo__ping"), None, tools=[nr.mcp_tools("echo")])
    assert "echo__ping" in said["names"]


def test_a_local_tool_keeps_its_own_name(make_harness: Any) -> None:
    @nr.tool(name="echo__ping")
    def mine() -> str:
        """Mine."""
        return "local"

    said = ask(make_harness, calling("echo__ping"), [mine, nr.mcp_tools("echo", include=["ping"])])
    assert said["told"] == "local"
    assert len(said["names"]) == 2
    assert said["names"][0] == "echo__ping"


def test_an_unknown_server_fails_the_step(make_harness: Any) -> None:
    harness = make_harness(nr.testing.ScriptedModel(lambda _: "x"), placement="inline")
    with pytest.raises(nr.McpError, match="'nobody'"):
        harness.run(nr.call_model("ask", "m", tools=[nr.mcp_tools("nobody")]), "go")


@pytest.mark.ray
def test_tools_are_offered_in_actors_and_denied_by_a_person(make_harness: Any) -> None:
    harness = make_harness(nr.testing.ScriptedModel(calling("echo__ping")), mcp={"echo": SERVER})
    tools = [nr.mcp_tools("echo", needs_approval=True)]
    run = harness.start(nr.call_model("ask", "m", tools=tools), "go")
    for event in run.events():
        if event.type == "approval.requested":
            break
    [request] = harness.approvals()
    harness.deny(request.id, "not today")
    assert "not today" in json.loads(run.result())["told"]


def test_names_are_legal_unique_and_stable() -> None:
    raws = [{"name": name} for name in ("a.b", "a_b", "x" * 90, "", "", "ok")]
    marker = nr.mcp_tools("my server")
    once = [tool.name for tool in expand([marker], {"my server": raws}, frozenset())]
    again = [tool.name for tool in expand([marker], {"my server": raws}, frozenset())]
    assert once == again
    assert len(set(once)) == len(raws)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in once)
    assert once[-1] == "my_server__ok"


@pytest.mark.parametrize(
    ("options", "match"),
    [({"client": ""}, "server's name"), ({"client": "x", "include": "p*"}, "list of patterns")],
)
def test_wrong_arguments_are_refused_where_they_are_written(
    options: dict[str, Any], match: str
) -> None:
    client = options.pop("client")
    with pytest.raises(nr.ConfigError, match=match):
        nr.mcp_tools(client, **options)
