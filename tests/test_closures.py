from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import io
import logging
import os
import pickle
import queue
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from noetic_ray import steps, until
from noetic_ray.closures import check
from noetic_ray.context import Context
from noetic_ray.errors import ConfigError
from noetic_ray.testing import ScriptedModel
from noetic_ray.tools import as_tool, tool

ROOT = Path(__file__).resolve().parent.parent
module_lock = threading.Lock()


@steps.step
def guarded(value: int) -> int:
    with module_lock:
        return value


@tool
def guarded_tool(value: int) -> int:
    with module_lock:
        return value


def locked(value: int) -> int:
    with module_lock:
        return value


class Harness:
    __noetic_refuse__ = "harness"


def refusal(obj: object, dumps: Callable[[object], bytes] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(obj, dumps)
    assert caught.value.code == "UNPICKLABLE_CAPTURE"
    assert caught.value.hint
    return caught.value


def using(captured: Any) -> Any:
    """A step whose body captures a variable named `captured`."""
    return steps.run_code("worker", lambda value: (captured, value))


@pytest.fixture
def unpicklable() -> Iterator[dict[str, Any]]:
    """One of each thing that belongs to this process alone."""
    httpx, aiohttp = pytest.importorskip("httpx"), pytest.importorskip("aiohttp")

    async def coroutine() -> None: ...

    loop, left, executor = (
        asyncio.new_event_loop(),
        socket.socket(),
        concurrent.futures.ThreadPoolExecutor(),
    )
    started, client = coroutine(), httpx.Client()
    opened = Path(os.devnull).open()  # noqa: SIM115
    waiting = loop.create_future()
    yield {
        "lock": threading.Lock(),
        "rlock": threading.RLock(),
        "event": threading.Event(),
        "condition": threading.Condition(),
        "async lock": asyncio.Lock(),
        "thread": threading.Thread(target=print),
        "socket": left,
        "file": opened,
        "loop": loop,
        "future": waiting,
        "thread future": concurrent.futures.Future(),
        "executor": executor,
        "generator": (n for n in range(3)),
        "coroutine": started,
        "queue": queue.Queue(),
        "client": client,
        "async client": httpx.AsyncClient(),
        "session": object.__new__(aiohttp.ClientSession),
        "context": object.__new__(Context),
        "harness": Harness(),
    }
    started.close()
    client.close()
    left.close()
    opened.close()
    executor.shutdown()
    loop.close()


def test_each_thing_of_this_process_is_refused_by_name(unpicklable: dict[str, Any]) -> None:
    for what, captured in unpicklable.items():
        error = refusal(using(captured))
        assert "step 'worker'" in str(error), what
        assert "captured variable 'captured" in str(error), what


def test_the_error_says_what_it_is_and_what_to_do(unpicklable: dict[str, Any]) -> None:
    assert "is a lock" in str(refusal(using(unpicklable["lock"])))
    assert "HTTP client" in str(refusal(using(unpicklable["async client"])))
    assert "is a harness" in str(refusal(using(unpicklable["harness"])))
    assert "ctx: nr.Context" in str(refusal(using(unpicklable["context"])).hint)
    assert "Open it inside" in str(refusal(using(unpicklable["file"])).hint)


def test_lambdas_and_ordinary_data_are_fine() -> None:
    scale, table = (lambda value: value * 2), {"a": [1, (2, {3})], "b": None}
    logger, buffer = logging.getLogger("tests"), io.StringIO("text")
    check(using((scale, table, logger, buffer, sys, Path("a"), len, int, sys.stdout)))


def test_a_class_may_be_captured_where_its_instance_may_not() -> None:
    check(using((Harness, Context, threading.Lock, threading.Thread)))


def test_what_travels_by_name_brings_nothing_along() -> None:
    check(guarded)
    check(guarded_tool)
    check(steps.run_code("plain", locked))
    check(using(locked))
    check(steps.call_model("m", "gpt", tools=[guarded_tool, as_tool(guarded)]))


def test_globals_of_a_local_function_are_looked_at() -> None:
    def body(value: int) -> int:
        def inner() -> bool:
            return module_lock.locked()

        return value + inner()

    assert "'module_lock'" in str(refusal(steps.run_code("a", body)))


def test_defaults_partials_methods_and_objects_are_looked_into() -> None:
    lock = threading.Lock()

    class Service:
        def __init__(self) -> None:
            self.parts = {"guard": [lock]}

        def work(self, value: int) -> int:
            return value

        def __call__(self, value: int) -> int:
            return value

    @dataclass(frozen=True, slots=True)
    class Slotted:
        guard: Any

    def with_default(value: int, guard: Any = lock) -> int:
        return value

    def two(guard: Any, value: int) -> int:
        return value

    def keyword(value: int, guard: Any) -> int:
        return value

    found = {
        str(refusal(steps.run_code("a", body))).split("variable ")[1].split(" ")[0]
        for body in (
            with_default,
            functools.partial(two, lock),
            functools.partial(keyword, guard=lock),
            Service().work,
            Service(),
        )
    }
    assert found == {
        "'guard'",
        "'[0]'",
        "\"self.parts['guard'][0]\"",
        "\"parts['guard'][0]\"",
    }
    assert "'captured.guard'" in str(refusal(using(Slotted(lock))))


def test_a_function_behind_a_captured_function_is_followed() -> None:
    lock = threading.Lock()

    def helper() -> bool:
        return lock.locked()

    assert "'helper.lock'" in str(refusal(steps.run_code("a", lambda value: helper())))


def test_the_innermost_step_or_tool_is_named() -> None:
    lock = threading.Lock()

    @tool
    def search(text: str) -> bool:
        return lock.locked()

    inner = steps.run_code("inner", lambda value: lock.locked())
    agent = steps.call_model("agent", "gpt", tools=[search])
    nests: list[Any] = [
        agent,
        steps.loop("l", [guarded, agent], until.never()),
        steps.call_model("m", "gpt", tools=[as_tool(agent)]),
        steps.invoke_tool("t", search),
    ]
    for nest in nests:
        assert "tool 'search'" in str(refusal(nest))
        assert "'lock'" in str(refusal(nest))
    for nest in (
        steps.spawn("s", inner),
        steps.in_parallel("p", [guarded, inner]),
        steps.every("e", inner, 1.0),
        steps.sequence("q", [inner]),
        steps.conditional("c", lambda value, ctx: inner),
    ):
        assert "step 'inner'" in str(refusal(nest))


def test_callbacks_and_predicates_belong_to_their_step() -> None:
    lock = threading.Lock()

    def judge(output: Any) -> bool:
        return lock.locked()

    belonging: list[Any] = [
        steps.loop("outer", guarded, until.max_steps(3) | until.verified(judge)),
        steps.loop("outer", guarded, until.never(), prepare_next=lambda out, v, ctx: judge(out)),
        steps.in_parallel("outer", [], merge=lambda results, ctx: judge(results)),
        steps.call_model("outer", "gpt", lambda ctx: str(judge(ctx))),
    ]
    for made in belonging:
        error = str(refusal(made))
        assert "step 'outer'" in error
        assert "lock" in error


def test_a_scripted_model_is_checked_like_a_step() -> None:
    lock = threading.Lock()
    assert "'lock'" in str(refusal(ScriptedModel(lambda request: str(lock))))
    check(ScriptedModel(lambda request: "hi"))


def test_an_object_that_decides_how_it_is_pickled_is_trusted() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __getstate__(self) -> dict[str, Any]:
            return {}

    check(using(Lazy()))


def test_cycles_and_big_data_end_quickly() -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: Any = None
    for _ in range(5_000):
        deep = [deep]
    check(using((ring, deep, list(range(1_000_000)), {n: [n] for n in range(100_000)})))


def test_a_variable_not_assigned_yet_is_no_problem() -> None:
    def body(value: int) -> Any:
        return later

    check(steps.run_code("a", body))
    later = 1
    assert body(0) == later


def test_the_pickler_has_the_last_word_and_the_variable_is_named() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise TypeError("I stay here")

    stubborn, data = Stubborn(), [1, 2]
    step = steps.run_code("a", lambda value: (data, stubborn))

    def dumps(obj: object) -> bytes:
        if obj is step or obj is stubborn or obj is step.execute:
            raise TypeError("I stay here\nsecond line")
        return b""

    error = refusal(step, dumps)
    assert "step 'a'" in str(error)
    assert "'stubborn'" in str(error)
    assert "TypeError: I stay here" in str(error)
    assert "second line" not in str(error)
    assert isinstance(error.__cause__, TypeError)


def test_a_pickler_that_agrees_is_all_it_takes() -> None:
    asked: list[object] = []

    def dumps(obj: object) -> bytes:
        asked.append(obj)
        return pickle.dumps(obj)

    check(guarded, dumps)
    assert asked == [guarded]


def test_an_error_of_ours_from_pickling_is_kept() -> None:
    def dumps(obj: object) -> bytes:
        raise ConfigError("INVALID_TOOL_SIGNATURE", "no", "hint")

    with pytest.raises(ConfigError) as caught:
        check(guarded, dumps)
    assert caught.value.code == "INVALID_TOOL_SIGNATURE"


def test_what_is_written_in_a_script_is_checked_with_the_real_pickler(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(_SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert "step 'count'" in first
    assert "'lock'" in first
    assert "tool 'ask'" in second
    assert "'Service.shared'" in second
    assert third == "fine"


_SCRIPT = """
    from __future__ import annotations
    import enum, threading
    from dataclasses import dataclass
    from pydantic import BaseModel
    import ray.cloudpickle
    from noetic_ray import steps
    from noetic_ray.closures import check
    from noetic_ray.errors import ConfigError
    from noetic_ray.tools import tool

    lock = threading.Lock()

    class Service:
        shared = threading.Event()

    class Mood(enum.Enum):
        GOOD = 1

    class Query(BaseModel):
        text: str = "a"

    @dataclass
    class Point:
        mood: Mood = Mood.GOOD

    def helper(value):
        return Query(text=str(value)), Point()

    @steps.step
    def count(value: int) -> int:
        with lock:
            return value

    @tool
    def ask(query: Query) -> int:
        return Service.shared.is_set()

    @tool
    def good(query: Query) -> str:
        return str(helper(query))

    for made in (count, ask, steps.call_model("m", "gpt", tools=[good], output=Query)):
        try:
            check(made, ray.cloudpickle.dumps)
        except ConfigError as error:
            print(error)
        else:
            print("fine")
"""
