"""The same as `blocks`, in `asyncio.run`."""

from __future__ import annotations

import asyncio
import sys

from tests.harness.drivers.steps import four_children, harness
from tests.support.marks import mark


async def main(folder: str) -> None:
    async with harness() as opened:
        try:
            await opened.arun(four_children, folder)
        finally:
            mark(folder, "left")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
