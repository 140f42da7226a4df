"""Examples of MCP resources, kept in the harness's store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from noetic_ray.canonical import canonical, from_json, to_json_bytes
from noetic_ray.client.ports import ClientPort
from noetic_ray.errors import McpError
from noetic_ray.mcp.results import Sample

_PREFIX = "mcp-sample"


class SampleShelf:
    """One list of samples per (client, uri)."""

    __slots__ = ("_port",)

    def __init__(self, port: ClientPort) -> None:
        self._port = port

    async def create(self, client: str, uri: str, sample: Any) -> Sample:
        """Append a sample; durable with a store. Raises McpError when it is no dict."""
        if not isinstance(sample, Mapping):
            raise McpError(client, f"a sample is a dict, not {type(sample).__name__}")
        now, data = time.time(), canonical(sample)
        written = to_json_bytes({"data": data, "created_at": now})
        index = await self._port.add_value(_place(client, uri), written)
        return _sample(index, uri, data, now)

    async def all(self, client: str, uri: str) -> list[Sample]:
        """Every sample of a resource."""
        values = await self._port.load_values(_place(client, uri))
        return [_sample(index, uri, **from_json(value)) for index, (_, value) in enumerate(values)]

    async def one(self, client: str, uri: str, index: int) -> Sample:
        """The sample of this index."""
        samples = await self.all(client, uri)
        if not 0 <= index < len(samples):
            raise McpError(client, f"resource {uri!r} has {len(samples)} samples, none is {index}")
        return samples[index]


def _place(client: str, uri: str) -> str:
    return f"{_PREFIX}/{quote(client, safe='')}/{quote(str(uri), safe='')}/"


def _sample(index: int, uri: str, data: dict[str, Any], created_at: float) -> Sample:
    return Sample(index, data.get("name"), uri, data.get("content"), data, created_at)
