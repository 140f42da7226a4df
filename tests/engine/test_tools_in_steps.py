"""Tools run as steps, agents offered as tools, and calls that wait for a person."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.wait import wait_until

Make = Callable[..., nr.Harness]


@nr.tool
async def add(a: int, b: int = 10) -> int:
    """Add two numbers."""
    return a + b


@nr.tool
def who(ctx: nr.Context, greeting: str = "hi") -> str:
    return f"{greeting} {ctx.depth} {threading.current_thread().name.startswith('noetic-sync')}"


@nr.tool
async def refuses(_why: str = "") -> None:
    raise LookupError("nothing there")


@nr.tool
async def times_out() -> None:
    raise nr.ChannelTimeout("box", 2.0)


def test_the_input_of_a_tool_step_is_its_arguments(harness: nr.Harness) -> None:
    assert harness.run(nr.invoke_tool("t", add), {"a": 1, "b": 2}) == 3
    assert harness.run(nr.invoke_tool("t", add), {"a": 1}) == 11


def test_preset_arguments_win_over_the_input(harness: nr.Harness) -> None:
    assert harness.run(nr.invoke_tool("t", add, {"a": 2, "b": 2}), {"a": 1}) == 4


def test_a_synchronous_tool_gets_the_context_and_a_thread(harness: nr.Harness) -> None:
    assert harness.run(nr.spawn("s", nr.invoke_tool("t", who))) == "hi 1 True"


@pytest.mark.parametrize("given", [{"a": "x"}, {}, {"a": 1, "c": 2}, "a=1", [1]])
def test_arguments_that_do_not_fit_fail_the_step(harness: nr.Harness, given: Any) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.invoke_tool("add it", add), given)
    assert caught.value.step_id == "add it"
    assert not caught.value.retries_exhausted


def test_another_error_of_a_tool_step_becomes_its_cause(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.invoke_tool("t", refuses))
    assert (caught.value.cause.type, caught.value.cause.message) == (
        "LookupError",
        "nothing there",
    )


def test_an_error_of_ours_from_a_tool_step_passes_unchanged(harness: nr.Harness) -> None:
    with pytest.raises(nr.ChannelTimeout) as caught:
        harness.run(nr.invoke_tool("t", times_out))
    assert caught.value.channel_name == "box"


# -- agents as tools -----------------------------------------------------------------------------


@nr.step
async def shout(text: str, ctx: nr.Context) -> str:
    """Say it louder."""
    ctx.item_log.append(nr.assistant_message("inside"))
    return f"{text.upper()} from depth {ctx.depth}"


@nr.step
async def breaks(text: str, ctx: nr.Context) -> str:
    raise ValueError(f"bad {text}")


def test_an_agent_as_a_tool_step_runs_in_a_child(harness: nr.Harness) -> None:
    run = harness.start(nr.invoke_tool("t", nr.as_tool(shout)), {"input": "hey"})
    assert run.result() == "HEY from depth 1"
    assert run.items() == []
    (child,) = run.tree().children
    assert (child.step, child.items) == ("shout", 1)


def test_the_error_of_an_agent_as_a_tool_step_is_its_own(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.invoke_tool("t", nr.as_tool(breaks)), {"input": "x"})
    assert caught.value.step_id == "breaks"


def test_an_agent_as_a_tool_describes_itself() -> None:
    tool = nr.as_tool(shout, name="louder")
    assert (tool.name, tool.description) == ("louder", "Say it louder.")
    assert tool.parameters["required"] == ["input"]


def _ask_for(tool: str, **args: Any) -> Callable[[Any], Any]:
    def script(request: Any) -> Any:
        done = [item for item in request.items if item.type == "function_call_output"]
        if not done:
            return nr.testing.call(tool, **args)
        return f"got {done[-1].output}"

    return script


def test_a_model_calls_an_agent_as_a_tool(backend: str, make_harness: Make) -> None:
    model = nr.testing.ScriptedModel(_ask_for("shout", input="hey"))
    harness = make_harness(model, placement=backend)
    run = harness.start(nr.call_model("m", "any", tools=[nr.as_tool(shout)]), "go")
    assert run.result() == "got HEY from depth 1"
    types = [item.type for item in run.items()]
    assert types == ["message", "function_call", "function_call_output", "message"]
    assert [child.step for child in run.tree().children] == ["shout"]


# -- approvals -----------------------------------------------------------------------------------


@nr.tool(needs_approval=True)
async def launch(city: str) -> str:
    return f"launched at {city}"


@pytest.fixture
def waiting(backend: str, make_harness: Make) -> Callable[[], tuple[nr.Harness, nr.Run[Any]]]:
    def start() -> tuple[nr.Harness, nr.Run[Any]]:
        model = nr.testing.ScriptedModel(_ask_for("launch", city="Oslo"))
        harness = make_harness(model, placement=backend)
        run = harness.start(nr.call_model("m", "any", tools=[launch]), "go")
        wait_until(harness.approvals, 30)
        return harness, run

    return start


def test_a_call_waits_until_a_person_approves(waiting: Any) -> None:
    harness, run = waiting()
    (asked,) = harness.approvals()
    assert (asked.tool, asked.arguments) == ("launch", {"city": "Oslo"})
    assert asked.run_id == asked.context_id == run.id
    assert run.status == "running"
    harness.approve(asked.id)
    assert run.result() == "got launched at Oslo"
    assert harness.approvals() == []
    types = [event.type for event in run.events() if event.type.startswith("approval.")]
    assert types == ["approval.requested", "approval.answered"]


def test_a_denied_call_tells_the_model_why(waiting: Any) -> None:
    harness, run = waiting()
    harness.deny(harness.approvals()[0].id, "not today")
    assert "not today" in run.result()
    output = run.items()[2]
    assert (output.type, output.status) == ("function_call_output", "failed")
    assert "not today" in output.output


def test_an_abort_ends_the_wait_for_a_person(waiting: Any) -> None:
    harness, run = waiting()
    run.abort("gone home")
    with pytest.raises(nr.Cancelled, match="gone home"):
        run.result()
    assert harness.approvals() == []
    types = [item.type for item in run.items()]
    assert types == ["message", "function_call", "function_call_output"]


def _answer(harness: nr.Harness, run: nr.Run[Any], answer: Callable[[str], None]) -> None:
    wait_until(lambda: [a for a in harness.approvals() if a.run_id == run.id], 30)
    (asked,) = [a for a in harness.approvals() if a.run_id == run.id]
    answer(asked.id)


def test_a_denied_tool_step_raises_steering_denied(harness: nr.Harness) -> None:
    run = harness.start(nr.invoke_tool("t", launch), {"city": "Rome"})
    _answer(harness, run, lambda id: harness.deny(id, "no fuel"))
    with pytest.raises(nr.SteeringDenied) as caught:
        run.result()
    assert caught.value.guidance == "no fuel"


def test_an_approved_tool_step_in_a_child_runs(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", nr.invoke_tool("t", launch)), {"city": "Rome"})
    _answer(harness, run, harness.approve)
    assert run.result() == "launched at Rome"


def test_arguments_are_checked_before_a_person_is_asked(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed):
        harness.run(nr.invoke_tool("t", launch), {"town": "Rome"})


def test_an_unknown_approval_is_refused(make_harness: Make) -> None:
    harness = make_harness(placement="inline").open()
    for answer in (harness.approve, harness.deny):
        with pytest.raises(nr.ConfigError) as caught:
            answer("no such id")
        assert caught.value.code == "UNKNOWN_APPROVAL"


def test_a_call_is_answered_once(waiting: Any) -> None:
    harness, run = waiting()
    (asked,) = harness.approvals()
    harness.approve(asked.id)
    run.result()
    with pytest.raises(nr.ConfigError) as caught:
        harness.deny(asked.id)
    assert caught.value.code == "UNKNOWN_APPROVAL"
