"""The sizes and habits this code base keeps: run by `make lint`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE, MAX_FUNCTION = 600, 60
BLOCKING = {("ray", "get"), ("ray", "wait"), ("time", "sleep")}


def problems(path: Path) -> Iterator[str]:
    """What is wrong with one file."""
    source = path.read_text(encoding="utf-8")
    lines = source.count("\n")
    if lines > MAX_FILE:
        yield f"{path}: {lines} lines, at most {MAX_FILE}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > MAX_FUNCTION:
                yield f"{path}:{node.lineno} {node.name}: {size} lines, at most {MAX_FUNCTION}"
        if isinstance(node, ast.AsyncFunctionDef):
            yield from _blocking(path, node)
        if isinstance(node, ast.ExceptHandler) and _silent(node):
            yield f"{path}:{node.lineno} swallows every error"


def _blocking(path: Path, function: ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value
        if isinstance(owner, ast.Name) and (owner.id, node.func.attr) in BLOCKING:
            yield f"{path}:{node.lineno} {owner.id}.{node.func.attr} blocks an event loop"


def _silent(handler: ast.ExceptHandler) -> bool:
    names = (
        {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}
        if handler.type
        else {"BaseException"}
    )
    does_nothing = all(isinstance(line, ast.Pass) for line in handler.body)
    return does_nothing and bool(names & {"Exception", "BaseException"})


def main() -> int:
    """Check the package; print what is wrong."""
    found = [
        problem for path in sorted(Path("noetic_ray").rglob("*.py")) for problem in problems(path)
    ]
    print("\n".join(found) or "house rules: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
