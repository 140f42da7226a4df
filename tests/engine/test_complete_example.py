"""An assistant that uses all of its client's side in one hook, with a real MCP server."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique

SEARCH = Path(__file__).parents[1] / "support" / "mcp_servers" / "search.py"
SERVER = nr.McpServer(command=sys.executable, args=[str(SEARCH)])


def answer(request: Any) -> Any:
    """Say something about the news."""
    return nr.testing.reply("There is news.", input_tokens=4, output_tokens=3)


async def enhance(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
    """Process the answer: trace, progress, search, data; release in the end."""
    try:
        node = ctx.trace.add(
            {"completion": completion.text, "tools": len(tools)},
            label="Custom Processing",
            type="custom",
            icon="settings",
            description="Enhancing response with external data",
        )
        ctx.trace.info("Starting custom processing", {"tool_count": len(tools)})
        progress = ctx.messages.send("Searching for articles...")
        query = {"query": ctx.request.metadata["query"], "limit": 5}
        found = await ctx.mcp.call_tool("search_engine", "search", query)
        if found.is_error:
            raise RuntimeError(found.text)
        node.set_metadata("search_results_count", len(found.value))
        ctx.messages.replace(progress, f"Found {len(found.value)} relevant articles.")
        ctx.trace.debug("Updated progress message", {"message_id": progress})
        enhanced = {"text": completion.text, "sources": found.value, "timestamp": time.time()}
        node.complete(enhanced)
        return {"data": enhanced, "done": True}
    except Exception as error:
        ctx.trace.error("Processing failed", {"error": str(error)})
        raise
    finally:
        ctx.release()
        ctx.release()


enhancing = nr.assistant("enhancing", "news", next=enhance)


@pytest.fixture(scope="module", params=BACKENDS)
def desk(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness with the search engine, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    model = nr.testing.ScriptedModel(answer)
    name = unique("complete-example")
    servers = {"search_engine": SERVER}
    with nr.Harness(name, model, placement=request.param, mcp=servers) as harness:
        yield harness


def test_progress_is_replaced_and_the_node_holds_what_was_found(desk: nr.Harness) -> None:
    run = desk.start(enhancing, "what is new?", request={"metadata": {"query": "latest"}})
    reply = run.result()
    assert reply.text == "There is news."
    assert reply.next["sources"] == [f"latest {number}" for number in range(5)]
    [shown] = run.shown()
    assert shown.props == {"content": "Found 5 relevant articles."}
    view = run.trace()
    node = view.root
    assert node is not None
    assert (node.status, node.metadata) == ("completed", {"search_results_count": 5})
    assert node.output == reply.next
    assert [line.message for line in node.logs] == [
        "Starting custom processing",
        "Updated progress message",
    ]
    [call] = node.children
    assert (call.type, call.status, call.label) == ("mcp", "completed", "search")


def test_a_search_that_fails_is_logged_and_the_error_goes_on(desk: nr.Harness) -> None:
    run = desk.start(enhancing, "what is new?", request={"metadata": {"query": "down"}})
    with pytest.raises(nr.StepFailed, match="the index is down"):
        run.result()
    [shown] = run.shown()
    assert shown.props == {"content": "Searching for articles..."}
    node = run.trace().root
    assert node is not None
    assert node.status == "failed"
    assert ("error", "Processing failed") in [(line.level, line.message) for line in node.logs]
    assert [child.status for child in node.children] == ["failed"]
