"""Assistants as values: what is checked where they are written, and how they travel."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.closures import check
from noetic_ray.steps.assistant import Completion, check_assistants


def refused(code: str, make: Any) -> nr.ConfigError:
    with pytest.raises(nr.ConfigError) as caught:
        make()
    assert caught.value.code == code
    return caught.value


def create(ctx: nr.Context, messages: Any) -> None:
    """A hook that changes nothing."""


# -- where they are written ------------------------------------------------------------------------


def test_an_assistant_is_a_step_with_a_kind_of_its_own() -> None:
    step = nr.assistant("helper", "model", create=create)
    assert (step.id, step.kind, step.call.id) == ("helper", "assistant", "helper")
    assert repr(step) == "Assistant('helper')"


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("EMPTY_STEP_ID", {"id": " ", "model": "m"}),
        ("MISSING_MODEL", {"id": "a"}),
        ("INVALID_MODEL", {"id": "a", "model": 3}),
        ("INVALID_TOOL", {"id": "a", "model": "m", "tools": [create]}),
        ("INVALID_SETTINGS", {"id": "a", "model": "m", "settings": ["temperature"]}),
        ("INVALID_MAX_ROUNDS", {"id": "a", "model": "m", "max_rounds": 0}),
        ("UNKNOWN_MODE", {"id": "a", "model": "m", "on_refusal": "ask"}),
        ("INVALID_WINDOW", {"id": "a", "model": "m", "window": 3}),
        ("INVALID_CALLBACK", {"id": "a", "model": "m", "create": "a text"}),
    ],
)
def test_what_is_wrong_is_said_where_it_is_written(code: str, arguments: dict[str, Any]) -> None:
    refused(code, lambda: nr.assistant(**arguments))


@pytest.mark.parametrize(
    ("hook", "shape"),
    [
        ("create", "fn(ctx, messages)"),
        ("next", "fn(ctx, messages, completion, tools)"),
        ("done", "fn(ctx, result, error)"),
    ],
)
def test_a_hook_with_other_parameters_is_refused_with_the_shape(hook: str, shape: str) -> None:
    hooks: dict[str, Any] = {hook: lambda ctx: None}
    error = refused("INVALID_CALLBACK", lambda: nr.assistant("a", "m", **hooks))
    assert f"{hook} of step 'a'" in str(error)
    assert shape in str(error)


# -- how they travel -------------------------------------------------------------------------------


def test_an_assistant_with_importable_hooks_pickles() -> None:
    step = nr.assistant("helper", "model", "be kind", create=create, settings={"temperature": 1})
    copy = pickle.loads(pickle.dumps(step))
    assert copy.create is create
    assert (copy.call.instructions, copy.call.settings) == ("be kind", {"temperature": 1})


def test_a_reply_pickles_and_compares_by_value() -> None:
    usage = nr.TokenUsage(3, 2, 5)
    reply = nr.AssistantReply("hi", (nr.user_message("yes"),), usage, {"n": 1}, {"tag": "x"})
    copy = pickle.loads(pickle.dumps(reply))
    assert copy == reply
    with pytest.raises(AttributeError):
        copy.text = "other"


def test_what_hooks_are_told_pickles() -> None:
    completion = Completion("hi", (nr.assistant_message("hi"),), nr.TokenUsage())
    outcome = nr.ToolOutcome("c1", None, "add", {"a": 1}, None, "no")
    assert pickle.loads(pickle.dumps((completion, outcome))) == (completion, outcome)


@pytest.mark.parametrize("hook", ["create", "next", "done"])
def test_a_hook_that_captured_a_lock_is_refused_with_the_variable(hook: str) -> None:
    lock = threading.Lock()

    def two(ctx: Any, messages: Any) -> None:
        with lock:
            return

    def four(ctx: Any, messages: Any, completion: Any, tools: Any) -> None:
        with lock:
            return

    def three(ctx: Any, result: Any, error: Any) -> None:
        with lock:
            return

    hooks: dict[str, Any] = {hook: {"create": two, "next": four, "done": three}[hook]}
    step = nr.assistant("locked", "m", **hooks)
    error = refused("UNPICKLABLE_CAPTURE", lambda: check(step))
    assert "step 'locked'" in str(error)
    assert "'lock'" in str(error)


# -- the harness's assistants ----------------------------------------------------------------------


def test_assistants_are_known_by_their_ids() -> None:
    one, other = nr.assistant("one", "m"), nr.run_code("other", lambda value: value)
    assert check_assistants([one, other]) == {"one": one, "other": other}
    assert check_assistants(iter((one,))) == {"one": one}
    assert check_assistants(()) == {}


def test_the_same_assistant_may_be_given_twice() -> None:
    one = nr.assistant("one", "m")
    assert check_assistants([one, one]) == {"one": one}


def test_two_assistants_with_one_id_are_refused() -> None:
    both = [nr.assistant("one", "m"), nr.assistant("one", "m")]
    assert "'one'" in str(refused("DUPLICATE_ASSISTANT", lambda: check_assistants(both)))


@pytest.mark.parametrize(
    "given", [None, 3, "one", {"one": 1}, nr.assistant("one", "m"), [create], ["one"]]
)
def test_what_is_no_list_of_steps_is_refused(given: Any) -> None:
    refused("INVALID_ASSISTANT", lambda: check_assistants(given))


def test_a_harness_refuses_wrong_assistants_when_it_is_made() -> None:
    assistants: Any = ["helper"]
    refused("INVALID_ASSISTANT", lambda: nr.Harness("a", assistants=assistants))
