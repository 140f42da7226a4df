"""Waits in `run` for a body that holds the loop of this very process; needs no Ray."""

from __future__ import annotations

import sys

import noetic_ray as nr
from tests.support.marks import mark


@nr.step
async def spins(folder: str, ctx: nr.Context) -> None:
    mark(folder, "spins")
    while True:
        pass


@nr.step
async def returns(_: None, ctx: nr.Context) -> str:
    return "works"


def main(folder: str) -> None:
    with nr.Harness("spins", placement="inline") as harness:
        try:
            harness.run(spins, folder)
        except KeyboardInterrupt:
            mark(folder, "again", harness.run(returns))


if __name__ == "__main__":
    main(*sys.argv[1:])
