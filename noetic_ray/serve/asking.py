"""What requests say outside of their bodies' own fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from noetic_ray.request import RequestInfo
from noetic_ray.serve.problems import Problem

_YES = frozenset({"1", "true", "yes", "on"})
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


def flag(value: str | None) -> bool:
    """Whether a header or a query parameter says yes."""
    return value is not None and value.strip().lower() in _YES


def address_of(request: Request, run_id: str, message_id: str | None = None) -> str:
    """The path of a run, or of one of its messages, wherever the app is mounted."""
    path = f"{request.scope.get('root_path', '')}/v1/runs/{quote(run_id, '')}"
    return path if message_id is None else f"{path}/messages/{quote(message_id, '@')}"


def request_info(
    request: Request, body: Mapping[str, Any], agent: str
) -> tuple[RequestInfo, str | None]:
    """What the agent gets as `ctx.request`, and the chat id when the client named one."""
    query = dict(request.query_params)
    ip = request.client.host if request.client else ""
    info = RequestInfo.from_http(request.headers.items(), query, body, assistant_id=agent, ip=ip)
    own = body.get("metadata")
    named = (
        query.get("chat_id"),
        request.headers.get("x-yao-chat"),
        info.metadata.get("chat_id"),
        own.get("chat_id") if isinstance(own, Mapping) else None,
    )
    # A chat id that was made up is none of these.
    given = any(isinstance(each, str) and each.strip() == info.chat_id for each in named)
    return info, info.chat_id if given else None


def since(request: Request) -> int:
    """The number of the last event a reader has: a reconnecting one says it in a header."""
    header = request.headers.get("last-event-id")
    name = "since" if header is None else "Last-Event-ID"
    given = request.query_params.get("since") if header is None else header
    if not given:
        return 0
    if not _NUMBER.fullmatch(given):
        said = f"`{name}` must be the number of an event, not {given[:40]!r}"
        raise Problem(400, "invalid_request", said, code="invalid_parameter", param=name)
    return int(given)
