"""Reading the body of a request: bounded, JSON, and of the right shape."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from noetic_ray.serve.problems import Problem, of_shape

Body = TypeVar("Body", bound=BaseModel)
#: Only a body with such a run of digits can hold a number outside of what a float holds.
_LARGE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")
_LARGEST = 10**308


async def read_body(
    request: Request, shape: type[Body], max_body: int, empty: bool = False
) -> Body:
    """The body in its shape; with `empty` none at all will do. Raises Problem."""
    raw = await _read(request, max_body)
    given = {} if empty and not raw.strip() else _parse(raw)
    try:
        return shape.model_validate(given)
    except ValidationError as wrong:
        raise of_shape(wrong) from None


async def _read(request: Request, max_body: int) -> bytes:
    """Reads no further than the limit, whatever the headers promise."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "invalid_request", "a body must come as it is, without encoding")
    promised = request.headers.get("content-length", "")
    if promised.isdecimal() and (len(promised) > 18 or int(promised) > max_body):
        raise _too_large(max_body)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > max_body:
                raise _too_large(max_body)
            parts.append(part)
    except ClientDisconnect:
        raise Problem(400, "invalid_request", "the body was cut short") from None
    return b"".join(parts)


def _too_large(max_body: int) -> Problem:
    return Problem(
        413,
        "invalid_request",
        f"the body has more than {max_body} bytes",
        code="body_too_large",
        headers={"Connection": "close"},
    )


def _parse(raw: bytes) -> Any:
    """Lone surrogates, NaN and nesting over 200 levels are no JSON here."""
    try:
        found = from_json(raw, allow_inf_nan=False)
    except ValueError as wrong:
        raise _no_json(str(wrong)) from None
    if _LARGE.search(raw) and not _numbers_fit(found):
        raise _no_json("a number is too large")
    return found


def _no_json(why: str) -> Problem:
    return Problem(400, "invalid_request", f"the body is not JSON: {why}", code="invalid_json")


def _numbers_fit(value: Any) -> bool:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, int | float) and abs(each) > _LARGEST:
            return False
    return True
