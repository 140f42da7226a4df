from __future__ import annotations

import io

import pytest
from rich.console import Console

from noetic_ray.journal.fold import ContextRow
from noetic_ray.usage import TokenUsage
from noetic_ray.view.texts import dollars, one_line, plural, seconds
from noetic_ray.view.tree import tree_table
from noetic_ray.view.watch import Line


def line(
    id: str,
    parent: str | None = None,
    status: str = "completed",
    about: str = "",
    doing: str = "",
    node: str = "n1",
) -> Line:
    usage = TokenUsage(1000, 234, 1234)
    depth = 0 if parent is None else 1
    row = ContextRow(id, parent, f"step-{id}", status, depth, 3, usage, 0.5, 1.0, node, 42)
    return Line(row, about, doing, steps=2)


def drawn(lines: list[Line], width: int = 100, room: int | None = None, live: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(tree_table(lines, width, room, live))
    return out.getvalue()


def test_children_hang_under_their_parents() -> None:
    lines = [line("a"), line("b", "a"), line("c", "b"), line("d", "b"), line("e", "a")]
    stems = [text[: text.index("step")] for text in drawn(lines).splitlines()[1:]]
    assert stems == ["✓ ", "├─ ✓ ", "│  ├─ ✓ ", "│  └─ ✓ ", "└─ ✓ "]


def test_a_line_has_all_figures() -> None:
    text = drawn([line("a", about="what it is about")])
    figures = " ".join(text.split("\n")[1].split())
    assert figures == "✓ step-a what it is about 2 3 1,234 $0.5000 1.00 s 42"


@pytest.mark.parametrize("status", ["failed", "cancelled", "lost", "pending"])
def test_a_status_that_is_news_is_written_out(status: str) -> None:
    assert f"step-a {status}" in drawn([line("a", status=status)])


def test_nodes_are_shown_when_there_are_several() -> None:
    assert "n2" in drawn([line("a"), line("b", "a", node="n2")])
    assert "n1" not in drawn([line("a"), line("b", "a")])


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = [line("a", about="long " * 60, doing="read_chunk"), line("b", "a", about="日本 " * 60)]
    assert all(len(text) <= width for text in drawn(lines, width, live=True).splitlines())
    assert len(drawn(lines, width, live=True).splitlines()) == 3


def test_with_little_room_what_runs_is_shown_and_the_rest_counted() -> None:
    lines = [line("root", status="running")]
    lines += [line(f"done{n}", "root") for n in range(10)]
    lines += [line("bad", "root", "failed"), line("busy", "root", "running", doing="thinking")]
    text = drawn(lines, room=4, live=True)
    assert len(text.splitlines()) == 5
    assert "step-root" in text
    assert "step-busy" in text
    assert "thinking" in text
    assert "… and 10 more contexts: 9 completed, 1 failed" in " ".join(text.split())


def test_figures_read_well() -> None:
    assert [seconds(x) for x in (0.004, 1.5, 12.34, 250.0)] == [
        "0.00 s", "1.50 s", "12.3 s", "4 m 10 s",
    ]  # fmt: skip
    assert [dollars(x) for x in (0, 0.00314, 12.5)] == ["$0", "$0.0031", "$12.50"]
    assert (plural(1, "reply", "replies"), plural(2000, "item")) == ("1 reply", "2,000 items")
    assert one_line("a\n b\x1b[31m", 20) == "a b[31m"
    assert one_line("abcdef", 4) == "abc…"
