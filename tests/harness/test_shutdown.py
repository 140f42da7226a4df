"""How drivers end: by themselves, by signals, by force; and what notebooks do to a harness."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.fleet import alive
from tests.support.marks import beats, mark, text_of, wait_for
from tests.support.wait import stays, wait_until

ROOT = Path(__file__).parents[2]
PATIENCE = 100
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a driver with a folder to leave signs in; what is left of it is killed."""
    started: list[subprocess.Popen[bytes]] = []
    trees: list[psutil.Process] = []

    def begin(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        command = [sys.executable, "-m", f"tests.harness.drivers.{name}", str(tmp_path), *arguments]
        with (tmp_path / ".output").open("wb") as output:
            driver = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        started.append(driver)
        return driver

    yield begin
    for driver in started:
        if driver.poll() is None:
            trees += psutil.Process(driver.pid).children(recursive=True)
            driver.kill()
        driver.wait(10)
    for process in trees:
        if process.is_running():
            process.kill()


def family(driver: subprocess.Popen[bytes]) -> list[int]:
    """The processes a driver has started, and theirs.

    Without the two agents of Ray that notice the end of their raylet only after a minute.
    """
    children = psutil.Process(driver.pid).children(recursive=True)
    return [child.pid for child in children if not child.name().endswith("Agent")]


def wait_all_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(alive(pid) for pid in pids), 20)


def output(folder: Path) -> str:
    return (folder / ".output").read_text(errors="replace")


def test_a_harness_that_is_closed_leaves_nothing_behind(tmp_path: Path, start: Start) -> None:
    driver = start("leaves")
    wait_for(tmp_path, "ready", timeout=PATIENCE)
    started = family(driver)
    assert len(started) > 4
    left_behind = len(text_of(tmp_path, "task-beats"))
    assert stays(lambda: len(text_of(tmp_path, "task-beats")) == left_behind, 0.2)
    mark(tmp_path, "close")
    wait_for(tmp_path, "closed")
    wait_all_gone(started)
    assert driver.poll() is None
    mark(tmp_path, "exit")
    assert driver.wait(20) == 0
    assert "Traceback" not in output(tmp_path)


def test_ctrl_c_aborts_the_tree_and_the_next_run_works(tmp_path: Path, start: Start) -> None:
    """That driver ends without closing its harness."""
    driver = start("blocks")
    wait_for(tmp_path, *(f"child-{n}" for n in range(4)), timeout=PATIENCE)
    started = family(driver)
    driver.send_signal(signal.SIGINT)
    wait_for(tmp_path, "interrupted")
    assert {text_of(tmp_path, f"end-{n}") for n in range(4)} == {"interrupted"}
    assert driver.wait(30) == 0
    assert text_of(tmp_path, "after") == "['cancelled'] True"
    assert "Traceback" not in output(tmp_path)
    wait_all_gone(started)


def test_ctrl_c_stops_a_body_that_spins_in_this_process(tmp_path: Path, start: Start) -> None:
    driver = start("spins")
    wait_for(tmp_path, "spins", timeout=PATIENCE)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(20) == 0, output(tmp_path)
    assert text_of(tmp_path, "again") == "works"
    assert "Traceback" not in output(tmp_path)


@pytest.mark.parametrize("program", ["blocks", "blocks_async"])
def test_sigterm_aborts_the_tree_and_ends_the_driver_within_three_seconds(
    tmp_path: Path, start: Start, program: str
) -> None:
    driver = start(program)
    wait_for(tmp_path, *(f"child-{n}" for n in range(4)), timeout=PATIENCE)
    started = family(driver)
    asked = time.monotonic()
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(20) != 0
    assert time.monotonic() - asked < 3
    assert {text_of(tmp_path, f"end-{n}") for n in range(4)} == {"terminated"}
    wait_all_gone(started)


def test_nothing_outlives_a_driver_that_is_killed(tmp_path: Path, start: Start) -> None:
    driver = start("blocks")
    wait_for(tmp_path, *(f"child-{n}" for n in range(4)), timeout=PATIENCE)
    started = family(driver)
    driver.kill()
    driver.wait(10)
    wait_all_gone(started)
    left = beats(tmp_path)
    assert stays(lambda: beats(tmp_path) == left, 0.3)


def test_blocking_methods_work_inside_a_running_loop(tmp_path: Path, start: Start) -> None:
    driver = start("in_a_loop")
    assert driver.wait(110) == 0, output(tmp_path)
    assert text_of(tmp_path, "in-a-loop") == "True"
    assert text_of(tmp_path, "after-the-loop") == "True"
    assert "never awaited" not in output(tmp_path)


def test_a_set_up_cell_can_be_run_again_and_a_lost_ray_is_named(
    tmp_path: Path, start: Start
) -> None:
    driver = start("reopens")
    assert driver.wait(110) == 0, output(tmp_path)
    said = {name: text_of(tmp_path, name) for name in ("third", "first", "waiting", "stale")}
    assert said == {
        "third": "True",
        "first": "HARNESS_CLOSED",
        "waiting": "['SESSION_ENDED']",
        "stale": "SESSION_ENDED",
    }
    assert text_of(tmp_path, "stale-in-new-ray") == "SESSION_ENDED"
    assert text_of(tmp_path, "again") == "True"
    assert text_of(tmp_path, "ray-is-theirs") == "True"


def test_a_small_object_store_holds_what_agents_return(tmp_path: Path, start: Start) -> None:
    driver = start("fills_the_store")
    assert driver.wait(110) == 0, output(tmp_path)
    outputs: Any = json.loads(text_of(tmp_path, "outputs").replace("(", "[").replace(")", "]"))
    assert outputs == [[30_000_000, n, n] for n in range(8)]
    assert json.loads(text_of(tmp_path, "lengths")) == [5_000, 5_000 - 49 * 99, 100]
    assert float(text_of(tmp_path, "used")) < 30
