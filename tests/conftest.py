"""One Ray session per test process, harnesses on both backends, and a check for leftovers."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import ray

import noetic_ray as nr
from tests.support.ids import plain_id
from tests.support.scripts import play

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
_numbers = itertools.count(1)
BACKENDS = ("inline", "actor")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: the commands under test would inherit deaf ears.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray of two CPUs for the whole session, unless one is already there."""
    mine = not ray.is_initialized()
    if mine:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=300 * 1024 * 1024,
        )
    yield
    _close_shared()
    if mine:
        ray.shutdown()


def unique(prefix: str) -> str:
    """A harness name nobody else uses."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def make_harness(request: pytest.FixtureRequest) -> Iterator[Callable[..., nr.Harness]]:
    """Makes harnesses with names of their own; all are closed after the test.

    `placement="inline"` needs no Ray; for anything else the session's Ray is used.
    """
    made: list[nr.Harness] = []

    def make(model: Any = None, **options: Any) -> nr.Harness:
        placement = options.get("placement", "actor")
        mode = placement if isinstance(placement, str) else placement.mode
        if mode != "inline":
            request.getfixturevalue("ray_cluster")
        options.setdefault("placement", "actor")
        harness = nr.Harness(unique("test"), model, **options)
        made.append(harness)
        return harness

    yield make
    for harness in made:
        harness.close()


_shared: dict[str, nr.Harness] = {}


def _shared_harness(backend: str, request: pytest.FixtureRequest) -> nr.Harness:
    if backend not in _shared:
        if backend != "inline":
            request.getfixturevalue("ray_cluster")
        _shared[backend] = nr.Harness(
            unique(f"shared-{backend}"),
            nr.testing.ScriptedModel(play),
            placement=backend,
            kill_after=2.0,
        ).open()
    return _shared[backend]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn: tests of the engine run on both."""
    return str(request.param)


@pytest.fixture
def harness(backend: str, request: pytest.FixtureRequest) -> nr.Harness:
    """A harness shared by the whole session, on each backend in turn.

    Its model plays the script named by a step's `model` (see tests/support/scripts.py). Tests
    that need settings of their own use `make_harness`.
    """
    return _shared_harness(backend, request)


@pytest.fixture
def ray_harness(request: pytest.FixtureRequest) -> nr.Harness:
    """The shared harness on Ray."""
    return _shared_harness("actor", request)


@pytest.fixture(scope="session", autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the last test no thread, child process or actor of ours is left."""
    yield
    _close_shared()
    ours_before = not ray.is_initialized()
    if ours_before:
        _expect_gone(_threads, "threads")
        _expect_gone(_processes, "processes")


def _close_shared() -> None:
    for shared in _shared.values():
        shared.close()
    _shared.clear()


def _threads() -> list[str]:
    """Threads of harnesses; idle pool threads end by themselves within seconds."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("noetic-run", "noetic-watchdog", "noetic-shared", "noetic-test"))
    ]


def _processes() -> list[str]:
    names = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "raylet" in line or "gcs_server" in line or line.startswith("ray::"):
            names.append(line[:120])
    return names


def _expect_gone(find: Callable[[], list[str]], what: str) -> None:
    deadline = time.monotonic() + 10.0
    while find() and time.monotonic() < deadline:
        time.sleep(0.05)
    left = find()
    assert not left, f"{what} left running: {left}"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Ids without addresses: every process that collects the tests must find the same."""
    try:
        return plain_id(val) if " at 0x" in repr(val) else None
    except ValueError:  # a number of too many digits to be shown
        return None
