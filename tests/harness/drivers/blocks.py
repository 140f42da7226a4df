"""Waits in `run` for four children that never end; says how that came to an end.

It does not close its harness.
"""

from __future__ import annotations

import sys

from tests.harness.drivers.steps import four_children, harness, says_pid
from tests.support.marks import mark


def main(folder: str) -> None:
    opened = harness()
    try:
        opened.run(four_children, folder)
    except KeyboardInterrupt:
        mark(folder, "interrupted")
        status = [info.status for info in opened.runs()]
        again = opened.run(says_pid) > 0
        mark(folder, "after", f"{status} {again}")


if __name__ == "__main__":
    main(*sys.argv[1:])
