"""Opens a harness whose workers find another copy of the library; prints what is said of it."""

from __future__ import annotations

import json
import sys
import time

import noetic_ray as nr


@nr.step
async def nothing(_: object, ctx: nr.Context) -> None:
    return None


def main(runtime_env: dict[str, object] | None) -> None:
    began = time.monotonic()
    code = text = None
    try:
        with nr.Harness("mismatch", placement=nr.Placement(runtime_env=runtime_env)) as harness:
            harness.run(nothing)
    except nr.ConfigError as error:
        code, text = error.code, str(error)
    print(json.dumps({"code": code, "text": text, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else None)
