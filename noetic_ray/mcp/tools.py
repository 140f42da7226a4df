"""Stands in a list of tools for the tools of MCP servers, which are asked when a step runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from noetic_ray.canonical import to_json_bytes
from noetic_ray.errors import ConfigError, McpError, NoeticError
from noetic_ray.mcp.results import ToolResult
from noetic_ray.tools.arguments import parse_arguments
from noetic_ray.tools.tool import Tool

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_MAX = 64
_DIGITS = 8
_ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


class McpTools(Tool):
    """The tools of one MCP server, whatever it offers when a step runs."""

    __slots__ = ("client", "exclude", "include")

    client: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def __init__(
        self, client: str, include: tuple[str, ...], exclude: tuple[str, ...], needs_approval: bool
    ) -> None:
        said = f"The tools of the MCP server {client}."
        Tool.__init__(self, f"mcp:{client}", said, needs_approval, True)
        self._set("client", client)
        self._set("include", include)
        self._set("exclude", exclude)

    def offers(self, name: str) -> bool:
        """Whether a tool of the server is wanted."""
        wanted = any(fnmatchcase(name, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def _arguments(self) -> Any:
        raise NoeticError(f"{self.name} stands for tools and cannot be called itself")

    def invoke(self, kwargs: Mapping[str, Any], ctx: Any) -> Any:
        """It stands for tools, and is none."""
        raise NoeticError(f"{self.name} stands for tools and cannot be called itself")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return McpTools, (self.client, self.include, self.exclude, self.needs_approval)


def mcp_tools(
    client: str,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    needs_approval: bool = False,
) -> McpTools:
    """Offer the tools of an MCP server of the harness: `tools=[nr.mcp_tools("search")]`.

    `include` and `exclude` are patterns of tool names, such as "read_*". Models see each as
    `<client>__<tool>`. A tool that says it failed is told to the model as failed, with its text.
    With `needs_approval` each call waits until a person allows it.
    """
    if not isinstance(client, str) or not client:
        raise ConfigError(
            "INVALID_TOOL", f"mcp_tools was given {client!r}", "Give a server's name."
        )
    for what, patterns in (("include", include), ("exclude", exclude)):
        if isinstance(patterns, str) or not all(isinstance(each, str) for each in patterns):
            raise ConfigError(
                "INVALID_TOOL", f"{what} of mcp_tools is {patterns!r}", "Give a list of patterns."
            )
    return McpTools(client, tuple(include), tuple(exclude), needs_approval)


class McpTool(Tool):
    """One tool of an MCP server. `tool_name` is the server's name for it."""

    __slots__ = ("client", "schema", "tool_name")

    client: str
    tool_name: str
    schema: dict[str, Any]

    def __init__(
        self, name: str, client: str, tool_name: str, raw: Mapping[str, Any], needs_approval: bool
    ) -> None:
        said = raw.get("description") or raw.get("title") or ""
        Tool.__init__(self, name, said if isinstance(said, str) else "", needs_approval, True)
        schema = raw.get("inputSchema")
        self._set("client", client)
        self._set("tool_name", tool_name)
        self._set("schema", dict(schema) if isinstance(schema, Mapping) else _ANY_OBJECT)

    def _arguments(self) -> Any:
        raise NoeticError(f"the arguments of {self.name} are read by its server")

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema the server gave."""
        return self.schema

    @property
    def takes_context(self) -> bool:
        """The context makes the call."""
        return True

    def parse(self, arguments_text: str) -> dict[str, Any]:
        """The JSON object in a call's `arguments`. Raises ToolArgumentsError."""
        return parse_arguments(self.name, arguments_text, self.parameters)

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are: the server judges them."""
        return dict(args)

    async def invoke(self, kwargs: Mapping[str, Any], ctx: Any) -> Any:
        """Call it for a model. Raises McpError when the tool says that it failed."""
        result: ToolResult = await ctx.mcp.call_tool(self.client, self.tool_name, kwargs)
        said = _for_model(result)
        if result.is_error:
            told = said if isinstance(said, str) else to_json_bytes(said).decode()
            raise McpError(
                self.client,
                f"tool {self.tool_name!r} failed: {told or 'it did not say why'}",
                data=result.structured,
            )
        return said


def _for_model(result: ToolResult) -> Any:
    """Text where all is text, else the machine-readable answer, else the blocks themselves."""
    if result.content and all(block.get("type") == "text" for block in result.content):
        return result.text
    return result.structured if result.structured is not None else result.content or ""


def expand(
    markers: Iterable[McpTools],
    listed: Mapping[str, Sequence[Mapping[str, Any]]],
    taken: Container[str],
) -> list[McpTool]:
    """The tools behind markers; `listed` are each server's, `taken` the names of others.

    Names are unique and do not depend on what else is offered, unless that has the very name.
    """  # fmt: skip
    made: dict[str, McpTool] = {}
    for marker in markers:
        for index, raw in enumerate(listed[marker.client]):
            name = raw.get("name")
            tool_name = name if isinstance(name, str) else ""
            if not marker.offers(tool_name):
                continue
            wire = _wire_name(marker.client, tool_name, index, made, taken)
            made[wire] = McpTool(wire, marker.client, tool_name, raw, marker.needs_approval)
    return list(made.values())


def _wire_name(
    client: str, name: str, index: int, made: Container[str], taken: Container[str]
) -> str:
    wire = _ILLEGAL.sub("_", f"{client}__{name}")
    if name and len(wire) <= _MAX and wire not in made and wire not in taken:
        return wire
    digest = hashlib.sha256(f"{client}\n{name}".encode("utf-8", "surrogatepass")).hexdigest()
    number = 0
    while True:
        tail = digest[:_DIGITS] + (f"_{index + number}" if number or not name else "")
        unique = f"{wire[: _MAX - len(tail) - 1]}_{tail}"
        if unique not in made and unique not in taken:
            return unique
        number += 1
