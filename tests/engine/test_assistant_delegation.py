"""Assistants that hand their work on to others, and hooks that talk to the client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique


def answer(request: Any) -> Any:
    """Search once when asked to; else say what was asked, in JSON."""
    asked = [shown(item) for item in request.items]
    if request.model == "searches" and "function_call" not in asked:
        return nr.testing.reply(calls=[nr.testing.call("look", query="news")])
    return nr.testing.reply(json.dumps(asked), input_tokens=10, output_tokens=5)


def shown(item: Any) -> str:
    role = getattr(item, "role", item.type)
    return f"{role}: {item.content[0].text}" if item.type == "message" else role


@nr.tool
def look(query: str) -> list[str]:
    """Look something up."""
    return [f"{query} {n}" for n in range(5)]


def who(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
    """Say how the client is known here."""
    known = ctx.request
    data = [known.assistant_id, known.referer, known.chat_id, known.locale, ctx.depth]
    return {"data": data, "metadata": {"from": known.assistant_id, "inner": 1}}


def pass_on(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
    """Hand on to the last of the chain."""
    return {"delegate": {"agent_id": "expert"}, "metadata": {"via": ctx.request.assistant_id}}


def fails(ctx: nr.Context, messages: Any) -> Any:
    raise ValueError("not my day")


def completes(ctx: nr.Context, messages: Any) -> Any:
    ctx.complete("early")


def count_up(given: str, ctx: nr.Context) -> Any:
    """A plain step: what it was given, and what is in its log."""
    return {"given": given, "log": [shown(item) for item in ctx.item_log], **ctx.request.metadata}


ASSISTANTS: list[nr.Step[Any, Any]] = [
    nr.assistant("expert", "says", next=who),
    nr.assistant("chain", "says", next=pass_on),
    nr.assistant("broken", "says", create=fails),
    nr.assistant("hasty", "says", create=completes),
    nr.call_model("plain", "says"),
    nr.run_code("code", count_up),
]


@pytest.fixture(scope="module", params=BACKENDS)
def desk(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness with assistants, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    model = nr.testing.ScriptedModel(answer)
    options: Any = {"tools": [look], "assistants": ASSISTANTS, "placement": request.param}
    with nr.Harness(unique("desk"), model, kill_after=2.0, **options) as made:
        yield made


def to(agent: Any, messages: Any = None, **more: Any) -> nr.Step[Any, Any]:
    """An assistant that hands on."""

    def next(ctx: nr.Context, given: Any, completion: Any, tools: Any) -> Any:
        delegate = {"agent_id": agent}
        if messages is not None:
            delegate["messages"] = messages
        return {"delegate": delegate, **more}

    return nr.assistant("front", "says", next=next)


# -- delegation ------------------------------------------------------------------------------------


def test_the_reply_of_the_other_is_the_reply(desk: nr.Harness) -> None:
    step = to("expert", data="unused", metadata={"front": 1, "from": "front"})
    request = {"chat_id": "c-1", "locale": "de"}
    run = desk.start(step, "hi", request=request)
    reply = run.result()
    assert reply.next == ["expert", "agent", "c-1", "de", 1]
    assert reply.metadata == {"from": "front", "inner": 1, "front": 1}
    assert json.loads(reply.text) == ["user: hi"]
    assert reply.usage.total == 15
    assert run.usage.total == 30
    (child,) = run.tree().children
    assert (child.step, child.status) == ("expert", "completed")


def test_only_the_child_is_asked_by_an_agent(desk: nr.Harness) -> None:
    @nr.step
    async def around(value: str, ctx: nr.Context) -> Any:
        reply = await ctx.run(to("expert"), value)
        return reply.next[:2], [ctx.request.assistant_id, ctx.request.referer]

    inner, outer = desk.run(around, "hi", request={"referer": "jssdk"})
    assert inner == ["expert", "agent"]
    assert outer == ["front", "jssdk"]


def test_a_chain_of_assistants_answers_through_all_of_them(desk: nr.Harness) -> None:
    run = desk.start(to("chain", metadata={"front": 1}), "hi")
    reply = run.result()
    assert reply.next == ["expert", "agent", "", "", 2]
    assert reply.metadata == {"from": "expert", "inner": 1, "via": "chain", "front": 1}


def test_the_messages_may_be_others(desk: nr.Harness) -> None:
    messages = [{"role": "system", "content": "rules"}, "do it"]
    reply = desk.run(to("expert", messages), "hi")
    assert json.loads(reply.text) == ["system: rules", "user: do it"]


def test_a_step_may_stand_in_place_of_an_id(desk: nr.Harness) -> None:
    local = nr.assistant("local", "says", next=who)
    assert desk.run(to(local), "hi").next[:2] == ["local", "agent"]


def test_an_assistant_may_hand_on_to_itself_by_its_id(desk: nr.Harness) -> None:
    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        if ctx.depth == 2:
            return {"data": ctx.depth}
        return {"delegate": {"agent_id": "again"}}

    assert desk.run(nr.assistant("again", "says", next=next), "hi").next == 2


def test_a_model_step_is_asked_with_the_messages(desk: nr.Harness) -> None:
    reply = desk.run(to("plain", ["one", nr.assistant_message("two"), "three"]), "hi")
    assert json.loads(reply.text) == ["user: one", "assistant: two", "user: three"]
    assert (reply.next, reply.usage.total, len(reply.items)) == (None, 15, 1)


def test_any_other_step_gets_the_last_text_and_gives_data(desk: nr.Harness) -> None:
    step = to("code", ["one", "two"], metadata={"m": 1})
    reply = desk.run(step, "hi", request={"metadata": {"k": "v"}})
    assert (reply.text, reply.metadata) == ("", {"m": 1})
    assert reply.next == {"given": "two", "log": ["user: one"], "k": "v"}


def test_a_context_that_was_completed_early_gives_its_value(desk: nr.Harness) -> None:
    reply = desk.run(to("hasty", metadata={"m": 1}), "hi")
    assert (reply.text, reply.next, reply.metadata) == ("early", None, {"m": 1})


def test_an_unknown_assistant_is_a_config_error_that_names_the_known(desk: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError, match="known: expert, chain") as caught:
        desk.run(to("nobody"), "hi")
    assert caught.value.code == "UNKNOWN_ASSISTANT"


def test_unknown_keys_of_a_delegation_are_told(desk: nr.Harness) -> None:
    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        return {"delegate": {"agent_id": "expert", "options": {}}}

    run = desk.start(nr.assistant("front", "says", next=next), "hi")
    run.result()
    said = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert [each["message"] for each in said] == [
        "ValueError: ignored in what it returned: delegate.options"
    ]


def test_done_hears_of_the_others_reply_and_failure(desk: nr.Harness) -> None:
    def done(ctx: nr.Context, result: Any, error: Any) -> None:
        ctx.state["heard"] = (result and result.next, error and str(error))

    @nr.step
    async def around(agent: str, ctx: nr.Context) -> Any:
        def next(inner: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
            return {"delegate": {"agent_id": agent}}

        step = nr.assistant("front", "says", next=next, done=done)
        try:
            await ctx.run(step, "hi")
        except nr.StepFailed as error:
            return error.step_id, ctx.state["heard"]
        return ctx.state["heard"]

    assert desk.run(around, "expert") == (["expert", "agent", "", "", 1], None)
    failed, (reply, error) = desk.run(around, "broken")
    assert (failed, reply) == ("broken", None)
    assert "not my day" in error


def test_an_abort_reaches_the_assistant_that_was_delegated_to(desk: nr.Harness) -> None:
    async def waits(given: str, ctx: nr.Context) -> None:
        ctx.messages.send("there")
        await asyncio.sleep(60)

    run = desk.start(to(nr.run_code("waits", waits)), "hi")
    for event in run.events():
        if event.type == "message.sent":
            break
    run.abort("enough")
    with pytest.raises(nr.Cancelled, match="enough"):
        run.result()
    assert [child.status for child in run.tree().children] == ["cancelled"]


# -- a hook that does it all -----------------------------------------------------------------------


@nr.tool
def search(query: str, limit: int) -> list[str]:
    """Find articles."""
    if query == "down":
        raise ConnectionError("the search engine is down")
    return [f"{query} {n}" for n in range(limit)]


async def enhance(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
    """Enrich the answer: a node of the trace, a progress message, a search, data."""
    try:
        node = ctx.trace.add(
            {"completion": completion.text, "tools": [tool.tool for tool in tools]},
            label="Custom Processing",
            type="custom",
            icon="settings",
            description="Enhancing response with external data",
        )
        ctx.trace.info("Starting custom processing", {"tool_count": len(tools)})
        progress = ctx.messages.send("Searching for articles...")
        query = {"query": ctx.request.metadata["query"], "limit": 5}
        found = await ctx.run(nr.invoke_tool("search", search), query)
        node.set_metadata("search_results_count", len(found))
        ctx.messages.replace(progress, f"Found {len(found)} relevant articles.")
        ctx.trace.debug("Updated progress message", {"message_id": progress})
        enhanced = {"text": completion.text, "sources": found, "timestamp": int(time.time())}
        node.complete(enhanced)
        return {"data": enhanced, "done": True}
    except Exception as error:
        ctx.trace.error("Processing failed", {"error": str(error)})
        raise
    finally:
        ctx.release()


enhancing = nr.assistant("helper", "searches", next=enhance)


def test_a_hook_shows_its_progress_searches_and_returns_data(desk: nr.Harness) -> None:
    run = desk.start(enhancing, "what is new?", request={"metadata": {"query": "latest"}})
    reply = run.result()
    assert reply.next["text"] == reply.text
    assert reply.next["sources"] == [f"latest {n}" for n in range(5)]
    events = list(run.events())
    last = [event.data for event in events if event.type == "message.replaced"]
    assert last[-1]["message"]["props"] == {"content": "Found 5 relevant articles."}
    (node,) = [event.data for event in events if event.type == "trace.node_started"]
    assert (node["label"], node["input"]["tools"]) == ("Custom Processing", ["look"])
    (updated,) = [event.data for event in events if event.type == "trace.node_updated"]
    assert updated["metadata"] == {"search_results_count": 5}
    (completed,) = [event.data for event in events if event.type == "trace.node_completed"]
    assert completed["output"] == reply.next
    logs = [event.data["message"] for event in events if event.type == "trace.log"]
    assert logs == ["Starting custom processing", "Updated progress message"]


def test_a_hook_whose_search_fails_logs_it_and_the_error_goes_on(desk: nr.Harness) -> None:
    run = desk.start(enhancing, "what is new?", request={"metadata": {"query": "down"}})
    with pytest.raises(nr.StepFailed, match="the search engine is down"):
        run.result()
    events = list(run.events())
    logs = [event.data for event in events if event.type == "trace.log"]
    assert ("error", "Processing failed") in [(log["level"], log["message"]) for log in logs]
    (failed,) = [event.data for event in events if event.type == "trace.node_failed"]
    assert "the search engine is down" in failed["error"]
