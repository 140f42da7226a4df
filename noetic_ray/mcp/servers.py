"""How an MCP server is reached."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from noetic_ray.errors import ConfigError

__all__ = ["McpServer", "check_servers"]


class _Problem(Exception):
    """What is wrong with a server's settings, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def error(self, client: str | None) -> ConfigError:
        whom = "McpServer" if client is None else f"The MCP server {client!r}"
        return ConfigError("INVALID_MCP_SERVER", f"{whom}: {self}.", self.hint)


@dataclass(frozen=True, slots=True)
class McpServer:
    """One MCP server: a ``command`` to start, or the ``url`` of a streamable HTTP endpoint.

    ``args``, ``env`` and ``cwd`` belong to a command. It starts with a small safe environment
    (HOME, PATH, ... but no tokens of this process), to which ``env`` adds; ``headers`` go with
    every HTTP request. A relative ``cwd`` is one of the process that makes this object.
    ``timeout`` bounds the start of a connection and each request, in seconds. With ``replicas``
    above 1 that many connections, and processes, share the requests.
    """

    command: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    cwd: str | os.PathLike[str] | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    timeout: float = 30.0
    replicas: int = 1

    def __post_init__(self) -> None:
        try:
            _check(self)
        except _Problem as problem:
            raise problem.error(None) from None
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "cwd", None if self.cwd is None else os.path.abspath(self.cwd))
        for name in ("env", "headers"):
            held = getattr(self, name)
            object.__setattr__(self, name, None if held is None else dict(held))

    def __repr__(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("env", "headers"):
            if shown[name]:
                shown[name] = _Hidden(shown[name])
        plain = {each.name: each.default for each in fields(self)}
        told = ", ".join(
            f"{name}={value!r}" for name, value in shown.items() if value != plain[name]
        )
        return f"McpServer({told})"


class _Hidden:
    """Names without the values, which may be secrets."""

    def __init__(self, held: Mapping[str, str]) -> None:
        self._names = list(held)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: '...'" for name in self._names) + "}"


def check_servers(mcp: Mapping[str, McpServer | Mapping[str, Any]] | None) -> dict[str, McpServer]:
    """The servers of a ``mcp=`` argument by client name; dicts become `McpServer`.

    Raises ConfigError INVALID_MCP_SERVER, which names the client.
    """
    if mcp is None:
        return {}
    given: object = mcp
    if not isinstance(given, Mapping):
        problem = _Problem(
            f"mcp= cannot be a {type(mcp).__name__}",
            "Give a dict: mcp={'name': nr.McpServer(...)}.",
        )
        raise problem.error(None)
    return {_check_name(name): _server(name, given) for name, given in mcp.items()}


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        hint = "Give each server a short name, which agents call it by."
        raise _Problem(f"a server's name cannot be {name!r}", hint).error(None)
    return name


def _server(name: str, given: object) -> McpServer:
    if isinstance(given, McpServer):
        return given
    if not isinstance(given, Mapping):
        hint = "Give a nr.McpServer or a dict of its arguments."
        raise _Problem(f"its settings cannot be a {type(given).__name__}", hint).error(name)
    known = {each.name: each.default for each in fields(McpServer)}
    extra = [key for key in given if key not in known]
    if extra:
        hint = f"It takes {', '.join(known)}."
        raise _Problem(f"there is no setting {extra[0]!r}", hint).error(name)
    try:
        _check(_Settings({**known, **given}))
    except _Problem as problem:
        raise problem.error(name) from None
    return McpServer(**given)


class _Settings:
    """A dict of settings, seen as an object."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.__dict__ = held


def _check(server: Any) -> None:
    """Raise _Problem for the first setting that cannot be."""
    _check_target(server)
    _check_parts(server)
    timeout, replicas = server.timeout, server.replicas
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout < math.inf:
        raise _Problem(f"timeout cannot be {timeout!r}", "Give seconds, more than 0.")
    if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
        raise _Problem(f"replicas cannot be {replicas!r}", "Give a whole number of at least 1.")


def _check_target(server: Any) -> None:
    command, url = server.command, server.url
    if (command is None) == (url is None):
        said = "neither command nor url was given" if command is None else "both were given"
        raise _Problem(
            f"it has a command or a url, and {said}",
            "Give command= for a server to start, url= for one that runs.",
        )
    if command is not None and (not isinstance(command, str) or not command.strip()):
        raise _Problem(
            f"command cannot be {command!r}", "Give a program; its arguments go in args."
        )
    if url is not None and not _is_http(url):
        raise _Problem(f"url cannot be {url!r}", "Give a URL that starts with http:// or https://.")
    for name in ("args", "env", "cwd") if url is not None else ("headers",):
        if getattr(server, name):
            kind, other = ("url", "command") if url is not None else ("command", "url")
            raise _Problem(
                f"{name} says nothing to a server with a {kind}", f"Use it with {other}=."
            )


def _check_parts(server: Any) -> None:
    args, cwd = server.args, server.cwd
    listed = isinstance(args, Sequence) and not isinstance(args, str | bytes)
    if not listed or not all(isinstance(arg, str) for arg in args):
        raise _Problem("args is not a list of texts", "Write args=['--flag', 'value'].")
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        raise _Problem(f"cwd cannot be {cwd!r}", "Give the path of a directory.")
    for name in ("env", "headers"):
        held = getattr(server, name)
        if held is not None and not _is_texts(held):
            raise _Problem(f"{name} is not a dict of texts", f"Write {name}={{'NAME': 'value'}}.")


def _is_http(url: object) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_texts(held: object) -> bool:
    if not isinstance(held, Mapping):
        return False
    pairs = held.items()
    return all(isinstance(name, str) and isinstance(value, str) for name, value in pairs)
