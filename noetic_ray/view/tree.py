"""The tree of contexts as a table: one line each, children under their parents."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from noetic_ray.view.texts import SIGNS, dollars, one_line, plural, seconds
from noetic_ray.view.watch import Line, statuses

_FIGURES = ("steps", "items", "tokens", "cost", "time", "pid")
_GAP = 2
_LEAST_ABOUT = 10
_LIVE = ("running", "pending")


def tree_table(
    lines: Sequence[Line], width: int, room: int | None = None, live: bool = False
) -> Table:
    """A table of contexts for `width` columns; with `live` it tells what each does now.

    With more lines than `room`, those that still run come first, and the rest is counted.
    """
    shown = _fitting(lines, room)
    nodes = len({line.row.node for line in lines if line.row.node}) > 1
    columns = ["context", *(["now"] if live else []), *_FIGURES, *(["node"] if nodes else [])]
    stems = _stems(shown)
    rows = [_cells(line, stems[line.row.id], live, nodes) for line in shown]
    taken = sum(
        max(cell_len(name), *(cell.cell_len for cell in cells)) + _GAP
        for name, cells in zip(columns, zip(*rows, strict=True), strict=True)
    )
    about = max(width - taken - _GAP, _LEAST_ABOUT)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in ("context", "about", *columns[1:]):
        table.add_column(name, justify="right" if name in _FIGURES else "left", no_wrap=True)
    for line, (first, *rest) in zip(shown, rows, strict=True):
        table.add_row(first, Text(one_line(line.about, about), style="dim"), *rest)
    if len(shown) < len(lines):
        table.caption, table.caption_justify = _rest(lines, shown), "left"
    return table


def _cells(line: Line, stem: str, live: bool, nodes: bool) -> list[Text]:
    """The cells of a line without what it is about."""
    row = line.row
    sign, colour = SIGNS.get(row.status, ("?", ""))
    name = Text(stem, style="dim")
    name.append(f"{sign} ", style=colour).append(row.step or "…", style="not dim")
    if row.status not in ("completed", "running"):
        name.append(f" {row.status}", style=colour)
    figures = [
        str(line.steps),
        str(row.items),
        f"{row.tokens.total:,}",
        dollars(row.cost),
        seconds(row.elapsed),
        str(row.pid or ""),
    ]
    cells = [name, *([Text(line.doing, style="cyan")] if live else []), *map(Text, figures)]
    return [*cells, Text(row.node or "")] if nodes else cells


def _fitting(lines: Sequence[Line], room: int | None) -> list[Line]:
    if room is None or len(lines) <= room:
        return list(lines)
    ranked = sorted(range(len(lines)), key=lambda n: (lines[n].row.status not in _LIVE, n))
    return [lines[n] for n in sorted(ranked[: max(room - 1, 1)])]


def _rest(lines: Sequence[Line], shown: Sequence[Line]) -> str:
    kept = {line.row.id for line in shown}
    left = statuses([line for line in lines if line.row.id not in kept])
    what = ", ".join(f"{n:,} {status}" for status, n in left.most_common())
    return f"… and {plural(left.total(), 'more context')}: {what}"


def _stems(lines: Sequence[Line]) -> dict[str, str]:
    """What stands in front of each line: `│  ├─ `."""
    last = {line.row.parent_id: line.row.id for line in lines}
    shown = {line.row.id for line in lines}
    before: dict[str | None, str] = {}
    stems: dict[str, str] = {}
    for line in lines:
        id, parent = line.row.id, line.row.parent_id
        if parent not in shown:
            stems[id], before[id] = "", ""
            continue
        end = last[parent] == id
        stems[id] = before[parent] + ("└─ " if end else "├─ ")
        before[id] = before[parent] + ("   " if end else "│  ")
    return stems
