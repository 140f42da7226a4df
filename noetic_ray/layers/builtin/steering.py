"""Rules on what tools may be called and what answers are taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from noetic_ray.errors import Cancelled, ConfigError
from noetic_ray.items import FunctionCallItem
from noetic_ray.layers import slots
from noetic_ray.layers.base import ContextLayer, OnToolCallError, check_layer
from noetic_ray.layers.builtin.calling import called
from noetic_ray.layers.hooks import (
    Allow,
    Deny,
    Guide,
    Judgement,
    ModelCallParams,
    Response,
    ToolCallParams,
)
from noetic_ray.signatures import check_callback, name_of

Verdict: TypeAlias = "Judgement | bool | None"
ToolRule: TypeAlias = "Callable[[FunctionCallItem, Any], Verdict | Awaitable[Verdict]]"
AnswerRule: TypeAlias = "Callable[[Response, Any], Verdict | Awaitable[Verdict]]"


class Steering(ContextLayer[Any]):
    """Rules for tool calls, `rule(call, ctx)`, and for answers, `rule(response, ctx)`.

    A rule, sync or async, returns None (no opinion), True or `nr.Allow()`, `nr.Guide(text)` or
    `nr.Deny(text)` (False denies without a reason). The first denial ends it; guidance of several
    rules is joined. A rule that raises is reported and has no opinion; the guidance of the others
    is lost with it, their denials are not. A call that is guided or denied is not run, its output
    says why; an answer that is guided is thrown away and asked for again, at most three times in
    a step and then taken, one that is denied raises SteeringDenied. `allow_tools` and
    `deny_tools` are patterns of tool names, such as "web_*". `on_error="deny"` denies a tool call
    when a rule of `on_tool` fails.

    Example: `nr.layers.steering(deny_tools=["delete_*"], on_answer=[no_links])`.

    Has no state.
    """

    scope = "execution"

    def __init__(
        self,
        *,
        on_tool: Iterable[ToolRule] = (),
        on_answer: Iterable[AnswerRule] = (),
        allow_tools: Iterable[str] | None = None,
        deny_tools: Iterable[str] = (),
        id: str = "steering",
        slot: float = slots.STEERING,
        on_error: OnToolCallError = "abstain",
    ) -> None:
        self.id = id
        self.slot = slot
        self.on_before_tool_call_error = on_error
        self.on_tool = _rules(id, "on_tool", on_tool, "call")
        self.on_answer = _rules(id, "on_answer", on_answer, "response")
        self.allow_tools: tuple[str, ...] | None = None
        if allow_tools is not None:
            self.allow_tools = _patterns(id, "allow_tools", allow_tools)
        self.deny_tools = _patterns(id, "deny_tools", deny_tools)
        check_layer(self)

    async def before_tool_call(self, params: ToolCallParams) -> Judgement | None:
        """Names first, then the rules."""
        name = params.call.name
        if any(fnmatchcase(name, pattern) for pattern in self.deny_tools):
            return Deny(f"the tool {name} must not be used here")
        if self.allow_tools is not None and not any(
            fnmatchcase(name, pattern) for pattern in self.allow_tools
        ):
            return Deny(f"the tool {name} must not be used here")
        return await _judged(self.on_tool, params.call, params.ctx)

    async def after_model_call(self, params: ModelCallParams) -> Judgement | None:
        """Answers are judged; a round that calls tools is none yet."""
        if params.response.calls:
            return None
        return await _judged(self.on_answer, params.response, params.ctx)


async def _judged(rules: Iterable[Any], what: Any, ctx: Any) -> Judgement | None:
    advice: list[str] = []
    failure: Exception | None = None
    for rule in rules:
        try:
            verdict = _verdict(rule, await called(rule, what, ctx))
        except Cancelled:
            raise
        except Exception as error:
            # A rule that is broken must not keep a later one from denying.
            failure = error if failure is None else failure
            continue
        if isinstance(verdict, Deny):
            return verdict
        if isinstance(verdict, Guide):
            advice.append(verdict.text)
    if failure is not None:
        raise failure
    return Guide("\n".join(advice)) if advice else None


def _verdict(rule: Any, said: Any) -> Judgement | None:
    if said is None or said is True:
        return None
    if said is False:
        return Deny(f"refused by the rule {name_of(rule)}")
    if isinstance(said, Guide | Deny):
        if not isinstance(said.text, str) or not said.text.strip():
            raise ValueError(f"the rule {name_of(rule)} gave {said!r}; the model needs a text")
        return said
    if isinstance(said, Allow):
        return said
    raise TypeError(
        f"the rule {name_of(rule)} returned {type(said).__name__}, not nr.Allow, nr.Guide, nr.Deny,"
        " a bool or None"
    )


def _rules(id: str, what: str, rules: Iterable[Any], name: str) -> tuple[Any, ...]:
    if callable(rules):
        raise ConfigError(
            "INVALID_LAYER", f"{what} of layer {id!r} is a function", "Give a list of rules."
        )
    kept = tuple(rules)
    for rule in kept:
        check_callback(f"a rule in {what} of layer {id!r}", rule, name, "ctx")
    return kept


def _patterns(id: str, what: str, patterns: Iterable[str]) -> tuple[str, ...]:
    kept = tuple(patterns)
    if isinstance(patterns, str) or not all(isinstance(each, str) and each for each in kept):
        raise ConfigError(
            "INVALID_LAYER", f"{what} of layer {id!r} is {patterns!r}", "Give a list of patterns."
        )
    return kept
