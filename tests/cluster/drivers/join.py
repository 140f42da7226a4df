"""Opens a harness at the address it is given, runs one step, and prints what came of it."""

from __future__ import annotations

import argparse
import json
import time

import noetic_ray as nr


@nr.step
async def double(value: int, ctx: nr.Context) -> int:
    return 2 * value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--name", default="joins")
    parser.add_argument("--store")
    given = parser.parse_args()
    began = time.monotonic()
    found: dict[str, object] = {"value": None, "code": None, "hint": None}
    try:
        with nr.Harness(given.name, address=given.address, store=given.store) as harness:
            found["value"] = harness.run(double, 21)
    except nr.ConfigError as error:
        found |= {"code": error.code, "hint": error.hint, "text": str(error)}
    print(json.dumps({**found, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
