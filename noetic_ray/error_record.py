"""Exceptions as plain data."""

from __future__ import annotations

import traceback as tb
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ErrorRecord"]

MAX_MESSAGE = 8_000
_MAX_CAUSES = 8
_MAX_TRACEBACK = 16_000
_MAX_FRAMES = 40


def clip(text: str, limit: int) -> str:
    """Shorten from the middle: the head names the thing, the tail of a traceback is the news."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... [{len(text) - 2 * half} characters left out] ... {text[-half:]}"


def text_of(exc: BaseException) -> str:
    """The exception's message, bounded, whatever its ``__str__`` does."""
    try:
        return clip(str(exc), MAX_MESSAGE)
    except Exception:
        return "<no message: str() of this exception failed>"


def type_name(cls: type) -> str:
    """The qualified name, bare for builtins."""
    module = str(getattr(cls, "__module__", ""))
    return cls.__qualname__ if module in ("builtins", "") else f"{module}.{cls.__qualname__}"


def _traceback_of(exc: BaseException) -> str:
    try:
        lines = tb.format_exception(type(exc), exc, exc.__traceback__, -_MAX_FRAMES, chain=False)
        return clip("".join(lines), _MAX_TRACEBACK)
    except Exception as failure:
        return f"<traceback could not be formatted: {type(failure).__name__}>"


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception as plain data: picklable and JSON-able whatever the exception held.

    ``type`` is the qualified class name, bare for builtins. Messages, tracebacks and the length of
    the cause chain are bounded.
    """

    type: str
    message: str
    traceback: str = ""
    cause: ErrorRecord | None = None

    @classmethod
    def of(cls, exc: BaseException) -> ErrorRecord:
        """The record of an exception and of what caused it. Never raises."""
        chain = _cause_chain(exc)
        record = _shortened(chain[-1].__dict__.get("cause"), _MAX_CAUSES - len(chain))
        for each in reversed(chain):
            name = type_name(type(each))
            record = cls(name, text_of(each), _traceback_of(each), record)
        assert record is not None
        return record

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dicts, read back by :meth:`from_dict`."""
        cause = self.cause.as_dict() if self.cause else None
        return {
            "type": self.type,
            "message": self.message,
            "traceback": self.traceback,
            "cause": cause,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ErrorRecord:
        """Rebuild a record; absent keys become empty text."""
        cause = data.get("cause")
        return cls(
            str(data.get("type", "")),
            str(data.get("message", "")),
            str(data.get("traceback", "")),
            cls.from_dict(cause) if isinstance(cause, Mapping) else None,
        )


def _shortened(cause: object, room: int) -> ErrorRecord | None:
    """The record an exception from elsewhere has as its ``cause`` in place of ``__cause__``."""
    if not isinstance(cause, ErrorRecord) or room <= 0:
        return None
    below = _shortened(cause.cause, room - 1)
    return ErrorRecord(cause.type, cause.message, cause.traceback, below)


def _cause_chain(exc: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    following: BaseException | None = exc
    while following is not None and len(chain) < _MAX_CAUSES:
        if any(following is seen for seen in chain):
            break
        chain.append(following)
        if following.__cause__ is not None:
            following = following.__cause__
        else:
            following = None if following.__suppress_context__ else following.__context__
    return chain
