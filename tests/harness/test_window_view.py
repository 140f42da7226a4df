"""The picture of a window: figures, and the same window drawn three ways."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import asdict
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

import noetic_ray as nr
from noetic_ray.engine.window.preview import Previewed
from noetic_ray.harness.window_view import WindowView
from noetic_ray.items import user_message
from noetic_ray.layers.picture import BANDS
from noetic_ray.models.protocol import ToolSpec
from noetic_ray.usage import EpochUsage, LastLayerUsage, LayerUsageEntry

FILLED = {
    "system": [1, 120],
    "tools": [3, 480],
    "anchor": [2, 1_600],
    "history": [14, 5_200],
    "live": [1, 340],
    "updates": [1, 60],
    "tail": [2, 200],
}
EPOCH = EpochUsage("conv#2", 3, 1_600, 340, 60, "max-age")
HOSTILE = "\x1b[31m<script>alert('x')</script>&\"[bold red]\u202e\nend"


def entry(
    layer_id: str,
    placement: str = "anchor",
    served: str = "pinned",
    changed: bool = False,
    churn: float | None = 0.0,
    tokens: int = 777,
    items: int = 5,
) -> LayerUsageEntry:
    return LayerUsageEntry(layer_id, tokens, items, placement, served, changed, churn, 0)


LAYERS = (
    entry("facts"),
    entry("plan", "live", "fresh", changed=True, churn=0.25, tokens=1_340, items=9),
)


def picture(
    bands: dict[str, list[int]] | None = None,
    layers: tuple[LayerUsageEntry, ...] = LAYERS,
    epoch: EpochUsage | None = EPOCH,
    model: str = "small-model",
) -> dict[str, Any]:
    return {
        "bands": FILLED if bands is None else bands,
        "layers": [asdict(each) for each in layers],
        "epoch": None if epoch is None else asdict(epoch),
        "model": model,
    }


def seen(**changes: Any) -> WindowView:
    return WindowView.of_event(picture(**changes), "ctx")


def rich_text(view: WindowView, width: int = 100, colour: bool = False) -> str:
    out = io.StringIO()
    Console(
        file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    ).print(view)
    return out.getvalue()


class Page(HTMLParser):
    """The texts, rows of cells, and tags of a page; fails where a tag is closed out of turn."""

    VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def segments(self) -> list[str]:
        """The styles of the bar's pieces."""
        styles = [attrs.get("style") or "" for tag, attrs in self.tags if tag == "div"]
        return [style for style in styles if style.startswith("flex:")]


def rows_of(view: WindowView, kind: str) -> list[list[str]]:
    """The cells of each line that is not blank."""
    if kind == "html":
        page = Page(view._repr_html_())
        return [*page.rows, *([text] for text in page.texts)]
    text = str(view) if kind == "str" else rich_text(view)
    return [line.split() for line in text.splitlines() if line.strip()]


def row_of(view: WindowView, kind: str, first: str) -> list[str]:
    return next(cells for cells in rows_of(view, kind) if cells[0] == first)


drawings = pytest.mark.parametrize("kind", ["str", "rich", "html"])


# -- figures -------------------------------------------------------------------------------------


def test_bands_stand_in_window_order_whatever_order_the_event_has() -> None:
    view = seen(bands=dict(reversed(FILLED.items())))
    assert [band.name for band in view.bands] == list(BANDS)


def test_the_total_and_the_shares_add_up() -> None:
    view = seen()
    assert view.tokens == sum(tokens for _, tokens in FILLED.values())
    assert sum(band.share for band in view.bands) == pytest.approx(1.0)
    assert view.bands[3].share == pytest.approx(5_200 / view.tokens)


def test_empty_bands_are_left_out() -> None:
    view = seen(bands={"system": [0, 0], "tools": [1, 0], "history": [2, 30], "live": [0, 0]})
    assert [(band.name, band.items, band.tokens) for band in view.bands] == [
        ("tools", 1, 0),
        ("history", 2, 30),
    ]


def test_an_event_gives_figures_and_no_request() -> None:
    view = seen()
    assert (view.model, view.layers, view.epoch) == ("small-model", LAYERS, EPOCH)
    assert (view.instructions, view.items, view.tools, view.usage) == (None, (), (), None)


def test_a_preview_has_the_request_too() -> None:
    items = (user_message("hello"),)
    tools = (ToolSpec("look", "Looks.", {"type": "object"}),)
    usage = LastLayerUsage("ctx", "small-model", LAYERS, 120, 480, 5_400, 7_777, EPOCH)
    shown = picture()
    del shown["model"]
    view = WindowView.of(Previewed("small-model", "Be brief.", items, tools, shown, usage))
    assert (view.model, view.instructions) == ("small-model", "Be brief.")
    assert (view.items, view.tools, view.usage) == (items, tools, usage)
    assert (view.layers, view.epoch, view.bands) == (LAYERS, EPOCH, seen().bands)


def test_without_a_window_the_error_says_which_context_and_what_to_do() -> None:
    with pytest.raises(nr.ConfigError) as caught:
        WindowView.of_event(None, "ctx-7")
    assert caught.value.code == "NO_WINDOW"
    for part in ("ctx-7", "model step", "emit=False"):
        assert part in str(caught.value)


def test_the_short_form_is_one_line() -> None:
    assert repr(seen()) == "WindowView(model='small-model', tokens=8000, bands=7, layers=2)"


def test_it_is_a_public_name() -> None:
    assert nr.WindowView is WindowView


# -- all drawings --------------------------------------------------------------------------------


@drawings
@pytest.mark.parametrize("name", BANDS)
def test_each_band_is_drawn_with_its_figures(kind: str, name: str) -> None:
    items, tokens = FILLED[name]
    cells = row_of(seen(), kind, name)
    assert cells[-3:] == [str(items), f"{tokens:,}", f"{tokens / 8_000:.1%}"]


@drawings
def test_each_layer_is_drawn_with_its_figures(kind: str) -> None:
    view = seen()
    pinned = ["facts", "anchor", "777", "5", "pinned", "unchanged", "0%"]
    fresh = ["plan", "live", "1,340", "9", "fresh", "changed", "25%"]
    assert row_of(view, kind, "facts") == pinned
    assert row_of(view, kind, "plan") == fresh


@drawings
def test_a_layer_that_shows_nothing_has_no_band(kind: str) -> None:
    quiet = entry("quiet", "", "", churn=None, tokens=0, items=0)
    assert row_of(seen(layers=(quiet,)), kind, "quiet") == ["quiet", "-", "0", "0", "-", "-", "-"]


@drawings
def test_the_epoch_has_its_figures_and_why_it_began(kind: str) -> None:
    epoch = EpochUsage("t:0198f2a1-7c3d-7abc-8def-0123456789ab#2", 3, 11_600, 1_340, 60, "max-age")
    lines = [" ".join(cells) for cells in rows_of(seen(epoch=epoch), kind)]
    assert f"epoch {epoch.id} · age 3 · anchor 11,600 · live 1,340 · delta 60" in lines
    assert "re-anchored because of max-age" in lines


@drawings
def test_an_epoch_that_goes_on_gives_no_reason(kind: str) -> None:
    text = str(rows_of(seen(epoch=EpochUsage("conv#2", 4, 1, 0, 0)), kind))
    assert "anchor" in text
    assert "because" not in text


@drawings
def test_without_anchoring_that_is_said(kind: str) -> None:
    lines = [" ".join(cells) for cells in rows_of(seen(epoch=None), kind)]
    assert "no epoch: anchoring is off" in lines


@drawings
def test_the_model_and_the_total_head_the_picture(kind: str) -> None:
    lines = [" ".join(cells) for cells in rows_of(seen(), kind)]
    assert "window of small-model · 8,000 tokens" in lines


@drawings
def test_an_empty_window_is_said_to_be_empty(kind: str) -> None:
    view = seen(bands={}, layers=(), epoch=None)
    assert (view.tokens, view.bands) == (0, ())
    lines = [" ".join(cells) for cells in rows_of(view, kind)]
    assert "Nothing is in this window." in lines
    assert not any(line.startswith(("band", "layer")) for line in lines)


@drawings
def test_bands_without_tokens_have_no_share(kind: str) -> None:
    assert row_of(seen(bands={"history": [3, 0]}), kind, "history") == ["history", "3", "0", "0.0%"]


# -- as text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_the_text_has_no_escape_codes(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    text = str(seen(layers=(entry(HOSTILE),), model=HOSTILE))
    assert all(c.isprintable() or c == "\n" for c in text)


def test_the_text_is_the_same_on_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(seen())
    monkeypatch.setenv("COLUMNS", "30")
    assert str(seen()) == text
    assert max(map(len, text.splitlines())) <= 100


def test_a_long_layer_id_is_folded_and_not_cut() -> None:
    id = "layer-" * 40
    text = str(seen(layers=(entry(id),)))
    assert max(map(len, text.splitlines())) <= 100
    lines = text[text.index("layer ") :].splitlines()[1:]
    assert "".join(line.split(" ")[0] for line in lines).startswith(id)


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    view = seen(layers=(entry("layer-" * 40), entry("日本" * 60)))
    assert all(cell_len(line) <= width for line in rich_text(view, width).splitlines())


def test_bars_are_as_long_as_their_shares() -> None:
    view = seen(bands={"anchor": [1, 1_000], "history": [1, 3_000]})
    anchor, history = (row_of(view, "str", name)[1] for name in ("anchor", "history"))
    assert set(anchor + history) == {"█"}
    assert len(history) == 3 * len(anchor)


def test_the_smallest_band_still_has_a_bar() -> None:
    view = seen(bands={"history": [9, 1_000_000], "tail": [1, 1]})
    assert row_of(view, "str", "tail") == ["tail", "▏", "1", "1", "0.0%"]


def test_on_a_very_narrow_terminal_columns_fold_and_lose_nothing() -> None:
    text = rich_text(seen(), 44)
    for part in ("facts", "plan", "777", "1,340", "fresh", "25%"):
        assert part in text


def test_on_a_narrow_terminal_bars_give_way_and_figures_stay() -> None:
    text = rich_text(seen(), 60)
    for items, tokens in FILLED.values():
        assert f" {items} " in text
        assert f" {tokens:,} " in text


def test_a_layer_id_is_no_markup() -> None:
    assert "[bold red]" in str(seen(layers=(entry("[bold red]x"),)))


def test_a_terminal_gets_colours() -> None:
    assert "\x1b[" in rich_text(seen(), colour=True)


# -- as HTML -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        seen(),
        seen(bands={}, layers=(), epoch=None),
        seen(
            layers=(entry(HOSTILE),), model=HOSTILE, epoch=EpochUsage(HOSTILE, 1, 0, 0, 0, HOSTILE)
        ),
    ],
    ids=["filled", "empty", "hostile"],
)
def test_the_html_is_balanced_and_stands_alone(view: WindowView) -> None:
    page = Page(view._repr_html_())
    assert page.open == []
    assert {tag for tag, _ in page.tags} <= {
        "div", "span", "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    names = {name for _, attrs in page.tags for name in attrs}
    assert names <= {"style", "title", "role", "aria-label"}
    assert not any("url(" in (attrs.get("style") or "") for _, attrs in page.tags)


def test_hostile_texts_are_text_in_html() -> None:
    view = seen(layers=(entry(HOSTILE),), model=HOSTILE, epoch=EpochUsage(HOSTILE, 1, 0, 0, 0))
    html = view._repr_html_()
    assert "<script" not in html
    told = "[31m<script>alert('x')</script>&\"[bold red] end"
    shown = "".join(Page(html).texts)
    assert row_of(view, "html", told)[4] == "pinned"
    assert f"window of {told} ·" in shown
    assert f"epoch {told} ·" in shown


def test_the_bar_has_a_piece_for_each_band() -> None:
    page = Page(seen()._repr_html_())
    assert [style.split(" ")[0] for style in page.segments] == [
        f"flex:{tokens}" for _, tokens in FILLED.values()
    ]


def test_the_legend_has_the_colours_of_the_bar() -> None:
    page = Page(seen()._repr_html_())
    bar = [style.rsplit("background:", 1)[1] for style in page.segments]
    swatches = [attrs.get("style") or "" for tag, attrs in page.tags if tag == "span"]
    assert [style.rsplit("background:", 1)[1] for style in swatches] == bar
    assert len(set(bar)) == len(BANDS)


def test_the_page_around_chooses_the_colour_of_texts() -> None:
    styles = [attrs.get("style") or "" for _, attrs in Page(seen()._repr_html_()).tags]
    colours = [
        value
        for style in styles
        for name, _, value in (part.partition(":") for part in style.split(";"))
        if name == "color"
    ]
    assert set(colours) == {"inherit"}


# -- loading -------------------------------------------------------------------------------------


def test_importing_it_loads_neither_rich_nor_the_engine() -> None:
    code = (
        "import sys, noetic_ray.harness.window_view\n"
        "heavy = ('rich', 'ray', 'pydantic', 'noetic_ray.engine')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
