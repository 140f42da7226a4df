"""Uses the blocking methods where an event loop runs, as a notebook cell does, and async ones."""

from __future__ import annotations

import asyncio
import sys

import noetic_ray as nr
from tests.harness.drivers.steps import harness, says_pid
from tests.support.marks import mark


async def opens() -> nr.Harness:
    opened = harness()
    await opened.arun(says_pid)
    return opened


async def notebook(opened: nr.Harness) -> list[int]:
    pids = [opened.run(says_pid), opened.run(says_pid), await opened.arun(says_pid)]
    await asyncio.sleep(0.01)
    run = await opened.astart(says_pid)
    return [*pids, await run]


def main(folder: str) -> None:
    opened = asyncio.run(opens())
    # The thread that opened it has ended with its loop; Ray must not have ended with the thread.
    mark(folder, "after-the-loop", opened.run(says_pid) > 0)
    mark(folder, "in-a-loop", all(asyncio.run(notebook(opened))))
    opened.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
