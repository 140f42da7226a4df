"""Key-value spaces that every context of a run shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetic_ray.client.ports import ClientPort


class Space:
    """A handle on one space. The values are JSON; the run's journal holds them.

    Every operation is atomic and has one order for the whole run. After the space was deleted
    writing raises TraceError and reading finds nothing.
    """

    __slots__ = ("_facts", "_port")

    def __init__(self, port: ClientPort, facts: Mapping[str, Any]) -> None:
        self._port = port
        self._facts = facts

    def __repr__(self) -> str:
        return f"Space({self.id!r}, label={self.label!r}, type={self.type!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """The id: what `get_space` takes."""
        return str(self._facts["id"])

    @property
    def label(self) -> str:
        """What people see."""
        return str(self._facts["label"])

    @property
    def type(self) -> str:
        """What kind of space it is."""
        return str(self._facts["type"])

    @property
    def icon(self) -> str:
        """The name of an icon."""
        return str(self._facts["icon"])

    @property
    def description(self) -> str:
        """A sentence for people."""
        return str(self._facts["description"])

    @property
    def metadata(self) -> dict[str, Any]:
        """What the space was made with."""
        return dict(self._facts["metadata"])

    async def set(self, key: str, value: Any) -> Space:
        """Write a key; returns the space. Raises TraceError when the space was deleted."""
        await self._do("set", key=key, value=value)
        return self

    async def get(self, key: str, default: Any = None) -> Any:
        """A key's value, else `default`. A stored None reads as None."""
        found, value = await self._do("get", key=key)
        return value if found else default

    async def has(self, key: str) -> bool:
        """Whether the key exists."""
        return bool((await self._do("get", key=key))[0])

    async def delete(self, key: str) -> None:
        """Remove a key; an unknown one is left alone."""
        await self._do("remove", key=key)

    async def keys(self) -> list[str]:
        """The keys, in the order they were first written."""
        return list(await self._do("keys"))

    async def clear(self) -> None:
        """Remove every key. The space stays."""
        await self._do("clear")

    async def increment(self, key: str, by: float = 1) -> Any:
        """Add to a number, 0 where there is none yet, and return the sum.

        Raises TraceError when the key holds something else.
        """
        return await self._do("increment", key=key, by=by)

    async def compare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        """Write a key if its value equals `expected` (None for a key that is absent).

        False, and nothing written, when it does not.
        """
        return bool(await self._do("compare_and_set", key=key, expected=expected, value=value))

    async def _do(self, operation: str, **arguments: Any) -> Any:
        return await self._port.space(operation, {"space_id": self.id, **arguments})
