"""Agents submitted as jobs to a cluster's job server, and what is refused before that."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import pytest

from tests.cluster.conftest import Running, changed, run

pytestmark = pytest.mark.ray
COMMAND = [sys.executable, "-m", "noetic_ray.cli", "submit"]
AGENT = '''
import asyncio, os, pathlib
import noetic_ray as nr

print("agent is loaded", flush=True)


@nr.step
async def greets(name: str, ctx: nr.Context) -> str:
    """Wait for a file, so that somebody can watch."""
    while not pathlib.Path(os.environ["GATE"]).exists():
        await asyncio.sleep(0.02)
    return pathlib.Path("prompts/hello.txt").read_text() + name


@nr.step
async def fails(name: str, ctx: nr.Context) -> str:
    raise ValueError(f"no luck, {name}")
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working directory with an agent."""
    root = tmp_path / "project"
    (root / "prompts").mkdir(parents=True)
    (root / "prompts" / "hello.txt").write_text("hello ")
    (root / "team.py").write_text(AGENT)
    return root


def submit(
    env: Mapping[str, str], project: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in the project to its end."""
    return run([*COMMAND, *arguments], env=env, cwd=project)


@contextlib.contextmanager
def submitting(
    env: Mapping[str, str], project: Path, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the command in the project and watch it."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=dict(env),
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(text: str, stream: IO[str] | None) -> None:
    """Read lines until one has a text."""
    assert stream is not None
    assert any(text in line for line in stream), f"{text!r} never came"


@pytest.mark.slow
def test_a_job_is_followed_while_it_runs_and_its_output_printed(
    cluster: Running, project: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    arguments = ["team:greets", "--input", "it's you", "--needs", "prompts", f"--env=GATE={gate}"]
    with submitting(cluster.env, project, *arguments) as process:
        read_until("agent is loaded", process.stdout)
        assert process.poll() is None
        gate.touch()
        output, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert output.splitlines()[-1] == "hello it's you"
    assert "files: 2" in told


@pytest.mark.slow
def test_a_job_whose_agent_fails_ends_with_its_exit_code(cluster: Running, project: Path) -> None:
    done = submit(cluster.env, project, "team:fails", "--input", "friend")
    assert done.returncode == 1
    assert "ValueError: no luck, friend" in done.stdout
    assert "the job failed with exit code 1" in done.stderr


@pytest.mark.slow
def test_ctrl_c_stops_the_job(cluster: Running, project: Path, tmp_path: Path) -> None:
    never = f"--env=GATE={tmp_path / 'never'}"
    with submitting(cluster.env, project, "team:greets", "-i", "x", never) as process:
        read_until("agent is loaded", process.stdout)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping job" in told
    assert "is stopped" in told


@pytest.mark.slow
def test_without_waiting_the_job_s_id_is_printed(cluster: Running, project: Path) -> None:
    done = submit(cluster.env, project, "team:fails", "--no-wait")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("raysubmit_")
    assert f"ray job logs {done.stdout.strip()} --follow" in done.stderr


def test_a_working_directory_over_the_limit_is_refused_before_anything_is_sent(
    bare_env: dict[str, str], project: Path, dead_url: str
) -> None:
    with (project / "checkpoint.bin").open("wb") as file:
        file.truncate(101 * 2**20)
    done = submit(bare_env, project, "team:greets", "--address", dead_url)
    assert done.returncode == 1
    assert "WORKING_DIR_TOO_LARGE" in done.stderr
    assert "101.0 MiB  checkpoint.bin" in done.stderr
    assert "RAY_UNREACHABLE" not in done.stderr


def test_an_ignored_file_that_is_needed_is_refused_before_anything_is_sent(
    bare_env: dict[str, str], project: Path, dead_url: str
) -> None:
    (project / ".gitignore").write_text("prompts/\n")
    arguments = ["team:greets", "--address", dead_url]
    refused = submit(bare_env, project, *arguments, "--needs", "prompts/hello.txt")
    assert refused.returncode == 1
    assert "NEEDED_FILES_MISSING" in refused.stderr
    assert "prompts/hello.txt is ignored by .gitignore" in refused.stderr

    only_mentioned = submit(bare_env, project, *arguments)
    assert "team.py mentions 'prompts/hello.txt', which is ignored" in only_mentioned.stderr
    assert "RAY_UNREACHABLE" in only_mentioned.stderr


@pytest.fixture
def dead_url() -> str:
    """A job server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_addresses_that_are_no_job_server_are_refused(
    bare_env: dict[str, str], project: Path, dead_url: str
) -> None:
    client = submit(bare_env, project, "team:greets", "--address", "ray://head:10001")
    assert client.returncode == 1
    assert "RAY_CLIENT_REFUSED" in client.stderr
    cluster_address = submit(bare_env, project, "team:greets", "--address", "head:6379")
    assert "INVALID_ADDRESS" in cluster_address.stderr
    assert "http://HEAD:8265" in cluster_address.stderr
    dead = submit(bare_env, project, "team:greets", "--address", dead_url)
    assert dead.returncode == 1
    assert "RAY_UNREACHABLE" in dead.stderr
    assert "port-forward" in dead.stderr


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN_PATH": None}, "set RAY_AUTH_MODE=token"),
        ({"RAY_AUTH_TOKEN_PATH": None, "RAY_AUTH_TOKEN": "0" * 64}, "does not accept this token"),
    ],
    ids=["none", "wrong"],
)
def test_a_submission_without_the_cluster_s_token_is_refused(
    cluster: Running, project: Path, changes: dict[str, str | None], told: str
) -> None:
    done = submit(changed(cluster.env, changes), project, "team:greets")
    assert done.returncode == 1
    assert "RAY_AUTHENTICATION" in done.stderr
    assert told in done.stderr


def test_an_input_too_long_for_a_command_line_has_to_be_a_file_that_is_sent(
    bare_env: dict[str, str], project: Path, dead_url: str, tmp_path: Path
) -> None:
    outside = tmp_path / "long.txt"
    outside.write_text("x" * 100_001)
    arguments = ["team:greets", "--address", dead_url, "--input"]
    done = submit(bare_env, project, *arguments, f"@{outside}")
    assert done.returncode == 2
    assert "put them into a file of" in done.stderr
    (project / "long.txt").write_text(outside.read_text())
    (project / ".rayignore").write_text("long.txt\n")
    done = submit(bare_env, project, *arguments, "@long.txt")
    assert done.returncode == 1
    assert "long.txt is ignored by .rayignore" in done.stderr
