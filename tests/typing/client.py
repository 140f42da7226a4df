"""Read by mypy in test_typing.py, never run: the types users of messages, trace and spaces see."""

from __future__ import annotations

from typing import Any, assert_type

import noetic_ray as nr
from noetic_ray.client.spaces import Space
from noetic_ray.client.sync import SyncSpace
from noetic_ray.client.trace import Trace
from noetic_ray.client.trace_node import TraceNode


@nr.step
async def shows(topic: str, ctx: nr.Context) -> str:
    id = ctx.messages.send("Searching")
    assert_type(id, str)
    assert_type(ctx.messages.send({"type": "tool", "props": {"name": topic}}), str)
    assert_type(ctx.messages.replace(id, {"type": "text", "props": {"content": "!"}}), str)
    assert_type(ctx.messages.append(id, "?"), str)
    ctx.messages.send(42)  # type: ignore[arg-type]
    ctx.messages.append(id, 3)  # type: ignore[arg-type]
    return id


@nr.step
async def traces(topic: str, ctx: nr.Context) -> int:
    node = ctx.trace.add({"topic": topic}, label="Search", metadata={"k": 1})
    assert_type(node, TraceNode)
    assert_type(node.set_output(1).set_metadata("k", 2).info("line", {"a": 1}), TraceNode)
    assert_type(node.complete(), TraceNode)
    assert_type(node.complete({"found": 3}), TraceNode)
    assert_type(node.fail(ValueError("no")), TraceNode)
    option = nr.TraceNodeOption(label="a", type="api")
    entries = [nr.ParallelInput(1, option), nr.ParallelInput(2, {"label": "b"})]
    assert_type(ctx.trace.parallel(entries), list[TraceNode])
    assert_type(ctx.trace.parallel([{"input": 1}]), list[TraceNode])
    assert_type(ctx.trace.info("one").debug("two", 2).warn("three").error("four"), Trace)
    assert_type(ctx.trace.get_current_nodes(), list[TraceNode])
    assert_type(await ctx.trace.get_root_node(), TraceNode | None)
    found = await ctx.trace.get_node(node.id)
    if found is not None:
        assert_type(found.label, str)
        assert_type(found.ended_at, float | None)
        assert_type(found.children, list[nr.TraceNodeRecord])
    ctx.trace.add(1, label=2)  # type: ignore[arg-type]
    ctx.trace.add(1, name="x")  # type: ignore[call-arg]
    return len(ctx.trace.get_current_nodes())


@nr.step
async def keeps(_: None, ctx: nr.Context) -> bool:
    space = await ctx.trace.create_space(label="Memory", type="context", id="memory")
    assert_type(space, Space)
    assert_type(await space.set("k", [1]), Space)
    assert_type(await space.keys(), list[str])
    assert_type(await ctx.trace.get_space("memory"), Space | None)
    assert_type(await ctx.trace.list_spaces(), list[Space])
    assert_type(await ctx.trace.has_space("memory"), bool)
    await space.set(3, 1)  # type: ignore[arg-type]
    await space.increment("n", "1")  # type: ignore[arg-type]
    return await space.compare_and_set("k", [1], None)


@nr.step
def keeps_in_a_thread(_: None, ctx: nr.Context) -> int:
    trace = ctx.sync.trace
    assert_type(trace.get_root_node(), TraceNode | None)
    space = trace.create_space(label="Memory")
    assert_type(space, SyncSpace)
    assert_type(space.set("k", 1).keys(), list[str])
    ctx.release()
    return int(space.increment("n"))


async def looks(harness: nr.Harness) -> None:
    run = harness.start(shows, "owls", request={"accept": "cui-web"})
    assert_type(run.messages(), list[dict[str, Any]])
    assert_type(await run.amessages("openai"), list[dict[str, Any]])
    assert_type(run.shown(), list[nr.Message])
    assert_type(run.trace(), nr.TraceView)
    assert_type((await run.atrace()).root, nr.TraceNodeRecord | None)
    for node in run.trace():
        assert_type(node, nr.TraceNodeRecord)


async def reads_the_request(ctx: nr.Context) -> None:
    assert_type(ctx.request, nr.RequestInfo)
    assert_type(ctx.request.client.ip, str)
    assert_type(ctx.request.search, bool | str | None)
    assert_type(ctx.request.metadata, dict[str, Any])
