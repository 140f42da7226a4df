"""A swarm on two nodes, names in a cluster, and a launcher that leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import DRIVERS, LAUNCHER, Running, drive, run
from tests.support.wait import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_swarm_has_contexts_on_both_nodes_of_a_cluster(cluster: Running) -> None:
    found = cluster.driver("swarm")
    assert found["output"] == ["an answer"] * 4
    assert found["status"] == "completed"
    assert sorted(found["steps"]) == ["collector", "lead"] + ["researcher"] * 4
    assert found["tokens"] == 20
    assert len(set(found["nodes"])) == 2
    assert len(set(found["pids"])) > 2


@contextlib.contextmanager
def named(cluster: Running, name: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that has a harness open; it does its next part for each line it is given."""
    process = subprocess.Popen(
        [sys.executable, str(DRIVERS / "named.py"), name],
        env=dict(cluster.env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> Any:
    """The next thing the driver says."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def go_on(process: subprocess.Popen[str]) -> None:
    """Let the driver do its next part."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_harness_name_belongs_to_one_driver_until_that_is_gone(cluster: Running) -> None:
    with named(cluster, "taken") as driver:
        assert heard(driver) == {"value": 42}
        other = cluster.driver("join", "auto", "--name=taken")
        assert other["code"] == "HARNESS_NAME_TAKEN"
        assert "'taken' is open in another driver" in other["text"]
        assert other["hint"]

        go_on(driver)
        assert heard(driver) == {"value": 8, "first": "HARNESS_CLOSED"}

        driver.send_signal(signal.SIGKILL)
        driver.wait()
        wait_until(lambda: cluster.driver("join", "auto", "--name=taken")["value"] == 42, 40)


def test_a_relative_store_is_a_file_of_the_driver_s_folder(
    cluster: Running, tmp_path: Path
) -> None:
    assert drive("join", "auto", "--store=runs.db", env=cluster.env, cwd=tmp_path)["value"] == 42
    assert (tmp_path / "runs.db").is_file()


def test_a_swarm_goes_on_when_a_node_goes_and_uses_one_that_comes(
    bare_env: dict[str, str],
) -> None:
    with tempfile.TemporaryDirectory(prefix="nr-", dir="/tmp") as folder:
        env = {**bare_env, "RAY_TMPDIR": folder, "RAY_AUTH_MODE": "disabled"}
        found = drive("nodes_change", env=env)
    assert set(found["after_loss"]) == {found["head"]}
    assert set(found["after_growth"]) == {found["head"], found["third"]}


def test_the_launcher_s_exit_code_is_that_of_its_command(bare_env: dict[str, str]) -> None:
    launcher = runpy.run_path(str(LAUNCHER))
    ends_with = [sys.executable, "-c"]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert launcher["run"]([*ends_with, "raise SystemExit(3)"], bare_env) == 3
        killed = "import os; os.kill(os.getpid(), 9)"
        assert launcher["run"]([*ends_with, killed], bare_env) == 128 + signal.SIGKILL
        assert launcher["run"](["/no/such/command"], bare_env) == 127
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_the_launcher_explains_its_options(bare_env: dict[str, str]) -> None:
    done = run([sys.executable, str(LAUNCHER), "--nodes", "0", "--", "true"], env=bare_env)
    assert done.returncode == 2
    assert "--nodes must be at least 1" in done.stderr
