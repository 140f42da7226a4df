"""ctx.mcp: results, batches, errors and samples, and the trace nodes calls leave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.scripts import play

ECHO = Path(__file__).parents[1] / "support" / "mcp_servers" / "echo.py"
SERVER = nr.McpServer(command=sys.executable, args=[str(ECHO)])
BACKENDS = ("inline", "actor")
_open: dict[str, nr.Harness] = {}


@pytest.fixture(scope="module", autouse=True)
def _closing() -> Iterator[None]:
    yield
    for harness in _open.values():
        harness.close()
    _open.clear()


@pytest.fixture(params=BACKENDS)
def swarm(request: pytest.FixtureRequest) -> nr.Harness:
    """A harness with the echo server, shared by this module."""
    backend = str(request.param)
    if backend not in _open:
        if backend != "inline":
            request.getfixturevalue("ray_cluster")
        _open[backend] = nr.Harness(
            unique(f"mcp-{backend}"),
            nr.testing.ScriptedModel(play),
            placement=backend,
            mcp={"echo": SERVER, "spare": {"command": sys.executable, "args": [str(ECHO)]}},
        ).open()
    return _open[backend]


def asks(body: Callable[[nr.Context], Any]) -> Any:
    """A step that does one thing with its context."""

    async def ask(_: Any, ctx: nr.Context) -> Any:
        return await body(ctx)

    return nr.run_code("asks", ask)


def test_resources_tools_and_prompts_are_listed_whole(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        resources = await ctx.mcp.list_resources("echo")
        tools = await ctx.mcp.list_tools("echo")
        prompts = await ctx.mcp.list_prompts("echo")
        page = await ctx.mcp.list_tools("echo", cursor="")
        return (
            [each.name for each in resources],
            [each["name"] for each in tools],
            [each.name for each in prompts],
            len(page.items),
            page.next_cursor,
        )

    resources, tools, prompts, first, cursor = swarm.run(asks(body))
    assert {"info", "health"} <= set(resources)
    assert {"ping", "status", "echo"} <= set(tools)
    assert set(prompts) == {"test_connection", "test_echo"}
    assert (first, cursor) == (len(tools), None)


def test_a_resource_is_read_with_its_query(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        info = await ctx.mcp.read_resource("echo", "echo://info")
        health = await ctx.mcp.read_resource("echo", "echo://health?check=all")
        return info, health

    info, health = swarm.run(asks(body))
    assert len(info.contents) == 1
    assert info.contents[0].uri == "echo://info"
    assert "all" in health["contents"][0]["text"]


def test_a_prompt_is_filled_in_with_texts(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        return await ctx.mcp.get_prompt("echo", "test_echo", {"message": 42})

    prompt = swarm.run(asks(body))
    assert prompt.messages[0].role == "user"
    assert "42" in prompt.messages[0].content.text


def test_a_tool_gives_its_whole_answer(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        call = ctx.mcp.call_tool
        ping = await call("echo", "ping", {"count": 3, "message": "test"})
        nil, two = await call("echo", "nil"), await call("echo", "two")
        return ping, nil, two, await call("echo", "pic"), await call("echo", "numbers")

    ping, nil, two, pic, numbers = swarm.run(asks(body))
    assert ping.value == {"message": "test", "count": 3}
    assert ping.structured["message"] == "test"
    assert '"test"' in ping.content[0].text
    assert not ping.is_error
    assert nil.value is None
    assert two.value == [{"n": 1}, "second"]
    assert pic.value["type"] == "image"
    assert pic.value["mimeType"] == "image/png"
    assert numbers.value == [1, 2]


def test_a_tool_that_fails_says_so_and_does_not_raise(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        return await ctx.mcp.call_tool("echo", "boom")

    run = swarm.start(asks(body))
    result = run.result()
    assert result.is_error
    assert "kaput" in result.text
    [node] = run.trace().nodes
    assert (node.type, node.status) == ("mcp", "failed")
    assert node.error is not None
    assert "kaput" in node.error


def test_a_batch_goes_on_after_a_failure_and_keeps_its_order(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        one_by_one = await ctx.mcp.call_tools(
            "echo",
            [
                {"name": "boom"},
                {"name": "ping", "args": {"message": "a"}},
                {"name": "no_such_tool"},
                {"name": "ping", "arguments": {"message": "b"}},
            ],
        )
        slow = [{"name": "slow", "args": {"ms": ms, "tag": tag}}
                for ms, tag in ((80, "a"), (40, "b"), (1, "c"))]  # fmt: skip
        side_by_side = await ctx.mcp.call_tools_parallel("echo", slow)
        many = [{"name": "echo", "args": {"text": f"t{n}"}} for n in range(20)]
        correlated = await ctx.mcp.call_tools_parallel("echo", many, concurrency=20)
        empty = await ctx.mcp.call_tools_parallel("echo", [])
        return one_by_one, side_by_side, correlated, empty

    one_by_one, side_by_side, correlated, empty = swarm.run(asks(body))
    assert [result.is_error for result in one_by_one] == [True, False, True, False]
    assert [one_by_one[n].value["message"] for n in (1, 3)] == ["a", "b"]
    assert [result.text for result in side_by_side] == ["a", "b", "c"]
    assert [result.text for result in correlated] == [f"t{n}" for n in range(20)]
    assert empty == []


@pytest.mark.parametrize("calls", [[{"args": {}}], "ping", {"name": "ping"}, [3]])
def test_a_malformed_batch_is_refused_before_anything_is_called(
    swarm: nr.Harness, calls: Any
) -> None:
    async def body(ctx: nr.Context) -> Any:
        ahead = [*calls, {"name": "ping"}] if isinstance(calls, list) else calls
        return await ctx.mcp.call_tools_parallel("echo", ahead)

    run = swarm.start(asks(body))
    with pytest.raises(nr.McpError, match="batch"):
        run.result()
    assert run.trace().nodes == []


def test_an_unknown_server_is_an_error_that_names_the_known_and_leaves_no_node(
    swarm: nr.Harness,
) -> None:
    async def body(ctx: nr.Context) -> Any:
        return await ctx.mcp.call_tool("nobody", "ping")

    run = swarm.start(asks(body))
    with pytest.raises(nr.McpError, match=r"'nobody'.*'echo'") as caught:
        run.result()
    assert caught.value.client == "nobody"
    assert run.trace().nodes == []


def test_an_unknown_resource_or_prompt_raises_and_fails_its_node(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        failures = []
        for call in (
            ctx.mcp.read_resource("echo", "echo://nothing"),
            ctx.mcp.get_prompt("echo", "nothing"),
        ):
            try:
                await call
            except nr.McpError as error:
                failures.append(str(error))
        return failures

    run = swarm.start(asks(body))
    failures = run.result()
    assert len(failures) == 2
    assert [node.status for node in run.trace().nodes] == ["failed", "failed"]


def test_calls_are_nodes_below_the_newest_current_one_which_stays_open(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        node = ctx.trace.add("work", label="Work")
        await ctx.mcp.call_tool("echo", "ping")
        await ctx.mcp.call_tools("echo", [{"name": "ping"}, {"name": "boom"}])
        still = [each.id for each in ctx.trace.get_current_nodes()] == [node.id]
        running = node.status
        ctx.trace.info("after")
        node.complete({"ok": True})
        return still, running

    run = swarm.start(asks(body))
    assert run.result() == (True, "running")
    view = run.trace()
    work = view.root
    assert work is not None
    assert work.output == {"ok": True}
    assert [line.message for line in work.logs] == ["after"]
    single, batch = work.children
    assert (single.type, single.status, single.label) == ("mcp", "completed", "ping")
    assert [child.label for child in batch.children] == ["ping", "boom"]
    assert [child.status for child in batch.children] == ["completed", "failed"]
    assert batch.output == {"succeeded": 1, "failed": 1}


def test_samples_are_kept_by_server_and_resource(swarm: nr.Harness) -> None:
    uri = f"file:///{unique('examples')}"

    async def body(ctx: nr.Context) -> Any:
        sample = {"name": "example1", "content": "Sample content"}
        first = await ctx.mcp.create_sample("echo", uri, sample)
        second = await ctx.mcp.create_sample("echo", uri, {"name": "two", "input": [1]})
        elsewhere = await ctx.mcp.list_samples("spare", uri)
        return first, second, await ctx.mcp.list_samples("echo", uri), elsewhere

    first, second, listed, elsewhere = swarm.run(asks(body))
    assert (first.index, first.name, first.content) == (0, "example1", "Sample content")
    assert (second.index, second.data) == (1, {"name": "two", "input": [1]})
    assert [sample.index for sample in listed] == [0, 1]
    assert listed[0] == first
    assert elsewhere == []

    async def read(ctx: nr.Context) -> Any:
        return await ctx.mcp.get_sample("echo", uri, 1)

    assert swarm.run(asks(read)) == second


@pytest.mark.parametrize(
    ("client", "sample", "match"),
    [("nobody", {"name": "x"}, "nobody"), ("echo", "text", "a sample is a dict")],
)
def test_what_is_no_sample_is_refused(
    swarm: nr.Harness, client: str, sample: Any, match: str
) -> None:
    async def body(ctx: nr.Context) -> Any:
        return await ctx.mcp.create_sample(client, "file:///x", sample)

    with pytest.raises(nr.McpError, match=match):
        swarm.run(asks(body))


@pytest.mark.parametrize("index", [-1, 5])
def test_a_sample_that_is_not_there_is_an_error(swarm: nr.Harness, index: int) -> None:
    async def body(ctx: nr.Context) -> Any:
        return await ctx.mcp.get_sample("echo", "file:///none", index)

    with pytest.raises(nr.McpError, match="0 samples"):
        swarm.run(asks(body))


def test_a_synchronous_body_calls_through_sync(swarm: nr.Harness) -> None:
    def body(_: Any, ctx: nr.Context) -> Any:
        return ctx.sync.mcp.call_tool("echo", "ping", {"message": "from a thread"}).value

    assert swarm.run(nr.run_code("sync", body))["message"] == "from a thread"


def test_children_in_other_processes_share_the_one_server(swarm: nr.Harness) -> None:
    async def pid(_: Any, ctx: nr.Context) -> Any:
        return (await ctx.mcp.call_tool("echo", "status")).value["pid"]

    paths = [nr.run_code(f"p{n}", pid) for n in range(4)]
    assert len(set(swarm.run(nr.in_parallel("all", paths)))) == 1


def test_an_abort_cuts_a_call_and_fails_its_node(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        await ctx.mcp.call_tool("echo", "ping")
        ctx.messages.send("waiting")
        return await ctx.mcp.call_tool("echo", "slow", {"ms": 60_000, "tag": "x"})

    run = swarm.start(asks(body))
    for event in run.events():
        if event.type == "message.sent":
            break
    run.abort("enough")
    with pytest.raises(nr.Cancelled, match="enough"):
        run.result()
    slow = [node for node in run.trace().nodes if node.label == "slow"]
    assert [node.status for node in slow] in ([], ["failed"])


def test_a_concurrency_below_one_is_a_config_error(swarm: nr.Harness) -> None:
    async def body(ctx: nr.Context) -> Any:
        return await ctx.mcp.call_tools_parallel("echo", [], concurrency=0)

    with pytest.raises(nr.ConfigError, match="INVALID_CONCURRENCY"):
        swarm.run(asks(body))
