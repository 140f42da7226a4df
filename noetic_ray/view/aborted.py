"""What an abort did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from noetic_ray.harness import AbortReport
from noetic_ray.view.texts import plural, seconds
from noetic_ray.view.watch import Line


def abort_text(report: AbortReport, lines: Sequence[Line]) -> RenderableType:
    """One line on how the abort went, and who of each kind it reached, level by level."""
    went = (
        f"The abort reached {plural(report.reached, 'context')} and took "
        f"{seconds(report.elapsed)}: {report.settled:,} settled, {report.killed:,} killed, "
        f"{report.abandoned:,} abandoned."
    )
    levels: dict[int, list[str]] = {}
    reached = {id for id, _ in report.contexts}
    for line in lines:
        if line.row.id in reached:
            levels.setdefault(line.row.depth, []).append(line.row.step or "a context")
    steps = [
        Text(f"  level {depth}: {_counted(names)}", style="dim")
        for depth, names in sorted(levels.items())
    ]
    return Group(Text(went, style="bold yellow"), *steps)


def abort_json(report: AbortReport) -> dict[str, Any]:
    """The report's counts and seconds for a JSON document."""
    return {
        "reached": report.reached,
        "settled": report.settled,
        "killed": report.killed,
        "abandoned": report.abandoned,
        "elapsed": report.elapsed,
    }


def _counted(names: Sequence[str]) -> str:
    kinds = dict.fromkeys(names)
    return ", ".join(f"{kind} ({names.count(kind)})" for kind in kinds)
