"""Runs code blocks in the namespace of `__main__`, as an interactive session does.

    python session.py BLOCKS.json RESULT.json

BLOCKS is a list of (place, code), RESULT gets a list of (printed, error, tests). A block may await
at its top level, as notebook cells do. One local Ray serves the whole session.
"""

import ast as _ast
import asyncio as _asyncio
import contextlib as _contextlib
import inspect as _inspect
import io as _io
import json as _json
import sys as _sys
import traceback as _traceback
from pathlib import Path as _Path
from typing import Any as _Any


def _run(place: str, code: str) -> "tuple[str, str | None, list[str]]":
    printed, error = _io.StringIO(), None
    before = set(globals())
    tests: list[str] = []
    with _contextlib.redirect_stdout(printed):
        try:
            _execute(place, code)
            tests = sorted(n for n in set(globals()) - before if n.startswith("test_"))
            for test in tests:
                globals()[test]()
        except Exception:
            error = _traceback.format_exc()
    return printed.getvalue(), error, tests


def _execute(place: str, code: str) -> None:
    compiled = compile(code, place, "exec", flags=_ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, globals())
    if _inspect.iscoroutine(result):
        _asyncio.run(result)


def _session(given: str, result: str) -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ran: list[_Any] = []
    try:
        for place, code in _json.loads(_Path(given).read_text()):
            ran.append(_run(place, code))
            if ran[-1][1]:
                break
    finally:
        ray.shutdown()
    _Path(result).write_text(_json.dumps(ran))


if __name__ == "__main__":
    _session(*_sys.argv[1:])
