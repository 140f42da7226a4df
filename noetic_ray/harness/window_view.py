"""One window as a picture: a table in a terminal, HTML in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from noetic_ray.errors import ConfigError
from noetic_ray.layers.picture import BANDS, band_of
from noetic_ray.usage import EpochUsage, LastLayerUsage, LayerUsageEntry

if TYPE_CHECKING:
    from rich.bar import Bar
    from rich.console import Group
    from rich.table import Table

    from noetic_ray.engine.window.preview import Previewed
    from noetic_ray.items import Item
    from noetic_ray.models.protocol import ToolSpec

__all__ = ["Band", "WindowView"]

#: A colour for each band that is told from the others on white and on black.
_COLOURS: Mapping[str, str] = {
    "system": "#7c83db",
    "tools": "#c77dba",
    "anchor": "#4c9f70",
    "history": "#4a90c4",
    "live": "#d9902f",
    "updates": "#cf5c5c",
    "tail": "#8a8f98",
}
_BAND_HEADS = ("band", "items", "tokens", "share")
_LAYER_HEADS = ("layer", "band", "tokens", "items", "served", "changed", "churn")
_BAR = ""
_FIGURES = frozenset({"items", "tokens", "share", "churn"})
_NONE = "-"
_EMPTY = "Nothing is in this window."
_TEXT_WIDTH = 100
_BAR_WIDTH = 32
_GAP = 2


@dataclass(frozen=True, slots=True)
class Band:
    """One band of a window. `tokens` is an estimate, `share` its part of the whole, 0 to 1."""

    name: str
    items: int
    tokens: int
    share: float


@dataclass(frozen=True, slots=True, repr=False)
class WindowView:
    """What one model request is made of, from `Run.window` or `Harness.preview`.

    `print` it for a table; a notebook shows it as HTML.

    `bands` stand in the order a model sees them: system, tools, anchor, history, live, updates,
    tail; empty ones are left out. `tokens` adds them up, an estimate. `layers` are sorted by id,
    and `epoch` is None when anchoring is off.

    A preview also has the request itself: `instructions`, `items`, `tools`, and in `usage` what
    `ctx.last_layer_usage` would say. A run's window is figures alone: there `instructions` and
    `usage` are None, `items` and `tools` empty.
    """

    model: str
    bands: tuple[Band, ...]
    layers: tuple[LayerUsageEntry, ...]
    epoch: EpochUsage | None
    tokens: int
    instructions: str | None = None
    items: tuple[Item, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    usage: LastLayerUsage | None = None

    @classmethod
    def of(cls, previewed: Previewed) -> WindowView:
        """The picture of a request that was put together and not sent."""
        return cls(
            previewed.model,
            *_figures(previewed.picture),
            instructions=previewed.instructions,
            items=tuple(previewed.items),
            tools=tuple(previewed.tools),
            usage=previewed.usage,
        )

    @classmethod
    def of_event(cls, picture: Mapping[str, Any] | None, context_id: str) -> WindowView:
        """The picture of a window as an event carries it, its model's name included.

        Raises ConfigError `NO_WINDOW` when there is none.
        """
        if picture is None:
            raise ConfigError(
                "NO_WINDOW",
                f"context {context_id!r} has no window to show",
                "No model step has run there yet, or its events are off with emit=False. "
                "Ask after its first model call, or for the id of another context.",
            )
        return cls(str(picture["model"]), *_figures(picture))

    def __repr__(self) -> str:
        return (
            f"WindowView(model={self.model!r}, tokens={self.tokens}, "
            f"bands={len(self.bands)}, layers={len(self.layers)})"
        )

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

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [Text(_title(self), style="bold")]
        parts += [_bands_table(self.bands)] if self.bands else [Text(_EMPTY, style="dim")]
        if self.layers:
            parts += ["", _layers_table(self.layers)]
        return Group(*parts, "", Text("\n".join(_epoch_lines(self.epoch)), style="dim"))

    def _repr_html_(self) -> str:
        bands = _bands_html(self.bands) if self.bands else _div(escape(_EMPTY), "opacity:.7")
        layers = _layers_html(self.layers) if self.layers else ""
        title = _div(_html(_title(self)), "font-weight:600;margin-bottom:6px")
        epoch = "".join(_div(_html(line), "opacity:.75") for line in _epoch_lines(self.epoch))
        return _div(title + bands + layers + epoch, _FRAME)


# -- figures -------------------------------------------------------------------------------------


def _figures(
    picture: Mapping[str, Any],
) -> tuple[tuple[Band, ...], tuple[LayerUsageEntry, ...], EpochUsage | None, int]:
    """The bands that are not empty, the layers, the epoch, and the tokens in all."""
    found = {name: band_of(picture, name) for name in BANDS}
    total = sum(tokens for _, tokens in found.values())
    bands = tuple(
        Band(name, items, tokens, tokens / total if total else 0.0)
        for name, (items, tokens) in found.items()
        if items or tokens
    )
    layers = tuple(LayerUsageEntry(**entry) for entry in picture["layers"])
    epoch = picture["epoch"]
    return bands, layers, None if epoch is None else EpochUsage(**epoch), total


# -- texts ---------------------------------------------------------------------------------------


def _shown(text: str) -> str:
    """The text on one line, without what a terminal would obey."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def _counted(n: int, one: str) -> str:
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


def _title(view: WindowView) -> str:
    return f"window of {_shown(view.model)} · {_counted(view.tokens, 'token')}"


def _band_cells(band: Band) -> tuple[str, ...]:
    return (band.name, f"{band.items:,}", f"{band.tokens:,}", f"{band.share:.1%}")


def _layer_cells(entry: LayerUsageEntry) -> tuple[str, ...]:
    return (
        _shown(entry.layer_id),
        entry.placement or _NONE,
        f"{entry.token_count:,}",
        f"{entry.items:,}",
        entry.served or _NONE,
        _change(entry),
        _NONE if entry.churn_rate is None else f"{entry.churn_rate:.0%}",
    )


def _change(entry: LayerUsageEntry) -> str:
    if entry.changed:
        return "changed"
    # Without a churn rate nothing has been compared.
    return _NONE if entry.churn_rate is None else "unchanged"


def _epoch_lines(epoch: EpochUsage | None) -> list[str]:
    if epoch is None:
        return ["no epoch: anchoring is off"]
    figures = (
        f"epoch {_shown(epoch.id)}",
        f"age {epoch.age:,}",
        f"anchor {epoch.anchor_tokens:,}",
        f"live {epoch.live_tokens:,}",
        f"delta {epoch.delta_tokens:,}",
    )
    lines = [" · ".join(figures)]
    if epoch.reanchor_reason is not None:
        lines.append(f"re-anchored because of {_shown(epoch.reanchor_reason)}")
    return lines


# -- for a terminal ------------------------------------------------------------------------------


def _table(heads: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(
            head,
            justify="right" if head in _FIGURES else "left",
            overflow="fold",
            max_width=_BAR_WIDTH if head == _BAR else None,
        )
    return table


def _bands_table(bands: Iterable[Band]) -> Table:
    from rich.text import Text

    name, *heads = _BAND_HEADS
    table = _table((name, _BAR, *heads))
    for band in bands:
        name, *figures = _band_cells(band)
        table.add_row(Text(name), _bar(band), *map(Text, figures))
    return table


def _bar(band: Band) -> Bar:
    """The band's share as blocks; the smallest is still seen."""
    from rich.bar import Bar

    least = 1 / (_BAR_WIDTH * 8) if band.tokens else 0.0
    return Bar(1.0, 0.0, max(band.share, least), color=_COLOURS[band.name])


def _layers_table(layers: Iterable[LayerUsageEntry]) -> Table:
    from rich.text import Text

    table = _table(_LAYER_HEADS)
    for entry in layers:
        styles = _layer_styles(entry)
        table.add_row(*map(Text, _layer_cells(entry), styles))
    return table


def _layer_styles(entry: LayerUsageEntry) -> tuple[str, ...]:
    served = {"pinned": "green", "fresh": "cyan"}.get(entry.served, "dim")
    return ("", "", "", "", served, "yellow" if entry.changed else "dim", "")


# -- for a notebook ------------------------------------------------------------------------------

# Colours come from the page, so that it reads on light and on dark.
_FRAME = "font-family:system-ui,sans-serif;font-size:13px;color:inherit;max-width:760px"
_TRACK = (
    "display:flex;height:16px;border-radius:3px;overflow:hidden;margin-bottom:6px;"
    "background:rgba(128,128,128,.2)"
)
_TABLE = "border-collapse:collapse;margin:4px 0 8px 0;color:inherit;background:transparent"
_CELL = "padding:2px 14px 2px 0;border:none;background:transparent;color:inherit"
_SWATCH = "display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px"


def _html(text: str) -> str:
    return escape(_shown(text))


def _div(inner: str, style: str) -> str:
    return f'<div style="{style}">{inner}</div>'


def _bands_html(bands: Sequence[Band]) -> str:
    segments = "".join(map(_segment, bands))
    spoken = ", ".join(f"{band.name} {band.share:.1%}" for band in bands)
    bar = f'<div role="img" aria-label="{_html(spoken)}" style="{_TRACK}">{segments}</div>'
    rows = [_row_html(_BAND_HEADS, _band_cells(band), _swatch(band.name)) for band in bands]
    return bar + _table_html(_BAND_HEADS, rows)


def _segment(band: Band) -> str:
    told = f"{band.name}: {_counted(band.items, 'item')}, {_counted(band.tokens, 'token')}"
    style = f"flex:{band.tokens} 0 0;min-width:2px;background:{_COLOURS[band.name]}"
    return f'<div title="{_html(told)}" style="{style}"></div>'


def _swatch(name: str) -> str:
    return f'<span style="{_SWATCH};background:{_COLOURS[name]}"></span>'


def _layers_html(layers: Iterable[LayerUsageEntry]) -> str:
    return _table_html(
        _LAYER_HEADS, [_row_html(_LAYER_HEADS, _layer_cells(entry)) for entry in layers]
    )


def _table_html(heads: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(_cell_html("th", name, _html(name)) for name in heads)
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _row_html(heads: Sequence[str], texts: Sequence[str], mark: str = "") -> str:
    """A row of texts; `mark` is HTML that stands in front of the first."""
    first, *rest = map(_html, texts)
    cells = (mark + first, *rest)
    return f"<tr>{''.join(_cell_html('td', *pair) for pair in zip(heads, cells, strict=True))}</tr>"


def _cell_html(tag: str, head: str, inner: str) -> str:
    align = "right" if head in _FIGURES else "left"
    return f'<{tag} style="{_CELL};text-align:{align}">{inner}</{tag}>'
