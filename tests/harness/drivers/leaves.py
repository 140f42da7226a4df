"""Closes its harness with a task and idle actors left behind in it, and goes on."""

from __future__ import annotations

import sys

from tests.harness.drivers.steps import harness, leaves_a_task, says_pid
from tests.support.marks import mark, wait_for


def main(folder: str) -> None:
    opened = harness()
    opened.run(leaves_a_task, folder)
    opened.map(says_pid, range(4))
    mark(folder, "ready")
    wait_for(folder, "close")
    opened.close()
    mark(folder, "closed")
    wait_for(folder, "exit")


if __name__ == "__main__":
    main(*sys.argv[1:])
