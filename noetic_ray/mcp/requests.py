"""From what agents ask to what MCP servers are sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from pydantic_core import from_json, to_json

from noetic_ray.errors import McpError

__all__ = ["Request", "encode", "needed_capability", "request"]

#: JSON-RPC method and params.
Request: TypeAlias = tuple[str, dict[str, Any]]


def encode(client: str, arguments: Mapping[str, Any]) -> bytes:
    """The arguments of a call as JSON. McpError when something in them is not JSON data."""
    try:
        return to_json(dict(arguments), inf_nan_mode="null")
    except (ValueError, TypeError, RecursionError) as error:
        raise McpError(
            client, f"the arguments of the call are not JSON data: {str(error).splitlines()[0]}"
        ) from error


def request(client: str, method: str, encoded: bytes) -> Request:
    """The JSON-RPC request for a method of a port and its `encode`d arguments."""
    make = _MAKERS.get(method)
    if make is None:
        known = ", ".join(_MAKERS)
        raise McpError(client, f"there is no request {method!r}; there are {known}")
    return make(client, cast(dict[str, Any], from_json(encoded)))


def needed_capability(method: str) -> str | None:
    """What a server must have declared for a JSON-RPC method: tools, resources or prompts."""
    kind = method.partition("/")[0]
    return kind if kind in ("tools", "resources", "prompts") else None


def _list(kind: str) -> Callable[[str, dict[str, Any]], Request]:
    def make(client: str, arguments: dict[str, Any]) -> Request:
        cursor = arguments.get("cursor")
        return f"{kind}/list", {} if cursor in (None, "") else {"cursor": cursor}

    return make


def _read_resource(client: str, arguments: dict[str, Any]) -> Request:
    return "resources/read", {"uri": _text(client, "uri", arguments)}


def _call_tool(client: str, arguments: dict[str, Any]) -> Request:
    params: dict[str, Any] = {"name": _text(client, "name", arguments)}
    given = arguments.get("arguments")
    if isinstance(given, dict):
        params["arguments"] = given
    return "tools/call", params


def _get_prompt(client: str, arguments: dict[str, Any]) -> Request:
    params: dict[str, Any] = {"name": _text(client, "name", arguments)}
    given = arguments.get("arguments")
    if isinstance(given, dict):
        texts = {name: _as_text(value) for name, value in given.items() if value is not None}
        params["arguments"] = texts
    return "prompts/get", params


def _ping(client: str, arguments: dict[str, Any]) -> Request:
    return "ping", {}


def _text(client: str, name: str, arguments: dict[str, Any]) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise McpError(client, f"{name} is to be a text, not {value!r}")
    return value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MAKERS: Mapping[str, Callable[[str, dict[str, Any]], Request]] = {
    "list_resources": _list("resources"),
    "read_resource": _read_resource,
    "list_tools": _list("tools"),
    "call_tool": _call_tool,
    "list_prompts": _list("prompts"),
    "get_prompt": _get_prompt,
    "ping": _ping,
}
