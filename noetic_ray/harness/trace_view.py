"""A run's trace as a picture: a tree in a terminal, HTML in a notebook."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from noetic_ray.canonical import to_json_bytes
from noetic_ray.client.trace_fold import TraceFold
from noetic_ray.client.trace_records import SpaceRecord, TraceLog, TraceNodeRecord

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

__all__ = ["TraceView"]

#: Sign, colour in a terminal and colour on a page of each status.
_SIGNS: Mapping[str, tuple[str, str, str]] = {
    "running": ("▸", "cyan", "#4a90c4"),
    "completed": ("✓", "green", "#4c9f70"),
    "failed": ("✗", "red", "#cf5c5c"),
}
_UNKNOWN = ("?", "magenta", "#8a8f98")
_LEVELS: Mapping[str, str] = {"warn": "yellow", "error": "red"}
_SPACE_HEADS = ("space", "type", "id", "keys", "data")
_EMPTY = "Nothing was traced in this run."
_TEXT_WIDTH = 100
_LABEL_WIDTH = 120
_ERROR_WIDTH = 300
_LOG_WIDTH = 200
_DATA_WIDTH = 160
#: A tree deeper than this goes on at one level: readers and browsers follow no further.
_MAX_DEPTH = 24
#: Columns a level takes in a terminal, and those a node needs.
_LEVEL_WIDTH = 4
_NODE_WIDTH = 32
#: Lines of nodes in one picture.
_MAX_LINES = 2_000
#: A picture of more nodes than this shows less of each.
_MANY = 200
_ONE_LINE = 80


@dataclass(frozen=True, slots=True, repr=False)
class TraceView:
    """What a run traced: its nodes in the order they started, and its spaces, from `Run.trace`.

    `print` it for a tree; a notebook shows it as HTML. `len` and iteration are those of `nodes`;
    `root` is the run's first node, None when there is none.

    In the picture steps that follow each other stand one below the other, what happened within
    a step or side by side is indented. A step that joins others side by side comes after them and
    names them; any other node with several parents stands below its first and is referred to
    below the others.
    """

    nodes: list[TraceNodeRecord] = field(default_factory=list)
    root: TraceNodeRecord | None = None
    spaces: list[SpaceRecord] = field(default_factory=list)

    @classmethod
    def of(cls, fold: TraceFold) -> TraceView:
        """The picture of what a fold was fed."""
        return cls(fold.nodes(), fold.root, fold.spaces())

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[TraceNodeRecord]:
        return iter(self.nodes)

    def __repr__(self) -> str:
        root = None if self.root is None else self.root.label
        return f"TraceView(nodes={len(self.nodes)}, root={root!r}, spaces={len(self.spaces)})"

    def __str__(self) -> str:
        from rich.console import Console

        out = io.StringIO()
        # Nothing of the terminal or notebook around may colour the text or change its width.
        console = Console(
            file=out,
            width=_TEXT_WIDTH,
            color_system=None,
            force_terminal=False,
            force_jupyter=False,
            legacy_windows=False,
        )
        console.print(self)
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()

    def __rich__(self) -> _Drawing:
        return _Drawing(self)

    def _repr_html_(self) -> str:
        title = _div(_html(_title(self.nodes)), "font-weight:600;margin-bottom:6px")
        if not self.nodes:
            title = _div(escape(_EMPTY), "opacity:.7")
        drawing = _Page(len(self.nodes) > _MANY)
        tree = "".join(map(drawing.branch, _lay_out(self.nodes, _MAX_DEPTH)))
        more = _more(self.nodes)
        rest = _div(escape(more), "opacity:.7") if more else ""
        spaces = _spaces_html(self.spaces) if self.spaces else ""
        return _div(title + tree + rest + spaces, _FRAME)


# -- layout --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Branch:
    """A node where it is drawn, or where it is referred to.

    `below` is indented under it, `then` follows it on its own level. `joins` are the nodes it
    comes after when its place does not tell.
    """

    node: TraceNodeRecord
    reference: bool = False
    joins: list[TraceNodeRecord] = field(default_factory=list)
    below: list[_Branch] = field(default_factory=list)
    then: list[_Branch] = field(default_factory=list)
    depth: int = 0
    #: The list it stands in, and the branch this list belongs to.
    within: list[_Branch] | None = None
    holder: _Branch | None = None


class _Layout:
    """Gives each node its place; nodes come in the order of the view, parents first."""

    def __init__(self, nodes: Sequence[TraceNodeRecord], max_depth: int) -> None:
        self._max_depth = max_depth
        self._by_id = {node.id: node for node in nodes}
        self._placed: dict[str, _Branch] = {}
        self._top: list[_Branch] = []
        self._heirs = self._count_heirs(nodes)
        self._left = _MAX_LINES
        for node in islice(nodes, _MAX_LINES):
            self._place(node)

    def lane(self) -> list[_Branch]:
        """The branches of the top level."""
        return _in_line(self._top)

    def _parents(self, node: TraceNodeRecord) -> list[TraceNodeRecord]:
        known = (self._by_id.get(id) for id in dict.fromkeys(node.parent_ids))
        return [each for each in known if each is not None and each is not node]

    def _count_heirs(self, nodes: Sequence[TraceNodeRecord]) -> dict[str, int]:
        """How many nodes follow a node as the next step would."""
        heirs: dict[str, int] = {}
        for node in nodes:
            parents = self._parents(node)
            if len(parents) == 1 and _follows(node, parents[0]):
                heirs[parents[0].id] = heirs.get(parents[0].id, 0) + 1
        return heirs

    def _place(self, node: TraceNodeRecord) -> None:
        branch = self._placed[node.id] = _Branch(node)
        parents = [self._placed[each.id] for each in self._parents(node) if each.id in self._placed]
        if not parents:
            self._put(branch, None, self._top)
            return
        first, others = parents[0], parents[1:]
        if others and all(each.within is first.within for each in others):
            self._join(branch, parents)
            return
        alone = self._heirs.get(first.node.id) == 1
        after = not others and alone and _follows(node, first.node)
        self._hang(branch, first, after)
        for other in others[: max(0, self._left)]:
            other.below.append(_Branch(node, reference=True))
            self._left -= 1

    def _join(self, branch: _Branch, parents: list[_Branch]) -> None:
        """After several that stand side by side."""
        branch.joins = [each.node for each in parents]
        first = parents[0]
        holder = first.holder
        if holder is None:
            self._put(branch, None, self._top)
        else:
            lane = first.within is holder.then or _follows(branch.node, holder.node)
            self._hang(branch, holder, lane)

    def _hang(self, branch: _Branch, holder: _Branch, after: bool) -> None:
        if after or holder.depth >= self._max_depth:
            branch.depth = holder.depth
            self._put(branch, holder, holder.then)
        else:
            branch.depth = holder.depth + 1
            self._put(branch, holder, holder.below)

    def _put(self, branch: _Branch, holder: _Branch | None, within: list[_Branch]) -> None:
        branch.holder, branch.within = holder, within
        within.append(branch)


def _lay_out(nodes: Sequence[TraceNodeRecord], max_depth: int) -> list[_Branch]:
    return _Layout(nodes, max_depth).lane()


def _in_line(branches: Iterable[_Branch]) -> list[_Branch]:
    """Branches of one level, each with those that follow it behind it."""
    ahead = list(branches)[::-1]
    line: list[_Branch] = []
    while ahead:
        branch = ahead.pop()
        line.append(branch)
        ahead.extend(reversed(branch.then))
    return line


def _follows(node: TraceNodeRecord, other: TraceNodeRecord) -> bool:
    """Whether a node is a step after another, not a part of it."""
    return (
        node.context_id == other.context_id
        and node.type != "mcp"
        and other.ended_at is not None
        and node.started_at is not None
        and node.started_at >= other.ended_at
    )


# -- texts ---------------------------------------------------------------------------------------


def _line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters, without what a terminal would obey."""
    # Far more than will be seen, far less than a text may hold.
    flat = "".join(c for c in " ".join(text[: width * 8].split()) if c.isprintable())
    return flat if len(flat) <= width and len(text) <= width * 8 else flat[: width - 1] + "…"


def _name(node: TraceNodeRecord) -> str:
    for text in (node.label, node.type, node.id):
        name = _line(text, _LABEL_WIDTH)
        if name:
            return name
    return "node"


def _counted(n: int, one: str) -> str:
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


def _title(nodes: Sequence[TraceNodeRecord]) -> str:
    states = [node.status for node in nodes]
    counts = [f"{states.count(each):,} {each}" for each in ("running", "failed") if each in states]
    return " · ".join(["trace", _counted(len(nodes), "node"), *counts])


def _more(nodes: Sequence[TraceNodeRecord]) -> str:
    left = len(nodes) - _MAX_LINES
    return f"{_counted(left, 'more node')} in `.nodes`" if left > 0 else ""


def _duration(node: TraceNodeRecord) -> str:
    if node.started_at is None or node.ended_at is None:
        return ""
    value = max(0.0, node.ended_at - node.started_at)
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} m {rest:02} s"


def _kind(node: TraceNodeRecord) -> str:
    """The type, where the name does not tell it."""
    kind = _line(node.type, _LABEL_WIDTH)
    return "" if kind == _name(node) else kind


def _joined(branch: _Branch) -> str:
    names = [_name(each) for each in branch.joins]
    shown = ", ".join(names[:5])
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return f"after {shown}{more}" if names else ""


def _value_text(value: Any, width: int) -> str:
    """A value as JSON, cut short; the work is bounded, however large the value is."""
    written = to_json_bytes(_cut(value, width, [width])).decode()
    return written if len(written) <= width else written[: width - 1] + "…"


def _pages_text(value: Any, width: int) -> str:
    """A value as JSON for a page: on one line when it is short, else one member a line."""
    line = _value_text(value, width)
    if len(line) <= _ONE_LINE:
        return line
    return json.dumps(_cut(value, width, [width // 8]), indent=2, ensure_ascii=False, default=str)


def _cut(value: Any, width: int, budget: list[int]) -> Any:
    """A value without most of what would not be seen. `budget`: the members still to be taken."""
    if isinstance(value, str):
        return value if len(value) <= width else value[: width - 1] + "…"
    if isinstance(value, Mapping):
        pairs = islice(value.items(), max(0, budget[0]))
        return {_cut(str(key), width, budget): _spent(each, width, budget) for key, each in pairs}
    if isinstance(value, list | tuple):
        return [_spent(each, width, budget) for each in islice(value, max(0, budget[0]))]
    return value


def _spent(value: Any, width: int, budget: list[int]) -> Any:
    budget[0] -= 1
    return _cut(value, width, budget) if budget[0] > 0 else "…"


def _space_cells(space: SpaceRecord) -> tuple[str, ...]:
    return (
        _line(space.label, _LABEL_WIDTH),
        _line(space.type, _LABEL_WIDTH),
        _line(space.id, _LABEL_WIDTH),
        f"{len(space.data):,}",
        _line(_value_text(space.data, _DATA_WIDTH), _DATA_WIDTH),
    )


# -- for a terminal ------------------------------------------------------------------------------


class _Drawing:
    """A view that is drawn when its width is known."""

    def __init__(self, view: TraceView) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        view = self._view
        room = (options.max_width - _NODE_WIDTH) // _LEVEL_WIDTH
        depth = min(_MAX_DEPTH, max(0, room))
        yield _tree(view, depth) if view.nodes else Text(_EMPTY, style="dim")
        if view.spaces:
            yield ""
            yield _spaces_table(view.spaces)


def _tree(view: TraceView, depth: int) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(_title(view.nodes), style="bold"), guide_style="dim")
    _grow(tree, _lay_out(view.nodes, depth))
    more = _more(view.nodes)
    if more:
        tree.add(Text(more, style="dim"))
    return tree


def _grow(tree: Tree, branches: Iterable[_Branch]) -> None:
    for branch in branches:
        _grow(tree.add(_branch_text(branch)), _in_line(branch.below))


def _branch_text(branch: _Branch) -> Text:
    from rich.text import Text

    node = branch.node
    if branch.reference:
        return Text(f"→ {_name(node)}", style="dim")
    sign, colour, _ = _SIGNS.get(node.status, _UNKNOWN)
    text = Text.assemble((sign, colour), " ", (_name(node), "bold"))
    notes = (_kind(node), _duration(node), _joined(branch))
    for note in filter(None, notes):
        text.append(f"  {note}", "dim")
    if node.error:
        text.append(f"\n{_line(node.error, _ERROR_WIDTH)}", "red")
    for log in node.logs[-3:]:
        text.append(f"\n{_log_line(log)}", _LEVELS.get(log.level, "dim"))
    return text


def _log_line(log: TraceLog) -> str:
    said = f"{_line(log.level, 10)}: {_line(log.message, _LOG_WIDTH)}"
    return said if log.data is None else f"{said} {_line(_value_text(log.data, 80), 80)}"


def _spaces_table(spaces: Iterable[SpaceRecord]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in _SPACE_HEADS:
        table.add_column(head, justify="right" if head == "keys" else "left", overflow="fold")
    for space in spaces:
        table.add_row(*map(Text, _space_cells(space)))
    return table


# -- for a notebook ------------------------------------------------------------------------------

# Colours come from the page, so that it reads on light and on dark.
_FRAME = "font-family:system-ui,sans-serif;font-size:13px;color:inherit;max-width:900px"
_INDENT = "margin-left:9px;padding-left:12px;border-left:1px solid rgba(128,128,128,.35)"
_PRE = (
    "margin:2px 0 4px 0;padding:4px 8px;white-space:pre-wrap;overflow-wrap:anywhere;"
    "background:rgba(128,128,128,.12);color:inherit;font-size:12px;border:none"
)
_FAINT = "opacity:.7"
_TABLE = "border-collapse:collapse;margin:8px 0;color:inherit;background:transparent"
_CELL = "padding:2px 14px 2px 0;border:none;background:transparent;color:inherit;text-align:left"


class _Page:
    """Writes branches as HTML; of many nodes less of each."""

    def __init__(self, many: bool) -> None:
        self._width, self._logs = (400, 5) if many else (4_000, 50)

    def branch(self, branch: _Branch) -> str:
        """A node with what is below it, or a reference to one."""
        node = branch.node
        if branch.reference:
            return _div(f"→ {_html(_name(node))}", f"{_FAINT};margin-left:14px")
        facts, below = self._facts(node), "".join(map(self.branch, _in_line(branch.below)))
        if facts and below:
            # What is open shows the steps below, not a screen of input before them.
            facts = (
                f'<details><summary style="{_FAINT};cursor:pointer">data</summary>{facts}</details>'
            )
        inner = facts + below
        head = _head_html(branch)
        if not inner:
            return _div(head, "margin-left:14px")
        summary = f'<summary style="cursor:pointer">{head}</summary>'
        opened = " open" if branch.below else ""
        return f"<details{opened}>{summary}{_div(inner, _INDENT)}</details>"

    def _facts(self, node: TraceNodeRecord) -> str:
        facts: list[tuple[str, Any]] = [
            ("description", node.description or None),
            ("input", node.input),
            ("output", node.output),
            ("metadata", node.metadata or None),
        ]
        told = "".join(self._fact(name, value) for name, value in facts if value is not None)
        return told + self._log_html(node.logs)

    def _fact(self, name: str, value: Any) -> str:
        text = value if isinstance(value, str) else _pages_text(value, self._width)
        return f'<div style="{_FAINT}">{name}</div><pre style="{_PRE}">{self._block(text)}</pre>'

    def _log_html(self, logs: Sequence[TraceLog]) -> str:
        if not logs:
            return ""
        lines = "\n".join(map(_log_line, logs[-self._logs :]))
        count = "" if len(logs) <= self._logs else f", the last {self._logs} of {len(logs):,}"
        return f'<div style="{_FAINT}">logs{count}</div><pre style="{_PRE}">{_block(lines)}</pre>'

    def _block(self, text: str) -> str:
        cut = text if len(text) <= self._width else text[: self._width - 1] + "…"
        return _block(cut)


def _head_html(branch: _Branch) -> str:
    node = branch.node
    sign, _, colour = _SIGNS.get(node.status, _UNKNOWN)
    mark = f'<span style="color:{colour}" title="{_html(node.status)}">{sign}</span>'
    name = f"<b>{_html(_name(node))}</b>"
    notes = "".join(
        f' <span style="{_FAINT}">{_html(note)}</span>'
        for note in (_kind(node), _duration(node), _joined(branch))
        if note
    )
    error = ""
    if node.error:
        error = f' <span style="color:{colour}">{_html(_line(node.error, _ERROR_WIDTH))}</span>'
    return f"{mark} {name}{notes}{error}"


def _html(text: str) -> str:
    return escape(_line(text, _ERROR_WIDTH * 3))


def _block(text: str) -> str:
    """A text of several lines, escaped, without what a page cannot or should not hold."""
    return escape("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text))


def _div(inner: str, style: str) -> str:
    return f'<div style="{style}">{inner}</div>'


def _spaces_html(spaces: Iterable[SpaceRecord]) -> str:
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in _SPACE_HEADS)
    rows = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL}">{_html(cell)}</td>' for cell in _space_cells(each))
        + "</tr>"
        for each in spaces
    )
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
