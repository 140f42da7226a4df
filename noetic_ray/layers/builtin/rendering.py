"""Texts in tags, within a budget."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

CHARACTERS_A_TOKEN = 4
CUT = "..."


def tagged(tag: str, text: str, budget: int | None) -> str:
    """`text` in a tag of its own; over the budget, in tokens, it is cut before the closing tag.

    A budget of None is no limit. Nothing at all where not even the tags fit.
    """
    text = _inside(tag, text)
    whole = f"<{tag}>\n{text}\n</{tag}>"
    if budget is None or len(whole) <= budget * CHARACTERS_A_TOKEN:
        return whole
    room = budget * CHARACTERS_A_TOKEN - len(f"<{tag}>\n{CUT}\n</{tag}>")
    return f"<{tag}>\n{text[:room]}{CUT}\n</{tag}>" if room > 0 else ""


def tagged_lines(tag: str, lines: Iterable[str], budget: int | None) -> str:
    """The lines, from the first, that fit a budget in tokens; "" for none."""
    kept: list[str] = []
    used = len(f"<{tag}>\n</{tag}>")
    for line in lines:
        line = _inside(tag, line)
        used += len(line) + 1
        if budget is not None and used > budget * CHARACTERS_A_TOKEN:
            break
        kept.append(line)
    return "\n".join([f"<{tag}>", *kept, f"</{tag}>"]) if kept else ""


def _inside(tag: str, text: str) -> str:
    """What a model or a tool wrote must not end the tag it stands in."""
    return text.replace(f"</{tag}", f"<\\/{tag}")


def as_json(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def clipped(text: str, length: int) -> str:
    """A text on one line, cut to a number of characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - len(CUT)] + CUT
