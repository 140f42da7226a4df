"""The picture of a trace, drawn three ways."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from noetic_ray.client.trace_fold import TraceFold
from noetic_ray.harness.trace_view import TraceView

HOSTILE = "\x1b[31m<script>alert('x')</script>&\"[bold red]\u202e\ud800\nend"


class Tracer:
    """Feeds a fold as contexts would; each event is a tenth of a second after the last."""

    def __init__(self) -> None:
        self.fold = TraceFold()
        self.now = 0.0

    def tell(self, type: str, data: dict[str, Any], ctx: str = "run") -> None:
        self.now += 0.1
        self.fold.feed(type, ctx, self.now, data)

    def start(self, id: str, parents: Iterable[str] = (), ctx: str = "run", **facts: Any) -> Tracer:
        data = {"node_id": id, "parent_ids": list(parents), "label": id, "type": "step", **facts}
        self.tell("trace.node_started", data, ctx)
        return self

    def done(self, *ids: str, **more: Any) -> Tracer:
        for id in ids:
            self.tell("trace.node_completed", {"node_id": id, **more})
        return self

    def fail(self, id: str, error: str) -> Tracer:
        self.tell("trace.node_failed", {"node_id": id, "error": error})
        return self

    def log(self, id: str, message: str, level: str = "info", data: Any = None) -> Tracer:
        line = {"node_ids": [id], "level": level, "message": message, "data": data}
        self.tell("trace.log", line)
        return self

    def space(self, id: str, values: dict[str, Any], **facts: Any) -> Tracer:
        self.tell("space.created", {"space_id": id, **facts})
        for key, value in values.items():
            self.tell("space.set", {"space_id": id, "key": key, "value": value})
        return self

    @property
    def view(self) -> TraceView:
        return TraceView.of(self.fold)


def forked() -> Tracer:
    """plan, three searches side by side, what joins them, and one step more."""
    tracer = Tracer().start("plan").done("plan")
    for id in ("first", "second", "third"):
        tracer.start(id, ["plan"])
    tracer.done("first", "second").fail("third", "no\nnetwork")
    tracer.start("merge", ["first", "second", "third"]).done("merge")
    return tracer.start("answer", ["merge"])


def rich_text(view: TraceView, width: int = 100, colour: bool = False) -> str:
    out = io.StringIO()
    Console(
        file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    ).print(view)
    return out.getvalue()


class Page(HTMLParser):
    """The texts and tags of a page; fails where a tag is closed out of turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.deepest = 0
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)
        self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def drawn(view: TraceView, kind: str) -> str:
    if kind == "html":
        return Page(view._repr_html_()).text
    return str(view) if kind == "str" else rich_text(view)


drawings = pytest.mark.parametrize("kind", ["str", "rich", "html"])


def lines(view: TraceView) -> list[str]:
    return [line.rstrip() for line in str(view).splitlines()]


# -- as a list -----------------------------------------------------------------------------------


def test_it_is_its_nodes() -> None:
    view = forked().view
    assert len(view) == 6
    assert [node.id for node in view] == [node.id for node in view.nodes]
    assert view.root is view.nodes[0]


def test_its_repr_is_short() -> None:
    view = forked().space("s", {}).view
    assert repr(view) == "TraceView(nodes=6, root='plan', spaces=1)"


# -- nothing -------------------------------------------------------------------------------------


@drawings
def test_an_empty_trace_says_so(kind: str) -> None:
    view = Tracer().view
    assert "Nothing was traced" in drawn(view, kind)
    assert (len(view), view.root, view.spaces) == (0, None, [])


# -- the tree ------------------------------------------------------------------------------------


def test_steps_follow_each_other_and_what_is_side_by_side_is_indented() -> None:
    assert lines(forked().view) == [
        "trace · 6 nodes · 1 running · 1 failed",
        "├── ✓ plan  step  0.10 s",
        "│   ├── ✓ first  step  0.30 s",
        "│   ├── ✓ second  step  0.30 s",
        "│   └── ✗ third  step  0.30 s",
        "│       no network",
        "├── ✓ merge  step  0.10 s  after first, second, third",
        "└── ▸ answer  step",
    ]


def test_what_happens_within_a_step_is_below_it() -> None:
    tracer = Tracer().start("work").start("call", ["work"], type="mcp").done("call", "work")
    tracer.start("next", ["work"])
    assert lines(tracer.view)[1:] == [
        "├── ✓ work  step  0.30 s",
        "│   └── ✓ call  mcp  0.10 s",
        "└── ▸ next  step",
    ]


def test_a_call_after_the_end_of_its_step_is_below_it_too() -> None:
    tracer = Tracer().start("work").done("work").start("call", ["work"], type="mcp").done("call")
    tracer.start("next", ["work"])
    assert lines(tracer.view)[2:] == ["│   └── ✓ call  mcp  0.10 s", "└── ▸ next  step"]


def test_nodes_of_a_child_context_are_below_the_step_that_spawned_it() -> None:
    tracer = Tracer().start("work").start("kid", ["work"], "child").done("kid")
    tracer.start("kid 2", ["kid"], "child")
    assert lines(tracer.view)[1:] == [
        "└── ▸ work  step",
        "    ├── ✓ kid  step  0.10 s",
        "    └── ▸ kid 2  step",
    ]


def test_a_join_within_a_step_stays_within_it() -> None:
    tracer = Tracer().start("work").start("a", ["work"], "child").start("b", ["work"], "child")
    tracer.done("a", "b").start("join", ["a", "b"], "child")
    assert lines(tracer.view)[1:] == [
        "└── ▸ work  step",
        "    ├── ✓ a  step  0.20 s",
        "    ├── ✓ b  step  0.20 s",
        "    └── ▸ join  step  after a, b",
    ]


def test_joins_of_joins_stay_on_one_level() -> None:
    tracer = Tracer().start("plan").done("plan")
    for id in ("a", "b"):
        tracer.start(id, ["plan"])
    tracer.done("a", "b")
    for id in ("c", "d"):
        tracer.start(id, ["a", "b"])
    tracer.done("c", "d").start("end", ["c", "d"])
    assert lines(tracer.view)[4:] == [
        "├── ✓ c  step  0.20 s  after a, b",
        "├── ✓ d  step  0.20 s  after a, b",
        "└── ▸ end  step  after c, d",
    ]


def test_another_node_with_several_parents_is_below_its_first_and_referred_to_at_the_others() -> (
    None
):
    tracer = (
        Tracer().start("a").start("within a", ["a"]).start("b").start("shared", ["within a", "b"])
    )
    assert lines(tracer.view)[1:] == [
        "├── ▸ a  step",
        "│   └── ▸ within a  step",
        "│       └── ▸ shared  step",
        "└── ▸ b  step",
        "    └── → shared",
    ]
    page = tracer.view._repr_html_()
    assert page.count("<b>shared</b>") == 1
    assert "→ shared" in page


@drawings
def test_every_node_is_drawn_with_its_state(kind: str) -> None:
    text = drawn(forked().view, kind)
    assert "6 nodes · 1 running · 1 failed" in text
    for part in ("plan", "first", "second", "third", "merge", "answer", "no network", "0.30 s"):
        assert part in text
    assert all(sign in text for sign in "✓✗▸")


def test_states_have_colours() -> None:
    text = rich_text(forked().view, colour=True)
    assert "\x1b[32m✓" in text
    assert "\x1b[31m✗" in text
    assert "\x1b[36m▸" in text


@pytest.mark.parametrize(
    ("span", "told"), [(0.1, "0.10 s"), (45.25, "45.2 s"), (250.0, "4 m 10 s")]
)
def test_durations(span: float, told: str) -> None:
    fold = TraceFold()
    fold.feed("trace.node_started", "run", 0.0, {"node_id": "a", "label": "a"})
    fold.feed("trace.node_completed", "run", span, {"node_id": "a"})
    assert told in str(TraceView.of(fold))


def test_a_node_without_a_label_goes_by_its_type_or_id() -> None:
    tracer = Tracer().start("n1", label="", type="search").start("n2", label="\x00", type="")
    assert lines(tracer.view)[1:] == ["├── ▸ search", "└── ▸ n2"]


def test_the_last_logs_are_shown() -> None:
    tracer = Tracer().start("a")
    for n in range(5):
        tracer.log("a", f"line {n}", "warn", {"n": n})
    assert lines(tracer.view)[2:] == [f'    warn: line {n} {{"n":{n}}}' for n in (2, 3, 4)]
    assert "line 0" in Page(tracer.view._repr_html_()).text


def test_a_page_has_the_facts_of_a_node() -> None:
    tracer = Tracer().start(
        "a", input={"q": "why?"}, description="looks it up", metadata={"hits": 5}
    )
    tracer.done("a", output="because")
    page = Page(tracer.view._repr_html_())
    assert {"details", "summary", "pre"} <= page.names
    for part in ("looks it up", '{"q":"why?"}', "because", '{"hits":5}'):
        assert part in page.text


def test_a_longer_value_has_a_line_for_each_member() -> None:
    view = Tracer().start("a", input={f"key {n}": "value" * 3 for n in range(5)}).view
    assert '\n  "key 1": "valuevaluevalue",\n' in Page(view._repr_html_()).text


# -- spaces --------------------------------------------------------------------------------------


@drawings
def test_spaces_are_a_table(kind: str) -> None:
    tracer = forked().space("s1", {"a": 1, "b": [2]}, label="Memory", type="context")
    text = drawn(tracer.view, kind)
    for part in ("Memory", "context", "s1", "2", '{"a":1,"b":[2]}'):
        assert part in text


@drawings
def test_spaces_without_nodes_are_shown(kind: str) -> None:
    text = drawn(Tracer().space("s1", {}, label="Memory").view, kind)
    assert "Nothing was traced" in text
    assert "Memory" in text


# -- what people write ---------------------------------------------------------------------------


def hostile() -> Tracer:
    tracer = Tracer().start(
        "a",
        label=HOSTILE,
        type=HOSTILE,
        icon=HOSTILE,
        description=HOSTILE,
        metadata={HOSTILE: HOSTILE},
        input={HOSTILE: [HOSTILE]},
    )
    tracer.log("a", HOSTILE, HOSTILE, {HOSTILE: HOSTILE}).fail("a", HOSTILE)
    tracer.start("b", ["a"], label=HOSTILE, input=HOSTILE).done("b", output=HOSTILE)
    return tracer.space(HOSTILE, {HOSTILE: HOSTILE}, label=HOSTILE, type=HOSTILE)


@pytest.mark.parametrize("kind", ["str", "rich"])
def test_a_terminal_obeys_nothing_and_shows_marks_as_they_are(kind: str) -> None:
    text = drawn(hostile().view, kind)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]" in text
    text.encode()


def test_a_page_runs_nothing() -> None:
    html = hostile().view._repr_html_()
    html.encode()
    page = Page(html)
    known = {"div", "details", "summary", "span", "b", "pre", "table", "thead", "tbody", "tr"}
    assert page.names <= known | {"th", "td"}
    assert all(set(attrs) <= {"style", "title", "open"} for _, attrs in page.tags)
    assert "<script>" in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_a_page_needs_nothing_from_elsewhere() -> None:
    html = forked().view._repr_html_()
    assert not any(part in html for part in ("http:", "https:", "src=", "url(", "<style"))


@drawings
def test_what_is_large_is_cut_short(kind: str) -> None:
    big = "x" * 1_000_000
    tracer = Tracer()
    for n in range(20):
        nested = {"list": [big] * 100, "deep": {str(n): big for n in range(100)}}
        tracer.start(f"{n}", label=big, description=big, input=nested, metadata={big: big})
        tracer.log(f"{n}", big, data=nested).fail(f"{n}", big)
    tracer.space("s", {"a": big}, label=big)
    view = tracer.view
    begun = time.perf_counter()
    text = drawn(view, kind)
    assert time.perf_counter() - begun < 5.0
    assert len(text) < 400_000
    assert "…" in text


# -- many nodes ----------------------------------------------------------------------------------


def rounds(count: int) -> Tracer:
    """A loop of steps: a call within each, three nodes side by side, and their join."""
    tracer = Tracer().start("0 join").done("0 join")
    for n in range(1, count):
        last = f"{n - 1} join"
        tracer.start(f"{n} step", [last], input={"text": "x" * 5_000})
        tracer.start(f"{n} call", [f"{n} step"], type="mcp").done(f"{n} call", f"{n} step")
        side = [f"{n} side {each}" for each in "abc"]
        for id in side:
            tracer.start(id, [f"{n} step"])
        tracer.done(*side).start(f"{n} join", side).done(f"{n} join")
    return tracer


@drawings
def test_a_thousand_nodes_are_drawn(kind: str) -> None:
    view = rounds(168).view
    assert len(view) > 1_000
    begun = time.perf_counter()
    text = drawn(view, kind)
    assert time.perf_counter() - begun < 10.0
    for n in (1, 84, 167):
        assert f"{n} join" in text
        assert f"{n} side c" in text


def test_a_page_of_a_thousand_nodes_is_not_huge_and_not_deep() -> None:
    html = rounds(168).view._repr_html_()
    assert len(html) < 2_000_000
    assert Page(html).deepest < 12


@drawings
def test_a_thousand_nodes_within_each_other_are_drawn(kind: str) -> None:
    tracer = Tracer().start("n0")
    for n in range(1, 1_000):
        tracer.start(f"n{n}", [f"n{n - 1}"])
    view = tracer.view
    assert "n999" in drawn(view, kind)
    assert Page(view._repr_html_()).deepest < 200


@pytest.mark.parametrize("width", [30, 60, 100])
def test_no_node_is_lost_for_want_of_room(width: int) -> None:
    tracer = Tracer().start("n0")
    for n in range(1, 40):
        tracer.start(f"n{n}", [f"n{n - 1}"])
    text = rich_text(tracer.view, width)
    assert all(f"▸ n{n} " in text for n in range(40))


@drawings
def test_of_very_many_nodes_the_first_are_drawn_and_the_rest_counted(kind: str) -> None:
    tracer = Tracer()
    for n in range(2_345):
        tracer.start(f"n{n}")
    text = drawn(tracer.view, kind)
    assert "2,345 nodes" in text
    assert "345 more nodes in `.nodes`" in text
    assert "n1999" in text
    assert "n2000" not in text


def test_layers_of_joins_are_drawn_once_each() -> None:
    tracer, above = Tracer().start("root").done("root"), ["root"]
    made: list[str] = []
    for layer in range(10):
        ids = [f"L{layer}-{n}." for n in range(5)]
        for id in ids:
            tracer.start(id, above)
        tracer.done(*ids)
        made += ids
        above = ids
    html, text = tracer.view._repr_html_(), str(tracer.view)
    assert all(html.count(f"<b>{id}</b>") == 1 for id in made)
    assert all(text.count(f"✓ {id} ") == 1 for id in made)


# -- in a terminal -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_terminal(width: int) -> None:
    tracer = forked().log("answer", "word " * 100).space("s1", {"key": "value " * 50})
    assert all(cell_len(line) <= width for line in rich_text(tracer.view, width).splitlines())


def test_text_is_the_same_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    view = forked().view
    plain = str(view)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    assert str(view) == plain


def test_rich_is_imported_only_when_it_draws() -> None:
    code = "import sys, noetic_ray.harness.trace_view; sys.exit('rich' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
