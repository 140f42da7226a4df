"""Clusters of several nodes, each in processes of its own, and drivers that join them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
DRIVERS = Path(__file__).parent / "drivers"
LAUNCHER = ROOT / "cluster" / "local_cluster.py"


@dataclass(frozen=True)
class Running:
    """A cluster that runs: the environment its drivers need, and the process that holds it."""

    env: Mapping[str, str]
    process: subprocess.Popen[str]

    @property
    def address(self) -> str:
        """HOST:PORT of its head."""
        return self.env["RAY_ADDRESS"]

    @property
    def url(self) -> str:
        """Its job server."""
        return self.env["RAY_API_SERVER_ADDRESS"]

    def driver(self, name: str, *arguments: str, **changes: str | None) -> Any:
        """Run a driver in it; what it prints last, as JSON."""
        return drive(name, *arguments, env=changed(self.env, changes))


def drive(name: str, *arguments: str, env: Mapping[str, str], cwd: Path = ROOT) -> Any:
    """Run a script of `drivers`; what it prints last, as JSON."""
    done = run_driver(name, *arguments, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run_driver(
    name: str, *arguments: str, env: Mapping[str, str], cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a script of `drivers`."""
    return run([sys.executable, str(DRIVERS / f"{name}.py"), *arguments], env=env, cwd=cwd)


def run(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a command with its output captured."""
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=100, check=False
    )


def changed(env: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """An environment with some variables set, and those that are None removed."""
    return {k: v for k, v in {**env, **changes}.items() if v is not None}


@pytest.fixture(scope="session")
def bare_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that knows of no Ray cluster and no token: a home of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**env, "HOME": str(tmp_path_factory.mktemp("home"))}


@contextlib.contextmanager
def cluster_of(bare_env: Mapping[str, str], *options: str) -> Iterator[Running]:
    """Start a cluster with the shipped launcher; nothing of it is left afterwards."""
    hold = [sys.executable, str(DRIVERS / "hold.py")]
    process = subprocess.Popen(
        [sys.executable, str(LAUNCHER), *options, "--", *hold],
        env=dict(bare_env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        line = process.stdout.readline()
        started = psutil.Process(process.pid).children(recursive=True) if line else []
        try:
            assert line, "the cluster did not start"
            yield Running(json.loads(line), process)
        finally:
            process.stdin.close()
            code = process.wait(60)
    assert code == 7, "the launcher passes the exit code of its command on"
    wait_until(lambda: not any(each.is_running() for each in started), 30)


@pytest.fixture(scope="package")
def cluster(bare_env: dict[str, str]) -> Iterator[Running]:
    """Two nodes of one CPU, with a job server and token authentication."""
    with cluster_of(bare_env, "--nodes", "2", "--cpus", "1", "--dashboard") as running:
        yield running


@pytest.fixture(scope="package")
def open_cluster(bare_env: dict[str, str]) -> Iterator[Running]:
    """One node of one CPU, without authentication."""
    with cluster_of(bare_env, "--nodes", "1", "--cpus", "1", "--no-auth") as running:
        yield running
