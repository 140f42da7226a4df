"""Figures and texts as people read them."""

from __future__ import annotations

from collections.abc import Mapping

#: Sign and colour of each status.
SIGNS: Mapping[str, tuple[str, str]] = {
    "pending": ("·", "dim"),
    "running": ("▸", "cyan"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("■", "yellow"),
    "lost": ("?", "magenta"),
}


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters, without control characters."""
    flat = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def short(id: str) -> str:
    """The end of an id, which is what differs."""
    return id[-6:]


def seconds(value: float) -> str:
    """A duration: 0.84 s, 12.3 s, 4 m 10 s."""
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} m {rest:02} s"


def dollars(value: float) -> str:
    """A cost: $0, $0.0031, $1.25."""
    if value == 0:
        return "$0"
    return f"${value:.2f}" if value >= 1 else f"${value:.4f}"


def plural(n: int, one: str, many: str | None = None) -> str:
    """1 context, 2 contexts."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
