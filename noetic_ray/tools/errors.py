"""Arguments that cannot be used: what the model, or the caller of a tool step, is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_MAX_PREVIEW = 300
_MAX_SCHEMA = 4_000
_MAX_PROBLEMS = 5
_MAX_PROBLEM = 300


class ToolArgumentsError(ValueError):
    """A tool was not called because of its arguments. The text is fit for a model to read.

    It never leaves the engine as such: a model gets its text as the call's output, a tool run as a
    step fails with it as the cause.
    """


def unusable(
    tool: str, problem: str, received: object, schema: Mapping[str, Any]
) -> ToolArgumentsError:
    """The error for `received`, the arguments as text or as values; all parts are bounded."""
    return ToolArgumentsError(
        f"The tool {tool} was not called, its arguments cannot be used: {problem}\n"
        f"Received: {_preview(received)}\n"
        f"Expected a JSON object that fits this schema: {_schema_text(schema)}"
    )


def problems_of(error: ValidationError) -> str:
    """The first few validation problems, each with the place of the value."""
    found = error.errors(include_url=False, include_context=False)
    shown = [_clip(_line(each), _MAX_PROBLEM) for each in found[:_MAX_PROBLEMS]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _line(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])


def _preview(received: object) -> str:
    if not isinstance(received, str):
        return _clip(repr(received), _MAX_PREVIEW)
    shown = json.dumps(received[:_MAX_PREVIEW], ensure_ascii=False)
    if len(received) <= _MAX_PREVIEW:
        return shown
    return f"{shown} and {len(received) - _MAX_PREVIEW:,} characters more"


def _schema_text(schema: Mapping[str, Any]) -> str:
    return _clip(json.dumps(schema, ensure_ascii=False, separators=(",", ":")), _MAX_SCHEMA)


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} ... (cut)"
