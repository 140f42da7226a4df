"""Who may ask: holders of the token, or, where there is none, programs of this machine."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from noetic_ray.errors import ConfigError
from noetic_ray.serve.problems import Problem

OPEN_PATH = "/healthz"
_MAX_HEADERS = 200
_MAX_HEADER_BYTES = 64 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]+")
_BEARER = re.compile(rb"bearer +(\S+)\s*", re.IGNORECASE)


def check_token(token: str | None) -> None:
    """Raise ConfigError INVALID_TOKEN for one that no header can carry, or that is empty."""
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise ConfigError(
            "INVALID_TOKEN",
            "the token is empty or has characters other than visible ASCII",
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )


def check_binding(host: str, token: str | None) -> None:
    """Raise ConfigError TOKEN_REQUIRED for an address others reach, without a token."""
    check_token(token)
    if token is None and not is_loopback(host):
        raise ConfigError(
            "TOKEN_REQUIRED",
            f"the address {host!r} can be reached from other machines",
            "give a token, with --token or NOETIC_RAY_TOKEN, or stay on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    inside = getattr(address, "ipv4_mapped", None) or address
    return bool(inside.is_loopback)


class Guard:
    """Refuses requests before anything looks at them.

    Without a token a page of the web, open in a browser here, must not get in: it can send
    requests to this machine under a name of its own, but not with JSON as their content type.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Problem as problem:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        if self._token is None:
            _expect_local(scope, headers)
        elif scope["path"].removeprefix(scope.get("root_path", "")) != OPEN_PATH:
            self._expect_token(headers)
        if scope["method"] == "POST":
            _expect_json(headers)

    def _expect_token(self, headers: Mapping[bytes, list[bytes]]) -> None:
        given = headers.get(b"authorization", [])
        bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
        assert self._token is not None
        if bearer is None or not hmac.compare_digest(bearer.group(1), self._token):
            raise Problem(
                401,
                "unauthorized",
                "this server needs the token it was started with: Authorization: Bearer <token>",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _headers(scope: Scope) -> Mapping[bytes, list[bytes]]:
    pairs = scope["headers"]
    size = sum(len(name) + len(value) for name, value in pairs)
    if len(pairs) > _MAX_HEADERS or size > _MAX_HEADER_BYTES:
        raise Problem(431, "invalid_request", "the headers are too large", code="headers_too_large")
    found: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        found.setdefault(name.lower(), []).append(value)
    return found


def _expect_local(scope: Scope, headers: Mapping[bytes, list[bytes]]) -> None:
    """The address, the name and the page it came from are this machine's."""
    server = scope.get("server")
    # A server on a Unix socket tells neither its own address nor the client's.
    local = is_loopback(str(server[0])) if server else scope.get("client") is None
    if not local:
        raise _refused("a server without a token answers on this machine only")
    hosts = headers.get(b"host", [])
    if len(hosts) != 1 or not is_loopback(_host_of("//" + hosts[0].decode("latin-1"))):
        raise _refused("the Host header names another machine")
    for origin in headers.get(b"origin", []):
        if not is_loopback(_host_of(origin.decode("latin-1"))):
            raise _refused("the request comes from a page of another machine")


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _refused(why: str) -> Problem:
    return Problem(403, "forbidden", why, code="not_local")


def _expect_json(headers: Mapping[bytes, list[bytes]]) -> None:
    given = headers.get(b"content-type", [])
    media = given[0].partition(b";")[0].strip().lower() if len(given) == 1 else b""
    if media != b"application/json":
        raise Problem(
            415,
            "invalid_request",
            "a POST needs the header Content-Type: application/json",
            code="unsupported_media_type",
        )
