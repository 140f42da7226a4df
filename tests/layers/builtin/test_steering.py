"""Rules on tool calls and answers."""

from __future__ import annotations

from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.layers.hooks import ModelCallParams, Response, ToolCallParams


async def judge_call(layer: Any, name: str = "delete_all") -> Any:
    call = nr.FunctionCallItem(call_id="c", name=name, arguments="{}")
    return await layer.before_tool_call(ToolCallParams(None, None, None, call, {}))  # type: ignore[arg-type]


async def judge_answer(layer: Any, *items: Any) -> Any:
    return await layer.after_model_call(ModelCallParams(None, None, None, Response(items)))  # type: ignore[arg-type]


async def test_tools_are_allowed_and_denied_by_name() -> None:
    layer = nr.layers.steering(deny_tools=["delete_*"])
    assert isinstance(await judge_call(layer), nr.Deny)
    assert await judge_call(layer, "read") is None
    only = nr.layers.steering(allow_tools=["read", "web_*"])
    assert await judge_call(only, "web_search") is None
    assert isinstance(await judge_call(only, "write"), nr.Deny)


async def test_rules_say_no_opinion_allow_guide_or_deny() -> None:
    async def advises(call: Any, ctx: Any) -> Any:
        return nr.Guide(f"not {call.name}")

    layer = nr.layers.steering(on_tool=[lambda call, ctx: None, advises, advises])
    assert await judge_call(layer, "x") == nr.Guide("not x\nnot x")
    denies = nr.layers.steering(on_tool=[advises, lambda call, ctx: False])
    assert isinstance(await judge_call(denies), nr.Deny)
    assert await judge_call(nr.layers.steering(on_tool=[lambda call, ctx: True])) is None


async def test_only_answers_are_judged() -> None:
    layer = nr.layers.steering(on_answer=[lambda response, ctx: nr.Deny(response.text)])
    assert await judge_answer(layer, nr.assistant_message("hi")) == nr.Deny("hi")
    call = nr.FunctionCallItem(call_id="c", name="x", arguments="{}")
    assert await judge_answer(layer, nr.assistant_message("hi"), call) is None


async def test_a_rule_that_answers_nonsense_is_named() -> None:
    def odd(call: Any, ctx: Any) -> Any:
        return "yes"

    with pytest.raises(TypeError, match="odd"):
        await judge_call(nr.layers.steering(on_tool=[odd]))


def test_wrong_rules_are_refused() -> None:
    for wrong in (
        lambda: nr.layers.steering(on_tool=lambda call, ctx: None),  # type: ignore[arg-type]
        lambda: nr.layers.steering(on_tool=[lambda: None]),  # type: ignore[list-item, misc]
        lambda: nr.layers.steering(deny_tools="delete"),
    ):
        with pytest.raises(nr.ConfigError):
            wrong()
