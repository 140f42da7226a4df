"""What the supervisor of a harness on Ray knows of its context actors."""

from __future__ import annotations

from typing import Any

import psutil
import ray

import noetic_ray as nr
from tests.support.wait import wait_until


def supervisor(harness: nr.Harness) -> Any:
    """The supervisor's handle."""
    return ray.get_actor(f"{harness.name}:supervisor", namespace="noetic-ray")


def fleet(harness: nr.Harness) -> list[dict[str, Any]]:
    """Every context actor: id, pid, node, ready, tainted, load, leases."""
    report: list[dict[str, Any]] = ray.get(supervisor(harness).fleet_report.remote(), timeout=10)
    return report


def pids(harness: nr.Harness) -> set[int]:
    """Processes of the context actors that work."""
    return {each["pid"] for each in fleet(harness) if each["ready"]}


def wait_all_free(harness: nr.Harness, timeout: float = 10.0) -> None:
    """Wait until every lease has come back."""
    wait_until(lambda: not any(each["leases"] or each["load"] for each in fleet(harness)), timeout)


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_gone(pid: int, timeout: float = 10.0) -> None:
    """Wait for the end of a process."""
    wait_until(lambda: not alive(pid), timeout)
