"""Layers that judge tool calls and answers, and change what is logged."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_ray as nr


class Judge(nr.ContextLayer):
    """Says the same of every answer and every call."""

    def __init__(self, answers: Any = None, calls: Any = None, id: str = "judge") -> None:
        self.id, self.answers, self.calls = id, answers, calls

    async def after_model_call(self, params: Any) -> Any:
        return self.answers

    async def before_tool_call(self, params: Any) -> Any:
        return self.calls


ask = nr.call_model("ask", model="m", tools=[])


@nr.step
async def accounts(_: Any, ctx: nr.Context) -> dict[str, Any]:
    error = None
    try:
        await ctx.run(ask, "hello")
    except nr.SteeringDenied as denied:
        error = denied.guidance
    roles = [getattr(item, "role", item.type) for item in ctx.item_log]
    return {
        "roles": roles,
        "input": ctx.tokens.input,
        "output": ctx.tokens.output,
        "error": error,
        "usage": ctx.last_layer_usage is not None,
    }


def test_advice_is_given_three_times_then_the_answer_is_taken(telling: nr.Harness) -> None:
    found = telling.run(accounts, layers=[Judge(nr.Guide("shorter"))])
    assert found["roles"] == ["user", "developer", "developer", "developer", "assistant"]
    assert (found["input"], found["output"]) == (40, 20)
    assert found["usage"]


def test_a_denied_answer_is_not_logged_and_its_spend_is_kept(telling: nr.Harness) -> None:
    found = telling.run(accounts, layers=[Judge(nr.Deny("never"))])
    assert found["roles"] == ["user"]
    assert (found["input"], found["output"], found["error"]) == (10, 5, "never")
    assert not found["usage"]


def test_advice_of_several_layers_is_joined(telling: nr.Harness) -> None:
    layers = [Judge(nr.Guide("one"), id="a"), Judge(nr.Guide("two"), id="b")]

    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> str:
        await ctx.run(ask, "hello")
        return nr.item_text(ctx.item_log[1])

    assert telling.run(asks, layers=layers) == "one\ntwo"


def test_the_first_denial_wins(telling: nr.Harness) -> None:
    layers = [Judge(nr.Guide("one"), id="a"), Judge(nr.Deny("no"), id="b")]
    assert telling.run(accounts, layers=layers)["error"] == "no"


@nr.tool
def double(n: int) -> int:
    """Twice n."""
    return 2 * n


def call_then_tell(request: Any) -> Any:
    outputs = [item.output for item in request.items if item.type == "function_call_output"]
    if outputs:
        return nr.testing.reply(outputs[-1])
    return nr.testing.reply(calls=[nr.testing.call(request.model, n=21)])


@pytest.fixture
def calling(make_harness: Any, backend: str) -> nr.Harness:
    model = nr.testing.ScriptedModel(call_then_tell)
    return make_harness(model, placement=backend, tools=[double])


def test_a_denied_call_gets_an_error_output(calling: nr.Harness) -> None:
    step = nr.call_model("ask", model="double")
    assert calling.run(step, "go", layers=[Judge(calls=nr.Deny("not you"))]) == ("error: not you")
    assert calling.run(step, "go", layers=[Judge(calls=nr.Guide("try less"))]) == (
        "error: try less"
    )
    assert calling.run(step, "go", layers=[Judge(calls=nr.Allow())]) == "42"


def test_a_tool_run_as_a_step_is_guarded_too(calling: nr.Harness) -> None:
    step = nr.invoke_tool("t", double, {"n": 4})
    assert calling.run(step, layers=[Judge()]) == 8
    with pytest.raises(nr.SteeringDenied, match="not you"):
        calling.run(step, layers=[Judge(calls=nr.Deny("not you"))])


class Breaks(Judge):
    async def before_tool_call(self, params: Any) -> Any:
        raise RuntimeError("broken")


class BreaksClosed(Breaks):
    on_before_tool_call_error = "deny"


def test_a_guard_that_fails_abstains_or_denies(calling: nr.Harness) -> None:
    step = nr.call_model("ask", model="double")
    assert calling.run(step, "go", layers=[Breaks()]) == "42"
    assert calling.run(step, "go", layers=[BreaksClosed()]).startswith("error: ")


class Redacts(nr.ContextLayer):
    id = "redacts"

    async def on_item_append(self, params: Any) -> Any:
        changed = []
        for item in params.items:
            if item.type == "function_call_output":
                item = item.model_copy(update={"output": item.output.replace("4", "*")})
            else:
                item = nr.user_message(nr.item_text(item).replace("secret", "***"))
            changed.append(item)
        return changed


def test_what_is_logged_passes_through_the_layers(calling: nr.Harness) -> None:
    step = nr.call_model("ask", model="double")
    run = calling.start(step, "a secret", layers=[Redacts()])
    assert run.result() == "*2"
    assert nr.item_text(run.items()[0]) == "a ***"


def test_an_output_cannot_be_made_to_vanish(calling: nr.Harness) -> None:
    class Drops(nr.ContextLayer):
        id = "drops"

        async def on_item_append(self, params: Any) -> Any:
            return [item for item in params.items if item.type != "function_call_output"]

    run = calling.start(nr.call_model("ask", model="double"), "go", layers=[Drops()])
    assert run.result() == "42"
    assert "layer.diagnostic" in {event.type for event in run.events()}


async def enlarge(args: int, state: Any, ctx: nr.Context) -> nr.Provided:
    """Add to the state."""
    return nr.Provided(state + args, state + args)


class Sum(nr.ContextLayer):
    id = "double"
    provides = {
        "it": nr.layer_function(enlarge, input=int),
        "value": nr.layer_data(lambda state: state),
    }

    async def init(self, params: Any) -> int:
        return 0


def test_a_model_calls_a_layer_s_function_by_its_wire_name(make_harness: Any, backend: str) -> None:
    def script(request: Any) -> Any:
        outputs = [item.output for item in request.items if item.type == "function_call_output"]
        if outputs:
            return nr.testing.reply(outputs[-1])
        (tool,) = request.tools
        return nr.testing.reply(calls=[nr.testing.call(tool.name, args=5)])

    harness = make_harness(nr.testing.ScriptedModel(script), placement=backend, layers=[Sum()])

    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> Any:
        said = await ctx.run(nr.call_model("ask", model="m"), "go")
        return [said, ctx.context["double"].value]

    assert harness.run(asks) == ["5", 5]


def test_a_list_of_tools_leaves_layer_functions_out_unless_they_are_named(
    telling: nr.Harness,
) -> None:
    import json

    def offered(tools: Any) -> Any:
        step = nr.call_model("ask", model="m", tools=tools)
        return json.loads(telling.run(step, "x", layers=[Sum()]))["tools"]

    assert offered(None) == ["double_it"]
    assert offered([]) == []
    assert offered([double]) == ["double"]
    assert offered([double, nr.layer_tools()]) == ["double", "double_it"]
    assert offered([nr.layer_tools("other")]) == []
