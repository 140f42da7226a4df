"""What a server's tools promise of their structured answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from noetic_ray.errors import McpError
from noetic_ray.mcp.paging import all_pages

log = logging.getLogger("noetic_ray")

#: Seconds a tool's answer may wait for the schemas it is compared with.
_PATIENCE = 5.0


class OutputSchemas:
    """Compares structured answers with the tools' output schemas, and warns where they differ.

    The schemas come with the listings that pass by; when a tool is not among them all its server's
    tools are listed, once.
    """

    def __init__(self, client: str, list_tools: Callable[[str | None], Awaitable[Any]]) -> None:
        self._client = client
        self._list_tools = list_tools
        self._schemas: dict[str, Any] = {}
        self._validators: dict[str, Any] = {}
        self._complete = False
        self._listing: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """The tools are others now."""
        self._schemas.clear()
        self._validators.clear()
        self._complete = False

    def learn(self, listing: Any) -> None:
        """Take the schemas out of a raw tools/list answer."""
        for tool in _tools(listing):
            name, schema = tool.get("name"), tool.get("outputSchema")
            if isinstance(name, str):
                if self._schemas.get(name) != schema:
                    self._validators.pop(name, None)
                self._schemas[name] = schema

    async def examine(self, tool: str, answer: Mapping[str, Any]) -> None:
        """Warn when a tool's structured answer is not what its schema says."""
        if "structuredContent" not in answer or answer.get("isError") is True:
            return
        if tool not in self._schemas and not self._complete:
            await self._list()
        schema = self._schemas.get(tool)
        if isinstance(schema, Mapping):
            problem = self._problem(tool, schema, answer["structuredContent"])
            if problem is not None:
                log.warning(
                    "MCP server %r: the structured answer of tool %r is not what its output schema "
                    "says; it is kept as it is: %.300s",
                    self._client,
                    tool,
                    problem,
                )

    async def aclose(self) -> None:
        """Give up a listing under way."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])

    async def _list(self) -> None:
        if self._listing is None:
            self._listing = asyncio.create_task(self._learn_all(), name="mcp-output-schemas")
        await asyncio.wait([self._listing])

    async def _learn_all(self) -> None:
        async def fetch(cursor: str | None) -> tuple[list[Mapping[str, Any]], str | None]:
            raw = await self._list_tools(cursor)
            self.learn(raw)
            return _tools(raw), raw.get("nextCursor")

        try:
            async with asyncio.timeout(_PATIENCE):
                await all_pages(fetch, self._client, "name")
        except (McpError, TimeoutError) as error:
            log.debug("MCP server %r: its output schemas are unknown: %r", self._client, error)
        finally:
            self._complete = True
            self._listing = None

    def _problem(self, tool: str, schema: Mapping[str, Any], structured: Any) -> str | None:
        from jsonschema.exceptions import best_match  # type: ignore[import-untyped, unused-ignore]

        try:
            worst = best_match(self._validator(tool, schema).iter_errors(structured))
        except Exception as error:
            return f"the schema itself cannot be used: {error!r}"
        return None if worst is None else f"{worst.json_path}: {worst.message}"

    def _validator(self, tool: str, schema: Mapping[str, Any]) -> Any:
        from jsonschema.validators import validator_for  # type: ignore[import-untyped, unused-ignore]
        from referencing import Registry

        made = self._validators.get(tool)
        if made is None:
            kind = validator_for(schema)
            kind.check_schema(schema)
            # An empty registry: nothing is fetched from where a schema points to.
            made = self._validators[tool] = kind(schema, registry=Registry())
        return made


def _tools(listing: Any) -> list[Mapping[str, Any]]:
    held = listing.get("tools") if isinstance(listing, Mapping) else None
    return [tool for tool in held or () if isinstance(tool, Mapping)]
