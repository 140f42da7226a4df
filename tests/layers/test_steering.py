"""Rules that fail, and rules in a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.layers.hooks import ToolCallParams

SAID = {
    "none": None,
    "true": True,
    "allow": nr.Allow(),
    "guide a": nr.Guide("a"),
    "guide b": nr.Guide("b"),
    "deny x": nr.Deny("x"),
    "deny y": nr.Deny("y"),
}


class Rule:
    def __init__(self, said: str) -> None:
        self.said = said

    def __call__(self, call: Any, ctx: Any) -> Any:
        if self.said == "broken":
            raise RuntimeError("broken")
        return SAID[self.said]


async def judged(*rules: Any, **options: Any) -> Any:
    call = nr.FunctionCallItem(call_id="c", name="t", arguments="{}")
    layer = nr.layers.steering(on_tool=rules, **options)
    return await layer.before_tool_call(ToolCallParams(None, None, None, call, {}))  # type: ignore[arg-type]


@given(st.lists(st.sampled_from([*SAID, "broken"]), max_size=5))
async def test_the_first_denial_wins_else_advice_is_joined(said: list[str]) -> None:
    denials = [SAID[each] for each in said if each.startswith("deny")]
    advice = [SAID[each].text for each in said if each.startswith("guide")]  # type: ignore[union-attr]
    rules = map(Rule, said)
    if denials:
        assert await judged(*rules) == denials[0]
    elif "broken" in said:
        with pytest.raises(RuntimeError, match="broken"):
            await judged(*rules)
    else:
        assert await judged(*rules) == (nr.Guide("\n".join(advice)) if advice else None)


@pytest.mark.parametrize("said", [nr.Guide(""), nr.Deny(" "), nr.Guide(3)])  # type: ignore[arg-type]
async def test_a_verdict_needs_a_text(said: Any) -> None:
    def mute(call: Any, ctx: Any) -> Any:
        return said

    with pytest.raises(ValueError, match="mute"):
        await judged(mute)


async def test_an_abort_passes_through() -> None:
    async def aborted(call: Any, ctx: Any) -> Any:
        raise nr.Cancelled("enough")

    with pytest.raises(nr.Cancelled):
        await judged(aborted, Rule("deny x"))


def test_a_wrong_choice_is_refused_where_it_is_written() -> None:
    with pytest.raises(nr.ConfigError):
        nr.layers.steering(on_error="raise")  # type: ignore[arg-type]


@nr.tool
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


def told(request: Any) -> Any:
    """Call `erase` once, then say what came of it."""
    outputs = [item.output for item in request.items if item.type == "function_call_output"]
    return outputs[-1] if outputs else nr.testing.call("erase", path="a")


@pytest.mark.parametrize(("on_error", "runs"), [("abstain", True), ("deny", False)])
def test_a_broken_rule_is_passed_over_or_denies(
    make_harness: Callable[..., nr.Harness], on_error: Any, runs: bool
) -> None:
    layer = nr.layers.steering(on_tool=[Rule("broken")], on_error=on_error)
    model = nr.testing.ScriptedModel(told)
    harness = make_harness(model, placement="inline", layers=[layer])
    ask = nr.call_model("ask", model="m", tools=[erase])
    assert (harness.run(ask, "go") == "erased a") is runs


def test_answers_are_guided_three_times_and_denied_ones_end_the_step(
    make_harness: Callable[..., nr.Harness],
) -> None:
    calls = []

    def answer(request: Any) -> Any:
        calls.append(request)
        return nr.testing.reply("hi", input_tokens=10, output_tokens=5)

    harness = make_harness(nr.testing.ScriptedModel(answer), placement="inline")
    ask = nr.call_model("ask", model="m", tools=[])
    guided = nr.layers.steering(on_answer=[lambda response, ctx: nr.Guide("shorter")])
    assert harness.run(ask, "go", layers=[guided]) == "hi"
    assert len(calls) == 4
    denied = nr.layers.steering(on_answer=[lambda response, ctx: nr.Deny("never")])
    run = harness.start(ask, "go", layers=[denied])
    with pytest.raises(nr.SteeringDenied, match="never"):
        run.result()
    assert (run.usage.input, run.usage.output) == (10, 5)
    assert [item.role for item in run.items()] == ["user"]  # type: ignore[union-attr]
