"""The `noetic-ray` command as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).parents[2]


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


class Command:
    """A command that was started; its stderr is read line by line."""

    def __init__(self, *args: str, cwd: Path | None = None, **env: str) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "noetic_ray.cli", *args],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": path, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def read_until(self, enough: Callable[[list[str]], bool]) -> None:
        """Read lines of stderr until there are enough; AssertionError when it ends before."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if enough(self.lines):
                return
        raise AssertionError(f"the command ended too soon: {''.join(self.lines)}")

    def family(self) -> list[str]:
        """The names of the processes under the command now."""
        names = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                names.append(process.name())
        return names

    def interrupt(self, number: signal.Signals) -> tuple[Done, list[str]]:
        """Send a signal and wait; also the processes of its tree that are still there."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        done = self.wait()
        _, alive = psutil.wait_procs(family, timeout=10)
        return done, [str(process) for process in alive]

    def wait(self, timeout: float = 90.0) -> Done:
        """The end of the command."""
        out, err = self.process.communicate(timeout=timeout)
        return Done(self.process.returncode, out, "".join(self.lines) + err)
