"""Files as signs between processes: a body leaves one, a test waits for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.support.wait import wait_until


def mark(folder: str | Path, name: str, text: object = "") -> None:
    """Leave a sign; it appears with its text in it."""
    target = Path(folder, name)
    draft = target.with_name(f".{name}.{os.getpid()}.{threading.get_ident()}")
    draft.write_text(str(text))
    draft.rename(target)


def add(folder: str | Path, name: str) -> None:
    """Make a file one byte longer."""
    with Path(folder, name).open("a") as file:
        file.write(".")


def marked(folder: str | Path, name: str) -> bool:
    """Whether a sign is there."""
    return Path(folder, name).exists()


def text_of(folder: str | Path, name: str) -> str:
    """What a sign says."""
    return Path(folder, name).read_text()


def wait_for(folder: str | Path, *names: str, timeout: float = 20.0) -> None:
    """Wait until all these signs are there."""
    wait_until(lambda: all(marked(folder, name) for name in names), timeout)


def beats(folder: str | Path) -> int:
    """The length of all files of a folder together."""
    return sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file())
