"""One call of an assistant: its hooks in their order, what they are told, what they may return."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique
from tests.support.marks import mark, marked, text_of, wait_for


def answer(request: Any) -> Any:
    """`tools`: one round of calls, then text. `fails` and `refuses` do. Else: what was asked."""
    if request.model == "fails":
        raise RuntimeError("the model broke")
    if request.model == "refuses":
        return nr.testing.reply(refusal="I will not")
    if request.model == "tools" and not any(i.type == "function_call" for i in request.items):
        call = nr.testing.call
        calls = [call("add", a=2, b=3), call("boom"), call("lost"), call("table"), call("words")]
        return nr.testing.reply(calls=calls, input_tokens=7, output_tokens=1)
    said = {
        "items": [shown(item) for item in request.items],
        "settings": dict(request.settings),
        "instructions": request.instructions,
    }
    return nr.testing.reply(json.dumps(said), input_tokens=10, output_tokens=5, cost=0.01)


def shown(item: Any) -> str:
    role = getattr(item, "role", item.type)
    return f"{role}: {item.content[0].text}" if item.type == "message" else role


@nr.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@nr.tool
async def boom() -> str:
    """Fail."""
    raise ValueError("kaput")


@nr.tool
def table() -> dict[str, Any]:
    """Give an object."""
    return {"rows": [1, 2]}


@nr.tool
def words() -> str:
    """Give text."""
    return "plain words"


@pytest.fixture(scope="module", params=BACKENDS)
def desk(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness whose model says what it was asked, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    model = nr.testing.ScriptedModel(answer)
    tools = [add, boom, table, words]
    with nr.Harness(
        unique("desk"), model, tools=tools, placement=request.param, kill_after=2.0
    ) as made:
        yield made


def diagnostics(run: nr.Run[Any]) -> list[str]:
    return [event.data["message"] for event in run.events() if event.type == "layer.diagnostic"]


def types(run: nr.Run[Any]) -> list[str]:
    return [event.type for event in run.events()]


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_hooks_and_the_model_come_in_order_once_each(
    desk: nr.Harness, asynchronous: bool
) -> None:
    def note(ctx: nr.Context, what: str) -> None:
        ctx.state.setdefault("order", []).append(what)

    def create(ctx: nr.Context, messages: Any) -> None:
        note(ctx, "create")

    def instructions(ctx: nr.Context) -> str:
        note(ctx, "model")
        return "be kind"

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> None:
        note(ctx, "next")

    def done(ctx: nr.Context, result: Any, error: Any) -> str:
        note(ctx, "done")
        return "ignored"

    async def acreate(ctx: nr.Context, messages: Any) -> None:
        await asyncio.sleep(0)
        create(ctx, messages)

    async def anext(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> None:
        next(ctx, messages, completion, tools)

    async def adone(ctx: nr.Context, result: Any, error: Any) -> None:
        done(ctx, result, error)

    hooks: tuple[Any, Any, Any] = (acreate, anext, adone) if asynchronous else (create, next, done)
    step = nr.assistant("a", "says", instructions, create=hooks[0], next=hooks[1], done=hooks[2])

    @nr.step
    async def watch(value: str, ctx: nr.Context) -> Any:
        reply = await ctx.run(step, value)
        return type(reply).__name__, ctx.state["order"]

    assert desk.run(watch, "hi") == ("AssistantReply", ["create", "model", "next", "done"])


def test_sync_hooks_run_in_a_thread_and_may_block(desk: nr.Harness) -> None:
    inner = nr.run_code("inner", lambda value: value * 2)

    def create(ctx: nr.Context, messages: Any) -> Any:
        doubled = ctx.sync.run(inner, 21)
        name = threading.current_thread().name
        return {"metadata": {"doubled": doubled, "thread": name.startswith("noetic-sync")}}

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        return {"data": dict(ctx.request.metadata)}

    reply = desk.run(nr.assistant("a", "says", create=create, next=next), "hi")
    assert reply.next == {"doubled": 42, "thread": True}


def test_an_assistant_without_hooks_is_a_model_step_with_a_reply(desk: nr.Harness) -> None:
    run = desk.start(nr.assistant("a", "says", "be kind", settings={"temperature": 1}), "hi")
    reply = run.result()
    assert json.loads(reply.text) == {
        "items": ["user: hi"],
        "settings": {"temperature": 1},
        "instructions": "be kind",
    }
    assert [item.type for item in reply.items] == ["message", "message"]
    assert list(reply.items) == list(run.items())
    assert (reply.usage.input, reply.usage.output, reply.usage.total) == (10, 5, 15)
    assert (reply.next, reply.metadata) == (None, {})


def test_the_assistant_is_one_step_in_the_events(desk: nr.Harness) -> None:
    run = desk.start(nr.assistant("a", "says"), "hi")
    run.result()
    started = [event.data for event in run.events() if event.type == "step.started"]
    assert [(data["step"], data["kind"]) for data in started] == [("a", "assistant")]
    assert "model.completed" in types(run)


def test_what_the_model_step_did_is_the_last_step_of_the_context(desk: nr.Harness) -> None:
    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        meta = ctx.last_step_meta
        return {"data": [len(meta.rounds), meta.cost]}

    assert desk.run(nr.assistant("a", "says", next=next), "hi").next == [1, 0.01]


# -- next ------------------------------------------------------------------------------------------


def test_next_is_told_of_messages_completion_and_tools(desk: nr.Harness) -> None:
    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        items = [item.type for item in completion.items]
        return {
            "data": {
                "messages": [shown(item) for item in messages],
                "text": completion.text[:8],
                "items": (items.count("function_call"), items.count("message")),
                "usage": (completion.usage.input, completion.usage.output),
                "tools": [(t.server, t.tool, t.arguments, t.result, t.error) for t in tools],
                "ids": len({t.call_id for t in tools}),
            }
        }

    told = desk.run(nr.assistant("a", "tools", next=next), "hi").next
    assert told["messages"] == ["user: hi"]
    assert (told["text"], told["items"], told["usage"]) == ('{"items"', (5, 1), (17, 6))
    added, failed, unknown, tabled, said = told["tools"]
    assert added == (None, "add", {"a": 2, "b": 3}, 5, None)
    assert failed == (None, "boom", {}, None, "ValueError: kaput")
    assert unknown[1:4] == ("lost", {}, None)
    assert "no tool named 'lost'" in unknown[4]
    assert tabled[3:] == ({"rows": [1, 2]}, None)
    assert said[3:] == ("plain words", None)
    assert told["ids"] == 5


def test_a_tool_of_a_server_is_told_with_its_server_and_its_own_name(
    make_harness: Any,
) -> None:
    class FromServer(nr.Tool):
        """A tool as MCP servers' tools are: a name for the model, one of its own."""

        __slots__ = ("client", "tool_name")

        def _arguments(self) -> Any:
            return add._arguments()

        def invoke(self, kwargs: Any, ctx: Any) -> Any:
            return add.invoke(kwargs, ctx)

    tool = FromServer("add", "Add.", False, False)
    tool._set("client", "calculator")
    tool._set("tool_name", "sum")

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        return {"data": (tools[0].server, tools[0].tool)}

    harness = make_harness(nr.testing.ScriptedModel(answer), placement="inline")
    step = nr.assistant("a", "tools", tools=[tool], next=next)
    assert harness.run(step, "hi").next == ("calculator", "sum")


@pytest.mark.parametrize(
    ("returned", "data", "metadata"),
    [
        (None, None, {}),
        ({}, {}, {}),
        ({"data": {}}, {}, {}),
        ({"data": {"n": 1}}, {"n": 1}, {}),
        ({"data": 0, "metadata": {"k": "v"}}, 0, {"k": "v"}),
        ({"metadata": {"k": "v"}}, None, {"k": "v"}),
        ({"data": None, "delegate": None, "metadata": None}, None, {}),
    ],
)
def test_what_next_returns_is_in_the_reply(
    desk: nr.Harness, returned: Any, data: Any, metadata: Any
) -> None:
    step = nr.assistant("a", "says", next=lambda ctx, messages, completion, tools: returned)
    run = desk.start(step, "hi")
    reply = run.result()
    assert (reply.next, reply.metadata) == (data, metadata)
    assert diagnostics(run) == []


def test_other_keys_of_next_are_ignored_and_told(desk: nr.Harness) -> None:
    step = nr.assistant("a", "says", next=lambda *told: {"data": 1, "done": True, "more": 2})
    run = desk.start(step, "hi")
    assert run.result().next == 1
    assert diagnostics(run) == ["ValueError: ignored in what it returned: done, more"]


@pytest.mark.parametrize(
    "returned",
    [
        "text",
        3,
        ["data"],
        {"metadata": "x"},
        {"metadata": {1: 2}},
        {"delegate": "other"},
        {"delegate": {}},
        {"delegate": {"agent_id": 3}},
        {"delegate": {"agent_id": ""}},
        {"delegate": {"agent_id": "a", "messages": 3}},
        {"delegate": {"agent_id": "a", "messages": [3]}},
        {"delegate": {"agent_id": "a", "messages": [{"content": "who?"}]}},
    ],
)
def test_a_wrong_result_of_next_is_a_config_error(desk: nr.Harness, returned: Any) -> None:
    step = nr.assistant("a", "says", next=lambda *told: returned)
    with pytest.raises(nr.ConfigError) as caught:
        desk.run(step, "hi")
    assert caught.value.code == "INVALID_HOOK_RESULT"
    assert "'a'" in str(caught.value)


# -- done ------------------------------------------------------------------------------------------


def heard(folder: Path) -> Any:
    def done(ctx: nr.Context, result: Any, error: Any) -> None:
        kind = getattr(error, "kind", None)
        assert not marked(folder, "done"), "done is called once"
        mark(folder, "done", f"{type(result).__name__} {kind} {error}")

    return done


def test_done_hears_the_reply(desk: nr.Harness, tmp_path: Path) -> None:
    desk.run(nr.assistant("a", "says", done=heard(tmp_path)), "hi")
    assert text_of(tmp_path, "done") == "AssistantReply None None"


def test_a_create_that_raises_ends_the_step_before_the_model(
    desk: nr.Harness, tmp_path: Path
) -> None:
    def create(ctx: nr.Context, messages: Any) -> None:
        raise ValueError("no thanks")

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> None:
        mark(tmp_path, "next")

    step = nr.assistant("a", "says", create=create, next=next, done=heard(tmp_path))
    run = desk.start(step, "hi")
    with pytest.raises(nr.StepFailed, match="no thanks") as caught:
        run.result()
    assert (caught.value.step_id, caught.value.cause.type) == ("a", "ValueError")
    assert "model.started" not in types(run)
    assert not marked(tmp_path, "next")
    assert text_of(tmp_path, "done").startswith("NoneType step_failed step 'a' failed")
    assert [shown(item) for item in run.items()] == ["user: hi"]


def test_done_hears_of_a_next_that_raised_and_the_error_goes_on(
    desk: nr.Harness, tmp_path: Path
) -> None:
    async def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> None:
        raise KeyError("gone")

    run = desk.start(nr.assistant("a", "says", next=next, done=heard(tmp_path)), "hi")
    with pytest.raises(nr.StepFailed, match="gone"):
        run.result()
    assert text_of(tmp_path, "done").startswith("NoneType step_failed")
    assert "model.completed" in types(run)


@pytest.mark.parametrize("hook", ["create", "next", "done"])
def test_an_unknown_name_in_a_hook_is_an_error_and_no_missing_hook(
    desk: nr.Harness, hook: str
) -> None:
    hooks: dict[str, Any] = {hook: lambda *told: nobody_defined_this}  # type: ignore[name-defined]  # noqa: F821
    with pytest.raises(nr.StepFailed, match="nobody_defined_this") as caught:
        desk.run(nr.assistant("a", "says", **hooks), "hi")
    assert caught.value.cause.type == "NameError"


@pytest.mark.parametrize("hook", ["create", "next", "done"])
def test_errors_of_ours_pass_unchanged(desk: nr.Harness, hook: str) -> None:
    def refuse(*told: Any) -> None:
        raise nr.ConfigError("HOUSE_RULE", "not here")

    hooks: dict[str, Any] = {hook: refuse}
    with pytest.raises(nr.ConfigError) as caught:
        desk.run(nr.assistant("a", "says", **hooks), "hi")
    assert caught.value.code == "HOUSE_RULE"


@pytest.mark.parametrize(
    ("model", "kind"), [("fails", "step_failed"), ("refuses", "model_refused")]
)
def test_done_hears_of_a_model_that_failed(
    desk: nr.Harness, tmp_path: Path, model: str, kind: str
) -> None:
    step = nr.assistant("a", model, next=lambda *told: mark(tmp_path, "next"), done=heard(tmp_path))
    with pytest.raises(nr.NoeticError) as caught:
        desk.run(step, "hi")
    assert caught.value.kind == kind
    assert text_of(tmp_path, "done").startswith(f"NoneType {kind}")
    assert not marked(tmp_path, "next")


def test_a_done_that_raises_fails_a_step_that_had_succeeded(desk: nr.Harness) -> None:
    def done(ctx: nr.Context, result: Any, error: Any) -> None:
        raise ValueError("too late")

    with pytest.raises(nr.StepFailed, match="too late"):
        desk.run(nr.assistant("a", "says", done=done), "hi")


def test_a_done_that_raises_after_a_failure_is_told_and_the_failure_stays(
    desk: nr.Harness,
) -> None:
    def create(ctx: nr.Context, messages: Any) -> None:
        raise ValueError("first")

    def done(ctx: nr.Context, result: Any, error: Any) -> None:
        raise ValueError("second")

    run = desk.start(nr.assistant("a", "says", create=create, done=done), "hi")
    with pytest.raises(nr.StepFailed, match="first"):
        run.result()
    assert diagnostics(run) == ["ValueError: second"]


def test_done_runs_as_clean_up_after_an_abort(desk: nr.Harness, tmp_path: Path) -> None:
    async def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> None:
        mark(tmp_path, "there")
        await asyncio.sleep(60)

    run = desk.start(nr.assistant("a", "says", next=next, done=heard(tmp_path)), "hi")
    wait_for(tmp_path, "there")
    run.abort("enough")
    with pytest.raises(nr.Cancelled, match="enough"):
        run.result()
    assert text_of(tmp_path, "done") == "NoneType cancelled cancelled: enough"


def test_done_hears_that_somebody_stopped_waiting(desk: nr.Harness, tmp_path: Path) -> None:
    async def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> None:
        await asyncio.sleep(60)

    step = nr.assistant("a", "says", next=next, done=heard(tmp_path))

    @nr.step
    async def impatient(value: str, ctx: nr.Context) -> str:
        try:
            async with asyncio.timeout(0.3):
                await ctx.run(step, value)
        except TimeoutError:
            return "gave up"
        return "answered"

    assert desk.run(impatient, "hi") == "gave up"
    assert text_of(tmp_path, "done") == "NoneType cancelled cancelled: the step was cancelled"


def test_a_context_completed_in_create_asks_no_model(desk: nr.Harness, tmp_path: Path) -> None:
    def create(ctx: nr.Context, messages: Any) -> None:
        ctx.complete("early")

    run = desk.start(nr.assistant("a", "says", create=create, done=heard(tmp_path)), "hi")
    assert run.result() == "early"
    assert "model.started" not in types(run)
    assert text_of(tmp_path, "done") == "NoneType None None"


def test_done_hears_of_a_harness_without_a_model(make_harness: Any, tmp_path: Path) -> None:
    harness = make_harness(placement="inline")
    with pytest.raises(nr.ConfigError) as caught:
        harness.run(nr.assistant("a", "says", done=heard(tmp_path)), "hi")
    assert caught.value.code == "NO_MODEL_PROVIDER"
    assert text_of(tmp_path, "done").startswith("NoneType config_error")


# -- among other steps -----------------------------------------------------------------------------


def test_in_a_loop_a_reply_is_the_next_input(desk: nr.Harness) -> None:
    step = nr.loop("l", nr.assistant("a", "says"), until=nr.until.max_steps(2))
    run = desk.start(step, "hi")
    assert [shown(item)[:8] for item in run.result().items] == ["assistan"]
    assert [getattr(item, "role", "") for item in run.items()] == ["user", "assistant", "assistant"]


def test_deeply_nested_text_of_a_tool_is_left_as_text(make_harness: Any) -> None:
    @nr.tool
    def words() -> str:
        return "[" * 100_000

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        return {"data": [len(tool.result or "") for tool in tools]}

    harness = make_harness(nr.testing.ScriptedModel(answer), placement="inline")
    reply = harness.run(nr.assistant("a", "tools", tools=[words], next=next), "hi")
    assert reply.next == [0, 0, 0, 0, 100_000]


def test_a_hook_that_captured_a_lock_is_refused_when_it_is_first_given(desk: nr.Harness) -> None:
    lock = threading.Lock()

    def create(ctx: nr.Context, messages: Any) -> None:
        with lock:
            return

    step = nr.assistant("locked", "says", create=create)
    with pytest.raises(nr.ConfigError, match="'lock'") as caught:
        desk.run(step, "hi")
    assert caught.value.code == "UNPICKLABLE_CAPTURE"
    with pytest.raises(nr.ConfigError) as caught:
        nr.Harness(unique("locked"), placement="inline", assistants=[step]).open()
    assert caught.value.code == "UNPICKLABLE_CAPTURE"


# -- in a swarm ------------------------------------------------------------------------------------


def test_hooks_run_where_the_assistant_runs(desk: nr.Harness, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        mark(folder, "next", ctx.id)
        return {"data": (ctx.depth, ctx.request.chat_id)}

    step = nr.assistant("a", "says", next=next)
    run = desk.start(nr.spawn("s", step), "hi", request={"chat_id": "c-1"})
    assert run.result().next == (1, "c-1")
    assert text_of(tmp_path, "next") != run.id


def test_fifty_contexts_side_by_side_each_see_their_own_request(desk: nr.Harness) -> None:
    async def create(ctx: nr.Context, messages: Any) -> Any:
        await asyncio.sleep(0)
        return {"route": f"/{ctx.request.chat_id}"}

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        return {"data": (ctx.request.chat_id, ctx.request.route, shown(messages[-1]))}

    step = nr.assistant("a", "says", create=create, next=next)

    async def all_at_once() -> list[Any]:
        runs = [
            await desk.astart(step, f"hi {n}", request={"chat_id": f"c-{n}"}) for n in range(50)
        ]
        return [await run for run in runs]

    replies = asyncio.run(all_at_once())
    assert [reply.next for reply in replies] == [
        (f"c-{n}", f"/c-{n}", f"user: hi {n}") for n in range(50)
    ]
