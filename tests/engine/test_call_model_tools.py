"""The tool calls of a model: side by side, in order, and when they go wrong."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.wait import wait_until

Talk = nr.Harness


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    city: str
    zip: int = 0


@nr.tool
async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@nr.tool
async def nothing_needed() -> str:
    return "called"


@nr.tool
async def visit(place: Place) -> str:
    return f"{place.city} {place.zip}"


@nr.tool
def breaks(how: str = "ValueError") -> None:
    if how == "SystemExit":
        raise SystemExit(3)
    if how == "CancelledError":
        raise asyncio.CancelledError
    raise ValueError("the tool broke")


@nr.tool
async def breaks_softly(how: str) -> None:
    breaks(how)


@nr.tool
async def odd_values(what: str) -> Any:
    return {
        "surrogate": "\ud83d",
        "nan": float("nan"),
        "infinity": [float("inf"), 1],
        "huge": 10**5000,
        "bytes": {"data": b"\xff", "other": 1},
        "time": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
        "none": None,
    }[what]


@nr.tool
async def finishes(value: str, ctx: nr.Context) -> str:
    ctx.complete(value)
    return "finishing"


TOOLS = [note, nothing_needed, visit, breaks, breaks_softly, odd_values, finishes]


def _calls(*calls: tuple[str, ...], **more: Any) -> Any:
    """A model step that asks for calls given as (name, arguments, id, status)."""
    full = [(*call, *("x", "completed")[len(call) - 2 :]) for call in calls]
    unique_ids = [
        (name, text, id if id != "x" else f"call-{n}", status)
        for n, (name, text, id, status) in enumerate(full)
    ]
    more.setdefault("tools", TOOLS)
    return nr.call_model("m", "calls_in_settings", settings={"calls": unique_ids}, **more)


def _outputs(run: nr.Run[Any]) -> list[nr.FunctionCallOutputItem]:
    return [item for item in run.items() if isinstance(item, nr.FunctionCallOutputItem)]


def test_rounds_go_on_until_no_tool_is_called(talk: Talk) -> None:
    run = talk.start(nr.call_model("m", "tools_in_turn", tools=TOOLS), "go")
    assert run.result() == "noted 0,noted 1,noted 2,noted 3"
    types = [item.type for item in run.items()]
    assert types == ["message", *["function_call", "function_call_output"] * 4, "message"]


# -- order ---------------------------------------------------------------------------------------


def _meeting(names: tuple[str, str]) -> tuple[Any, Any]:
    return tuple(nr.channel(name, str, mode="queue") for name in names)  # type: ignore[return-value]


@nr.tool
async def waits_for_the_other(first: str, second: str, ctx: nr.Context) -> str:
    one, two = _meeting((first, second))
    await ctx.send(one, "here")
    return await ctx.recv(two, timeout=60)


@nr.tool
async def answers_the_other(first: str, second: str, ctx: nr.Context) -> str:
    one, two = _meeting((first, second))
    await ctx.recv(one, timeout=60)
    await ctx.send(two, "met")
    return "answered"


def test_calls_of_a_round_run_side_by_side_and_are_logged_in_call_order(talk: Talk) -> None:
    arguments = f'{{"first": "{unique("a")}", "second": "{unique("b")}"}}'
    step = _calls(
        ("waits_for_the_other", arguments, "c1"),
        ("answers_the_other", arguments, "c2"),
        tools=[waits_for_the_other, answers_the_other],
    )
    run = talk.start(step, "go")
    assert run.result() == "done"
    assert [(each.call_id, each.output) for each in _outputs(run)] == [
        ("c1", "met"),
        ("c2", "answered"),
    ]


def test_a_failing_call_leaves_its_siblings_alone(talk: Talk) -> None:
    step = _calls(("note", '{"text": "a"}'), ("breaks", "{}"), ("note", '{"text": "c"}'))
    run = talk.start(step, "go")
    assert run.result() == "done"
    first, second, third = _outputs(run)
    assert (first.output, third.output) == ("noted a", "noted c")
    assert (first.status, second.status) == ("completed", "failed")
    assert "ValueError: the tool broke" in second.output


@pytest.mark.parametrize("tool", ["breaks", "breaks_softly"])
@pytest.mark.parametrize("how", ["SystemExit", "CancelledError"])
def test_an_exit_or_cancellation_raised_by_a_tool_is_its_failure(
    talk: Talk, tool: str, how: str
) -> None:
    run = talk.start(_calls((tool, f'{{"how": "{how}"}}'), ("note", '{"text": "b"}')), "go")
    assert run.result() == "done"
    failed, fine = _outputs(run)
    assert (failed.status, fine.output) == ("failed", "noted b")
    assert how in failed.output
    assert run.status == "completed"


# -- arguments -----------------------------------------------------------------------------------


BAD = [
    "{",
    "null",
    "[]",
    '"x"',
    "",
    '{"text": "a"}{"text": "b"}',
    '{"text": "a", "text": "b"}',
    '{"text": NaN}',
    '{"text": 1}',
    '{"txt": "a"}',
    '{"text": "a", "more": 1}',
    "x" * 1_000_000,
    '{"text": "\\ud83d"}',
]


@pytest.mark.parametrize("arguments", BAD, ids=[each[:16] or "empty" for each in BAD])
def test_unusable_arguments_get_an_error_output_and_the_conversation_goes_on(
    talk: Talk, arguments: str
) -> None:
    run = talk.start(_calls(("note", arguments), ("note", '{"text": "fine"}')), "go")
    assert run.result() == "done"
    bad, good = _outputs(run)
    assert (bad.status, good.status, good.output) == ("failed", "completed", "noted fine")
    assert "note" in bad.output
    assert '"text"' in bad.output  # the schema
    assert len(bad.output) < 6_000
    failed = [event for event in run.events() if event.type == "tool.failed"]
    assert [event.data["tool"] for event in failed] == ["note"]


@pytest.mark.parametrize("arguments", ["", "{}", "  "])
def test_no_arguments_are_fine_for_a_tool_that_takes_none(talk: Talk, arguments: str) -> None:
    run = talk.start(_calls(("nothing_needed", arguments)), "go")
    run.result()
    assert _outputs(run)[0].output == "called"


def test_arguments_arrive_as_the_types_of_the_tool(talk: Talk) -> None:
    run = talk.start(_calls(("visit", '{"place": {"city": "Oslo", "zip": 150}}')), "go")
    run.result()
    assert _outputs(run)[0].output == "Oslo 150"


def test_an_unknown_tool_gets_an_error_output_naming_the_known(talk: Talk) -> None:
    run = talk.start(_calls(("fly", "{}"), ("note", '{"text": "a"}')), "go")
    assert run.result() == "done"
    unknown, fine = _outputs(run)
    assert (unknown.status, fine.output) == ("failed", "noted a")
    assert "fly" in unknown.output
    assert "nothing_needed" in unknown.output


def test_a_tool_that_is_not_offered_is_not_run(talk: Talk) -> None:
    run = talk.start(_calls(("nothing_needed", "{}"), tools=[note]), "go")
    run.result()
    assert _outputs(run)[0].status == "failed"


def test_a_call_that_was_cut_off_is_not_run(talk: Talk) -> None:
    """What was cut off may look complete."""
    step = _calls(
        ("nothing_needed", "{}", "c1", "incomplete"), ("note", '{"text": "a"}', "c2", "completed")
    )
    run = talk.start(step, "go")
    assert run.result() == "done"
    cut, fine = _outputs(run)
    assert (cut.status, fine.output) == ("failed", "noted a")
    assert "cut off" in cut.output


# -- ids -----------------------------------------------------------------------------------------


def test_call_ids_that_repeat_or_are_empty_are_made_unique(talk: Talk) -> None:
    ids = ["same", "same", "", ""]
    calls = [("note", f'{{"text": "{n}"}}', id) for n, id in enumerate(ids)]
    run = talk.start(_calls(*calls), "go")
    run.result()
    asked = [item for item in run.items() if isinstance(item, nr.FunctionCallItem)]
    given = [item.call_id for item in asked]
    assert len(set(given)) == 4
    assert all(given)
    assert [item.provider_call_id for item in asked] == [None, "same", "", ""]
    assert [(each.call_id, each.output) for each in _outputs(run)] == [
        (id, f"noted {n}") for n, id in enumerate(given)
    ]


def test_a_call_id_of_an_earlier_round_is_made_unique(talk: Talk) -> None:
    run = talk.start(nr.call_model("m", "calls_same_id", tools=TOOLS), "go")
    assert run.result() == "done"
    asked = [item for item in run.items() if isinstance(item, nr.FunctionCallItem)]
    assert len({item.call_id for item in asked}) == 3
    assert [item.provider_call_id for item in asked] == [None, "same", "same"]
    assert [each.call_id for each in _outputs(run)] == [item.call_id for item in asked]


def test_a_path_does_not_reuse_a_call_id_it_inherited(talk: Talk) -> None:
    step = _calls(("note", '{"text": "a"}', "same"))
    ask = nr.call_model("m", "calls_same_id", tools=TOOLS)
    run = talk.start(nr.sequence("s", [step, nr.in_parallel("p", [ask])]), "go")
    assert run.result() == ["done"]
    path = run.items(run.tree().children[0].id)
    asked = [item.call_id for item in path if isinstance(item, nr.FunctionCallItem)]
    assert len(asked) == len(set(asked)) == 3


def test_calls_in_a_refusal_are_answered_and_not_run(talk: Talk) -> None:
    step = nr.call_model("m", "refuses_and_calls", tools=TOOLS, on_refusal="return")
    run = talk.start(step, "go")
    assert run.result() == "no"
    (output,) = _outputs(run)
    assert (output.status, output.call_id) == ("failed", "c")
    assert "refusal" in output.output


# -- limits --------------------------------------------------------------------------------------


def test_more_rounds_than_allowed_fail_the_step_and_keep_the_log(talk: Talk) -> None:
    run = talk.start(nr.call_model("m", "asks_for_ever", tools=TOOLS, max_rounds=3), "go")
    with pytest.raises(nr.StepFailed) as caught:
        run.result()
    assert "3 rounds" in caught.value.cause.message
    types = [item.type for item in run.items()]
    assert types == ["message", *["function_call", "function_call_output"] * 3]


@nr.step
async def completes(_: Any, ctx: nr.Context) -> str:
    return await ctx.run(_calls(("finishes", '{"value": "early"}')), "go")


def test_a_tool_may_complete_its_context(talk: Talk) -> None:
    run = talk.start(completes)
    assert run.result() == "early"
    assert run.status == "completed"
    assert [each.output for each in _outputs(run)] == ["finishing"]
    started = [event for event in run.events() if event.type == "model.started"]
    assert len(started) == 1  # nothing is paid for after the end


# -- odd values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("surrogate", "\ufffd"),
        ("nan", "NaN"),
        ("infinity", '["Infinity",1]'),
        ("bytes", '{"data":"_w==","other":1}'),
        ("time", "2026-01-02T00:00:00Z"),
        ("none", "null"),
    ],
)
def test_odd_values_have_one_written_form(talk: Talk, what: str, shown: str) -> None:
    run = talk.start(_calls(("odd_values", f'{{"what": "{what}"}}')), "go")
    assert run.result() == "done"
    assert _outputs(run)[0].output == shown


def test_a_number_of_thousands_of_digits_is_written_out(talk: Talk) -> None:
    run = talk.start(_calls(("odd_values", '{"what": "huge"}')), "go")
    assert run.result() == "done"
    assert _outputs(run)[0].output == "1" + "0" * 5000


# -- aborts --------------------------------------------------------------------------------------


@nr.tool
async def quick(folder: str) -> str:
    Path(folder, "quick").touch()
    return "quick result"


@nr.tool
async def slow(folder: str) -> str:
    Path(folder, "slow").touch()
    await asyncio.Event().wait()
    return "never"


def test_an_abort_leaves_an_output_for_every_call(talk: Talk, tmp_path: Path) -> None:
    arguments = f'{{"folder": "{tmp_path}"}}'
    step = _calls(
        ("slow", arguments), ("quick", arguments), ("slow", arguments), tools=[quick, slow]
    )
    run = talk.start(step, "go")
    wait_until(lambda: {"quick", "slow"} <= {each.name for each in tmp_path.iterdir()}, 30)
    wait_until(lambda: any(e.type == "tool.completed" for e in _so_far(run)), 30)
    run.abort("changed my mind")
    with pytest.raises(nr.Cancelled, match="changed my mind"):
        run.result()
    first, second, third = _outputs(run)
    assert (second.output, second.status) == ("quick result", "completed")
    for cut in (first, third):
        assert "cancelled" in cut.output
        assert cut.status == "incomplete"


def _so_far(run: nr.Run[Any]) -> list[nr.Event]:
    """Events there are now."""
    found = []
    for event in run.events():
        found.append(event)
        if event.type == "tool.completed":
            return found
    return found
