#!/usr/bin/env python
"""Several Ray nodes on one machine, for as long as a command runs.

    python cluster/local_cluster.py --nodes 2 --cpus 1 -- python my_driver.py

The command finds the cluster by RAY_ADDRESS, its token by RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH,
and with `--dashboard` the job server by RAY_API_SERVER_ADDRESS. Its exit code is ours. The nodes
keep their files in a directory of their own, so no other Ray program of this machine joins them.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

GRACE = 10.0
"""Seconds a command has after SIGTERM before it is killed."""
_INHERITED = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextlib.contextmanager
def local_cluster(
    nodes: int = 2, cpus: float = 1, *, dashboard: bool = False, auth: bool = True
) -> Iterator[dict[str, str]]:
    """Start `nodes` Ray nodes of `cpus` CPUs; yields the environment for a driver's process.

    Ray reads this process's environment when it is imported: call it before `import ray`.
    """
    # Unix socket paths are limited to 107 bytes: the directory's name must stay short.
    directory = Path(tempfile.mkdtemp(prefix="nr-", dir="/tmp"))
    before = {name: value for name, value in os.environ.items() if name not in _INHERITED}
    try:
        for_driver = _prepare(directory, auth)
        cluster = _start(nodes, cpus, dashboard, for_driver)
        try:
            yield {**before, **for_driver}
        finally:
            cluster.shutdown()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _prepare(directory: Path, auth: bool) -> dict[str, str]:
    """Set what the nodes inherit; the part of it that a driver needs as well."""
    for name in _INHERITED:
        os.environ.pop(name, None)
    os.environ["RAY_TMPDIR"] = str(directory)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = {"RAY_AUTH_MODE": "disabled", "PATH": os.environ["PATH"]}
    if auth:
        token = directory / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        found |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    os.environ.update(found)
    return found


def _start(nodes: int, cpus: float, dashboard: bool, found: dict[str, str]) -> Any:
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    cluster = Cluster()
    try:
        for number in range(nodes):
            # No dashboard port: the first free one from 8265 on. The agents' usual port is taken
            # where another Ray runs on this machine, and jobs need the agents.
            head = {"include_dashboard": dashboard, "dashboard_port": None}
            agent = {"dashboard_agent_listen_port": _free_port()}
            cluster.add_node(num_cpus=cpus, **agent, **(head if number == 0 else {}))
        cluster.wait_for_nodes()
    except BaseException:
        cluster.shutdown()
        raise
    found["RAY_ADDRESS"] = cluster.address
    if dashboard:
        found["RAY_API_SERVER_ADDRESS"] = f"http://{cluster.webui_url}"
    return cluster


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command in the cluster's environment; its exit code, 128 + n after signal n.

    SIGTERM is passed on. Ctrl-C reaches the command from the terminal, so we only wait for it.
    """
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]!r}: {error.strerror}\n")
        return 127

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.terminate()
        raise _Terminated

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, pass_on)
    try:
        code = process.wait()
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = _end(process)
    return code if code >= 0 else 128 - code


def _end(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class _Terminated(BaseException):
    """SIGTERM came."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Run a command on a local Ray cluster of several nodes."
    )
    parser.add_argument("--nodes", type=int, default=2, help="how many Ray nodes (2)")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs that each of them offers (1)")
    parser.add_argument("--dashboard", action="store_true", help="start the job server as well")
    parser.add_argument("--no-auth", action="store_true", help="no token authentication")
    parser.add_argument("command", nargs="+", help="after --: the command and its arguments")
    options = parser.parse_args(arguments)
    if options.nodes < 1:
        parser.error("--nodes must be at least 1")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with local_cluster(
        options.nodes, options.cpus, dashboard=options.dashboard, auth=not options.no_auth
    ) as environment:
        return run(options.command, environment)


if __name__ == "__main__":
    sys.exit(main())
