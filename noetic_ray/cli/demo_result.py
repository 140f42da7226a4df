"""What a run of the demo gave, shown to people or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Console

from noetic_ray.canonical import to_json_bytes
from noetic_ray.demo.documents import Problem
from noetic_ray.demo.page import show_report
from noetic_ray.demo.report import Report
from noetic_ray.errors import NoeticError, to_wire
from noetic_ray.harness import AbortReport
from noetic_ray.usage import TokenUsage
from noetic_ray.view.aborted import abort_json, abort_text
from noetic_ray.view.tree import tree_table
from noetic_ray.view.watch import Line, line_json


@dataclass
class Result:
    """`abort` is set when the run was aborted, `error` when it failed."""

    report: Report = field(default_factory=Report)
    lines: Sequence[Line] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    elapsed: float = 0.0
    abort: AbortReport | None = None
    error: NoeticError | None = None

    def add(self, problems: Sequence[Problem]) -> None:
        """Put what could not be read in front of the report's problems."""
        self.report = replace(self.report, problems=[*problems, *self.report.problems])

    @property
    def succeeded(self) -> bool:
        """Whether something was read, or an abort did what it was asked for."""
        if self.error is not None:
            return False
        return self.abort is not None or bool(self.report.documents)

    def json(self) -> str:
        """One JSON object."""
        written: dict[str, Any] = {
            "contexts": [line_json(line) for line in self.lines],
            "usage": asdict(self.usage),
            "report": _report_json(self.report),
            "elapsed": self.elapsed,
            "aborted": self.abort is not None,
            "abort": None if self.abort is None else abort_json(self.abort),
            "error": None if self.error is None else to_wire(self.error),
        }
        return to_json_bytes(written).decode()

    def show(self, console: Console) -> None:
        """The tree of contexts, then the abort or the report."""
        if self.lines:
            console.print(tree_table(self.lines, console.width), "")
        if self.abort is not None:
            console.print(abort_text(self.abort, self.lines), "")
        if self.error is not None:
            console.print(f"The run failed: {self.error.kind}: {self.error}", markup=False)
        show_report(console, self.report)


def _report_json(report: Report) -> dict[str, Any]:
    problems = [each._asdict() for each in report.problems]
    return {**asdict(report), "problems": problems}
