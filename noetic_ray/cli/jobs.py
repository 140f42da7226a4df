"""Jobs of a Ray cluster, through its job server: connect, start, follow, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from noetic_ray.cli.common import FAILED, INTERRUPTED, say
from noetic_ray.errors import ConfigError

CONNECT_SECONDS = 5.0
STOP_SECONDS = 15.0
MAX_BREAKS = 5
"""How often in a row the connection may break before following is given up."""
RETRY_SECONDS = 0.2
_ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
_LOGGERS = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk")


def connect(address: str) -> Any:
    """A client of the job server at an http(s) URL.

    Raises ConfigError: RAY_CLIENT_REFUSED for `ray://`, INVALID_ADDRESS, RAY_UNREACHABLE,
    RAY_AUTHENTICATION.
    """
    _reach(address)
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    from noetic_ray.harness import ray_address

    ray_address.refresh_authentication()
    for name in ("ray", *_LOGGERS):
        logging.getLogger(name).setLevel(logging.ERROR)
    sent = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    try:
        with _without(_ADDRESSES):
            return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise ray_address.unauthenticated(
            address, sent and "no authentication token" not in str(error)
        ) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(address, str(error)) from error


def _reach(address: str) -> None:
    """Refuse what is no job server's URL; find out within seconds that nobody listens."""
    from noetic_ray.harness.ray_address import refuse_url

    if address.startswith("ray://"):
        refuse_url(address)
    url = urlsplit(address)
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        port = 0
    if url.scheme not in ("http", "https") or not url.hostname or not port:
        raise ConfigError(
            "INVALID_ADDRESS",
            f"{address} is not the URL of a job server",
            "it is like http://HEAD:8265: the address of the cluster's dashboard",
        )
    try:
        socket.create_connection((url.hostname, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, why: str) -> ConfigError:
    return ConfigError(
        "RAY_UNREACHABLE",
        f"no job server answers at {address}: {why[:300]}",
        "it is part of the head node's dashboard (port 8265; on Kubernetes: kubectl port-forward "
        "service/<cluster>-head-svc 8265)",
    )


@contextlib.contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Ray prefers these variables to the address it is given."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def start(
    client: Any,
    entrypoint: str,
    working_dir: Path,
    excludes: Sequence[str],
    gitignore: bool,
    variables: Mapping[str, str],
) -> str:
    """Upload the directory and start the job; its submission id.

    Raises ConfigError JOB_REFUSED.
    """
    from ray._private.ray_constants import RAY_RUNTIME_ENV_IGNORE_GITIGNORE

    runtime_env: dict[str, Any] = {"working_dir": str(working_dir), "excludes": list(excludes)}
    if variables:
        runtime_env["env_vars"] = dict(variables)
    try:
        with _without([RAY_RUNTIME_ENV_IGNORE_GITIGNORE]):
            os.environ[RAY_RUNTIME_ENV_IGNORE_GITIGNORE] = "0" if gitignore else "1"
            return str(client.submit_job(entrypoint=entrypoint, runtime_env=runtime_env))
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError("JOB_REFUSED", f"the job was not started: {error}") from error


def follow(client: Any, job: str, *, stop_on_interrupt: bool) -> int:
    """Print a job's log as it is written; the job's exit code once it has ended.

    After Ctrl-C the job is stopped, or left alone, and the code is 130.
    """
    try:
        asyncio.run(_tail(client, job))
        return _exit_code(_wait(client, job, None))
    except KeyboardInterrupt:
        if stop_on_interrupt:
            _stop(client, job)
        else:
            say(f"job {job} goes on; stop it with: ray job stop {job}")
        return INTERRUPTED


async def _tail(client: Any, job: str) -> None:
    """Print the log; when the connection breaks, begin again after what was printed."""
    from aiohttp import ClientError

    printed = breaks = 0
    while True:
        seen = 0
        try:
            async for text in client.tail_job_logs(job):
                new = text[max(0, printed - seen) :]
                seen += len(text)
                if new:
                    print(new, end="", flush=True)
                    printed, breaks = seen, 0
            return
        except (RuntimeError, OSError, ClientError) as error:
            breaks += 1
            if breaks > MAX_BREAKS:
                raise ConfigError(
                    "RAY_UNREACHABLE",
                    f"the log of job {job} cannot be followed: {error}",
                    "the job itself may go on",
                ) from error
            await asyncio.sleep(RETRY_SECONDS * 2**breaks)


def _wait(client: Any, job: str, seconds: float | None) -> Any:
    """The job's details once it has ended, or after so many seconds."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        details = client.get_job_info(job)
        if details.status.is_terminal() or (deadline and time.monotonic() > deadline):
            return details
        time.sleep(0.2)


def _exit_code(details: Any) -> int:
    """What the job's process ended with, 128 + n after signal n; 1 when it never ran."""
    status = details.status.value
    if status == "SUCCEEDED":
        return 0
    code = details.driver_exit_code
    if status == "STOPPED":
        say("the job was stopped")
        return FAILED
    if code is None:
        say(f"the job failed: {details.message}")
        return FAILED
    say(f"the job failed with exit code {code}")
    return 128 - code if code < 0 else code or FAILED


def _stop(client: Any, job: str) -> None:
    """Stop a job and wait for it; a second Ctrl-C ends the waiting."""
    say(f"stopping job {job}")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt, RuntimeError, ConnectionError):
        client.stop_job(job)
        details = _wait(client, job, STOP_SECONDS)
        say(f"job {job} is {details.status.value.lower()}")
        return
    say(f"job {job} may still run; see: ray job status {job}")
