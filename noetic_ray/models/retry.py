"""When to try a provider again, and after how long."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

BACKOFF_FLOOR = 0.5
BACKOFF_CAP = 30.0

_RETRIED = frozenset({408, 409, 425, 429})
#: Larger figures are moments, not spans; they come in several units and are not worth a guess.
_EPOCH = 1e8
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)")


def retried_status(status: int) -> bool:
    """Whether an answer with this HTTP status is worth another attempt."""
    return status >= 500 or status in _RETRIED


def backoff(attempt: int) -> float:
    """Seconds to wait after failed attempt `attempt` (from 1): doubling, half of it jitter."""
    ceiling = min(BACKOFF_CAP, BACKOFF_FLOOR * 2.0 ** min(attempt, 16))
    return random.uniform(ceiling / 2, ceiling)


def asked_wait(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds a provider asked to wait, None when it asked for nothing usable.

    `headers` must look names up without regard to case. Milliseconds win over `retry-after`
    (seconds or a date), which wins over the reset times of exhausted rate limits. Zero, negative,
    past and unreadable values are no request.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _positive(milliseconds / 1000)
    value = headers.get("retry-after")
    if value is not None:
        seconds = _number(value)
        return _positive(_until(value, now) if seconds is None else seconds)
    return _reset(headers)


def spread(seconds: float) -> float:
    """A wait the provider asked for, up to a tenth longer, so that a crowd spreads out."""
    return seconds * random.uniform(1.0, 1.1)


def _number(value: str | None) -> float | None:
    text = (value or "").strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _positive(seconds: float | None) -> float | None:
    return seconds if seconds is not None and seconds > 0 and math.isfinite(seconds) else None


def _until(date: str, now: float | None) -> float | None:
    try:
        moment = parsedate_to_datetime(date.strip()).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return moment - (time.time() if now is None else now)


def _reset(headers: Mapping[str, str]) -> float | None:
    waits = []
    for what in ("requests", "tokens"):
        remaining = _number(headers.get(f"x-ratelimit-remaining-{what}"))
        wait = _span(headers.get(f"x-ratelimit-reset-{what}"))
        if wait is not None and not remaining:
            waits.append(wait)
    return max(waits, default=None)


def _span(value: str | None) -> float | None:
    """Read `1m30s`, `20ms` or plain seconds."""
    text = (value or "").strip()
    plain = _number(text)
    if plain is not None:
        return _positive(plain) if plain < _EPOCH else None
    parts = _SPAN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return _positive(sum(float(number) * _UNITS[unit] for number, unit in parts))
