"""Whatever a body raises arrives as data that says what happened."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

import noetic_ray as nr


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class HoldsALock(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text today")


class OwnError(nr.NoeticError):
    """One of the user's, below ours."""

    kind = "own_error"

    def __init__(self, city: str) -> None:
        self.city = city
        super().__init__(f"no road to {city}")


def _chained() -> None:
    try:
        try:
            raise KeyError("the first")
        except KeyError as first:
            raise HoldsALock("the second") from first
    except HoldsALock as second:
        raise KeywordOnly(code=3) from second


@nr.step
async def raises(what: str, ctx: nr.Context) -> None:
    if what == "keyword":
        raise KeywordOnly(code=7)
    if what == "lock":
        raise HoldsALock("locked")
    if what == "unprintable":
        raise Unprintable("x")
    if what == "chained":
        _chained()
    if what == "group":
        raise ExceptionGroup("several", [ValueError("one"), KeywordOnly(code=1)])
    if what == "own":
        raise OwnError("Rome")
    if what == "huge":
        raise ValueError("x" * 10_000_000)
    if what == "surrogate":
        raise ValueError("\ud83d")


CASES = [
    ("keyword", "KeywordOnly", "code 7"),
    ("lock", "HoldsALock", "locked"),
    ("chained", "KeywordOnly", "code 3"),
    ("group", "ExceptionGroup", "several (2 sub-exceptions)"),
]


@pytest.mark.parametrize(("what", "type_name", "message"), CASES)
@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: nr.spawn("s", step)])
def test_type_message_and_traceback_survive(
    harness: nr.Harness, what: str, type_name: str, message: str, wrap: Any
) -> None:
    run = harness.start(wrap(raises), what)
    with pytest.raises(nr.StepFailed) as caught:
        run.result()
    cause = caught.value.cause
    assert cause.type.split(".")[-1] == type_name
    assert cause.message == message
    assert "in raises" in cause.traceback
    assert pickle.loads(pickle.dumps(caught.value)) == caught.value
    ended = [event for event in run.events() if event.type == "context.ended"]
    recorded = nr.ErrorRecord.from_dict(ended[0].data["error"]["fields"]["cause"])
    assert recorded == cause


def test_an_exception_without_a_text_still_has_a_type(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.spawn("s", raises), "unprintable")
    assert caught.value.cause.type.endswith("Unprintable")


def test_a_chain_of_causes_survives(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.spawn("s", raises), "chained")
    chain, cause = [], caught.value.cause
    while cause is not None:
        chain.append((cause.type.split(".")[-1], cause.message))
        cause = cause.cause  # type: ignore[assignment]
    assert chain == [
        ("KeywordOnly", "code 3"),
        ("HoldsALock", "the second"),
        ("KeyError", "'the first'"),
    ]


@pytest.mark.parametrize("what", ["huge", "surrogate"])
def test_awkward_messages_end_the_run_like_others(harness: nr.Harness, what: str) -> None:
    run = harness.start(nr.spawn("s", raises), what)
    with pytest.raises(nr.StepFailed) as caught:
        run.result()
    assert caught.value.cause.type == "ValueError"
    assert len(caught.value.cause.message) < 20_000
    assert run.tree().status == "failed"


def test_an_error_below_ours_keeps_its_kind_and_message(harness: nr.Harness) -> None:
    with pytest.raises(nr.NoeticError) as caught:
        harness.run(nr.spawn("s", raises), "own")
    assert caught.value.kind == "own_error"
    assert str(caught.value) == "no road to Rome"


@nr.step
async def tells_the_kind(_: Any, ctx: nr.Context) -> str:
    try:
        await ctx.spawn(raises, "keyword")
    except nr.StepFailed as error:
        return error.cause.type
    return ""


def test_the_type_is_the_qualified_name_bare_for_builtins(harness: nr.Harness) -> None:
    assert harness.run(tells_the_kind) == f"{__name__}.KeywordOnly"


# -- exits ---------------------------------------------------------------------------------------


def _exit(kind: str) -> BaseException:
    return SystemExit(3) if kind == "SystemExit" else KeyboardInterrupt("stop")


@nr.step
async def exits(kind: str, ctx: nr.Context) -> None:
    raise _exit(kind)


@nr.step
def exits_in_a_thread(kind: str, ctx: nr.Context) -> None:
    raise _exit(kind)


@nr.step
async def exits_in_a_task(kind: str, ctx: nr.Context) -> None:
    async def inner() -> None:
        await asyncio.sleep(0)
        raise _exit(kind)

    await asyncio.create_task(inner())


@nr.step
async def exits_in_a_gathered_step(kind: str, ctx: nr.Context) -> None:
    await asyncio.gather(ctx.run(exits, kind), ctx.run(exits_in_a_thread, kind))


@nr.step
async def exits_in_a_group(kind: str, ctx: nr.Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.run(exits, kind))


@nr.step
async def well(_: Any, ctx: nr.Context) -> str:
    return "well"


EXITING = [exits, exits_in_a_thread, exits_in_a_task, exits_in_a_gathered_step]


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
@pytest.mark.parametrize("body", EXITING, ids=lambda step: step.id)
def test_an_exit_in_a_body_is_its_failure_and_hangs_nobody(
    harness: nr.Harness, body: Any, kind: str
) -> None:
    step = nr.in_parallel("p", [body, well], "settle")
    exited, fine = harness.start(step, kind).result(timeout=60)
    assert (exited.status, fine.value) == ("rejected", "well")
    assert isinstance(exited.error, nr.StepFailed)
    assert exited.error.cause.type == kind
    assert harness.run(nr.spawn("s", well)) == "well"


def test_an_exit_in_a_task_group_is_a_failure(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.spawn("s", exits_in_a_group), "SystemExit")
    assert caught.value.cause.type == "ExceptionGroup"
    assert "SystemExit" in caught.value.cause.traceback


@nr.step
async def forgets_a_task_that_exits(kind: str, ctx: nr.Context) -> str:
    async def inner() -> None:
        raise _exit(kind)

    task = asyncio.create_task(inner())
    await asyncio.wait([task])
    return "unaffected"


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
def test_an_exit_in_a_task_nobody_awaits_changes_nothing(harness: nr.Harness, kind: str) -> None:
    assert harness.run(nr.spawn("s", forgets_a_task_that_exits), kind) == "unaffected"


# -- cancellations of the body's own ---------------------------------------------------------------


@nr.step
async def raises_cancelled_error(_: Any, ctx: nr.Context) -> None:
    raise asyncio.CancelledError("mine")


@nr.step
def raises_cancelled_error_in_a_thread(_: Any, ctx: nr.Context) -> None:
    raise asyncio.CancelledError


@nr.step
async def awaits_a_cancelled_future(_: Any, ctx: nr.Context) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@nr.tool
async def tool_raises_cancelled_error() -> None:
    raise asyncio.CancelledError


OWN_CANCELS = [
    raises_cancelled_error,
    raises_cancelled_error_in_a_thread,
    awaits_a_cancelled_future,
    nr.invoke_tool("tool", tool_raises_cancelled_error),
]


@pytest.mark.parametrize("body", OWN_CANCELS, ids=lambda step: step.id)
@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: nr.spawn("s", step)])
def test_a_cancellation_nobody_asked_for_is_a_failure(
    harness: nr.Harness, body: Any, wrap: Any
) -> None:
    run = harness.start(wrap(body))
    with pytest.raises(nr.StepFailed) as caught:
        run.result()
    assert caught.value.cause.type.endswith("CancelledError")
    assert run.status == "failed"
    assert run.tree().status == "failed"


@nr.step(retry=nr.Retry(attempts=2, delay=0.0))
async def cancelled_once(_: Any, ctx: nr.Context) -> str:
    if not ctx.state.get("tried"):
        ctx.state["tried"] = True
        raise asyncio.CancelledError
    return "second time"


def test_it_is_retried_like_other_failures(harness: nr.Harness) -> None:
    assert harness.run(cancelled_once) == "second time"


@nr.step
async def raises_stop_iteration(_: Any, ctx: nr.Context) -> None:
    raise StopAsyncIteration("odd")


@nr.step
def raises_stop_iteration_in_a_thread(_: Any, ctx: nr.Context) -> None:
    raise StopIteration("odd")


@nr.step
async def raises_generator_exit(_: Any, ctx: nr.Context) -> None:
    raise GeneratorExit


@pytest.mark.parametrize(
    "body",
    [raises_stop_iteration, raises_stop_iteration_in_a_thread, raises_generator_exit],
    ids=lambda step: step.id,
)
def test_control_exceptions_are_failures(harness: nr.Harness, body: Any) -> None:
    with pytest.raises(nr.StepFailed):
        harness.run(nr.spawn("s", body))
