"""Following a job's log over a connection that breaks, and what its end means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus

from noetic_ray import ConfigError
from noetic_ray.cli import jobs


class Server:
    """A job server whose log connection breaks after so many chunks, each time it is opened."""

    def __init__(self, breaks: list[int], status: JobStatus, code: int | None) -> None:
        self.breaks = breaks
        self.details = SimpleNamespace(status=status, driver_exit_code=code, message="why")
        self.stopped: list[str] = []

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        """The whole log from its beginning, in other chunks each time."""
        log = "one\ntwo\nthree\n"
        size = 3 + len(self.breaks)
        last = self.breaks.pop(0) if self.breaks else None
        for number, start in enumerate(range(0, len(log), size)):
            if number == last:
                raise RuntimeError("WebSocket connection closed unexpectedly")
            yield log[start : start + size]

    def get_job_info(self, job: str) -> Any:
        """The job has ended."""
        return self.details

    def stop_job(self, job: str) -> None:
        """Remember it."""
        self.stopped.append(job)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "RETRY_SECONDS", 0.0)


@pytest.mark.parametrize("breaks", [[], [0], [1], [2, 0, 1], [1, 1, 1, 1, 1]])
def test_a_log_is_printed_once_however_often_the_connection_breaks(
    breaks: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(list(breaks), JobStatus.SUCCEEDED, 0)
    assert jobs.follow(server, "job", stop_on_interrupt=True) == 0
    assert capsys.readouterr().out == "one\ntwo\nthree\n"
    assert server.stopped == []


def test_following_is_given_up_when_the_connection_keeps_breaking() -> None:
    server = Server([0] * 50, JobStatus.RUNNING, None)
    with pytest.raises(ConfigError, match="cannot be followed") as caught:
        jobs.follow(server, "job", stop_on_interrupt=True)
    assert caught.value.code == "RAY_UNREACHABLE"


@pytest.mark.parametrize(
    ("status", "code", "expected", "told"),
    [
        (JobStatus.SUCCEEDED, 0, 0, ""),
        (JobStatus.FAILED, 3, 3, "exit code 3"),
        (JobStatus.FAILED, -9, 137, "exit code -9"),
        (JobStatus.FAILED, None, 1, "the job failed: why"),
        (JobStatus.STOPPED, None, 1, "the job was stopped"),
    ],
)
def test_the_exit_code_is_that_of_the_job(
    status: JobStatus,
    code: int | None,
    expected: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server([], status, code)
    assert jobs.follow(server, "job", stop_on_interrupt=True) == expected
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("stop", [True, False])
def test_ctrl_c_stops_the_job_unless_it_is_to_be_left(
    stop: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(client: Any, job: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "_tail", interrupted)
    server = Server([], JobStatus.STOPPED, None)
    assert jobs.follow(server, "job", stop_on_interrupt=stop) == 130
    assert server.stopped == (["job"] if stop else [])
    told = capsys.readouterr().err
    assert ("job job is stopped" if stop else "ray job stop job") in told
