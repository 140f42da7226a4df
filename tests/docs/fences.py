"""Fenced code in Markdown, and a process that runs Python blocks as one session."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block, the line its code starts on, and the output shown after it."""

    language: str
    code: str
    line: int
    shown: str | None


def blocks(path: Path) -> list[Block]:
    """All blocks of a file; a `text` block right after a `python` one is that one's output."""
    text = path.read_text("utf-8")
    found: list[Block] = []
    end = 0
    for fence in _FENCE.finditer(text):
        language, code = fence.groups()
        if language == "text" and found and not text[end : fence.start()].strip():
            found[-1] = found[-1]._replace(shown=code)
        else:
            line = text.count("\n", 0, fence.start()) + 2
            found.append(Block(language, code, line, None))
        end = fence.end()
    return found


class Ran(NamedTuple):
    """What one block printed and, when it failed, its traceback."""

    printed: str
    error: str | None
    tests: list[str]
    """Functions named `test_...` that the block defined; they were called after it."""


def run_session(
    name: str, python: list[Block], folder: Path, environment: Mapping[str, str], timeout: float
) -> list[Ran]:
    """Run blocks one after the other in one fresh process, in one namespace, in `folder`."""
    given = folder / "blocks.json"
    result = folder / "ran.json"
    given.write_text(json.dumps([(f"{name}:{b.line}", b.code) for b in python]))
    command = [sys.executable, str(Path(__file__).with_name("session.py")), given, result]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.exists(), f"the session ended early: {done.stderr[-4000:]}"
    ran: list[list[Any]] = json.loads(result.read_text())
    return [Ran(*each) for each in ran]


def matches(shown: str, printed: str) -> bool:
    """Whether the output is as shown, where `...` stands for anything on its line."""
    parts = (re.escape(part) for part in shown.rstrip().split("..."))
    return re.fullmatch(".*".join(parts), printed.rstrip()) is not None
