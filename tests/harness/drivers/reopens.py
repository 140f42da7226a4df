"""Runs a set-up cell again and again, and loses Ray in between."""

from __future__ import annotations

import sys
import threading

import ray

import noetic_ray as nr
from tests.harness.drivers.steps import four_children, harness, says_pid
from tests.support.marks import mark, wait_for


def code_of(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except nr.ConfigError as error:
        return error.code
    return "no error"


def main(folder: str) -> None:
    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2)
    opened = [harness("cell").open() for _ in range(3)]
    mark(folder, "third", opened[2].run(says_pid) > 0)
    mark(folder, "first", code_of(lambda: opened[0].run(says_pid)))

    waiting = opened[2].start(four_children, folder)
    wait_for(folder, *(f"child-{n}" for n in range(4)))
    ends: list[str] = []
    waiter = threading.Thread(target=lambda: ends.append(code_of(waiting.result)))
    waiter.start()
    ray.shutdown()
    waiter.join(20)
    mark(folder, "waiting", ends)
    mark(folder, "stale", code_of(lambda: opened[2].run(says_pid)))

    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2)
    mark(folder, "stale-in-new-ray", code_of(lambda: opened[2].run(says_pid)))
    again = harness("cell")
    mark(folder, "again", again.run(says_pid) > 0)
    again.close()
    mark(folder, "ray-is-theirs", ray.is_initialized())
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
