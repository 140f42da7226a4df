"""Why an attempt at a provider failed, and whether another one can help."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from noetic_ray.models.retry import retried_status

_DETAIL = 2_000
_RATE = re.compile(r"rate.?limit|too.?many.?requests|slow.?down|throttl")
_PERMANENT = re.compile(
    r"context.?(length|window)|invalid|bad.?request|authenti|permission|forbidden|not.?found"
    r"|unsupported|quota|billing|policy|above.?max|too.?l(ong|arge)|empty.?image|too.?small"
)
_PASSING = re.compile(
    r"server.?error|internal|overload|unavailable|time.?out|bad.?gateway|capacity|api.?error|conflict"
)
_OVERFLOW = re.compile(
    r"maximum context length|context window|context length|too many tokens|prompt is too long"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


class AttemptFailed(Exception):
    """One attempt came to nothing. `status` is None when there was no response.

    `body` is all that a server said along with an HTTP status other than success.
    """

    def __init__(
        self,
        detail: str,
        status: int | None = None,
        *,
        retryable: bool = True,
        rate_limited: bool = False,
        wait: float | None = None,
        body: str = "",
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.body = body
        self.status = status
        self.retryable = retryable
        self.rate_limited = rate_limited
        self.wait = wait


def broken(detail: str) -> AttemptFailed:
    """A response that began and did not come to its end."""
    return AttemptFailed(f"the stream broke: {detail}", 200)


def read_event(data: bytes) -> Any:
    """The JSON of an event. Lone surrogates stay, so that halves can meet in the next event.

    Raises AttemptFailed when it is none.
    """
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        return json.loads(data.decode(), strict=False, parse_int=_bounded_int)
    except (ValueError, RecursionError) as exc:
        raise broken(f"an event is not valid JSON in UTF-8 ({exc})") from None


def _bounded_int(digits: str) -> int | str:
    return int(digits) if len(digits) <= 4_300 else digits


def from_status(status: int, body: bytes, wait: float | None) -> AttemptFailed:
    """The failure that an HTTP status other than success stands for."""
    return AttemptFailed(
        _said(body),
        status,
        retryable=retried_status(status),
        rate_limited=status == 429,
        wait=wait,
        body=body.decode("utf-8", "replace"),
    )


def from_error_object(error: Any) -> AttemptFailed:
    """The failure an error object inside a successful response stands for.

    Its numeric code is taken as a status; else its code, its type, then its text decide. An error
    that says nothing recognizable is worth another attempt.
    """
    if not isinstance(error, Mapping):
        error = {"message": error}
    detail = _message(error)
    status = _numeric(error.get("code")) or _numeric(error.get("status"))
    if status is not None:
        retryable = retried_status(status)
        return AttemptFailed(detail, status, retryable=retryable, rate_limited=status == 429)
    for word in (error.get("code"), error.get("type")):
        failure = _by_name(str(word or "").lower(), detail)
        if failure is not None:
            return failure
    return AttemptFailed(detail, 200, retryable=not _OVERFLOW.search(detail.lower()))


def without_secrets(text: str, secret: str | None) -> str:
    """Text with the key, and user names and passwords in URLs, replaced by stars."""
    if secret:
        text = text.replace(secret, "***")
    return _USERINFO.sub("***@", text)


def _by_name(name: str, detail: str) -> AttemptFailed | None:
    if _RATE.search(name):
        return AttemptFailed(detail, 429, rate_limited=True)
    if _PERMANENT.search(name):
        return AttemptFailed(detail, 200, retryable=False)
    if _PASSING.search(name):
        retryable = not _OVERFLOW.search(detail.lower())
        return AttemptFailed(detail, 200, retryable=retryable)
    return None


def _numeric(code: Any) -> int | None:
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599:
        return code
    return None


def _said(body: bytes) -> str:
    try:
        parsed = from_json(body)
    except ValueError:
        return " ".join(body.decode("utf-8", "replace").split())[:_DETAIL]
    if isinstance(parsed, list) and len(parsed) == 1:
        parsed = parsed[0]
    if not isinstance(parsed, Mapping):
        return str(parsed)[:_DETAIL]
    inner = parsed.get("error")
    return _message(inner if isinstance(inner, Mapping) else parsed)


def _message(error: Mapping[str, Any]) -> str:
    """The text of an error object with its code or type, whatever the provider calls them."""
    texts = (error.get(key) for key in ("message", "error", "detail", "error_description"))
    text = next((str(each) for each in texts if each), "")
    label = next((str(e) for e in (error.get("code"), error.get("type")) if e), "")
    if label and text and label not in text:
        text = f"{text} ({label})"
    return (text or label or "the provider gave no reason")[:_DETAIL]
