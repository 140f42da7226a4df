"""Opens a harness, says so, and opens another of the same name when it is told to."""

from __future__ import annotations

import json
import sys

import noetic_ray as nr


@nr.step
async def double(value: int, ctx: nr.Context) -> int:
    return 2 * value


def main(name: str) -> None:
    first = nr.Harness(name).open()
    print(json.dumps({"value": first.run(double, 21)}), flush=True)
    sys.stdin.readline()
    second = nr.Harness(name).open()
    try:
        first.run(double, 1)
        code = None
    except nr.ConfigError as error:
        code = error.code
    print(json.dumps({"value": second.run(double, 4), "first": code}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1])
