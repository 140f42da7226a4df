"""A layer's own keys in the harness's store, kept apart by layer and scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Protocol
from urllib.parse import quote

from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.errors import ConfigError
from noetic_ray.protocols import KeyValues

ROOT = "layers/"
STATE_KEY = "state"


class LayerStorage(Protocol):
    """What a hook's `storage` offers. Values are JSON; keys are texts."""

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        ...

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of the keys that exist, in one request."""
        ...

    async def set(self, key: str, value: Any) -> None:
        """Write a value. Raises ConfigError `LAYER_VALUE_NOT_JSON`."""

    async def delete(self, key: str) -> None:
        """Remove a key; an unknown one is no error."""

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        ...


def scope_prefix(
    layer_id: str, scope: str, thread_id: str, resource_id: str | None, id: str
) -> str:
    """Where a layer's keys stand: `layers/<layer id>/<scope>/<whose>/`."""
    whose = {
        "thread": thread_id,
        "resource": resource_id or thread_id,
        "global": "-",
        "execution": id,
    }[scope]
    return f"{ROOT}{quote(layer_id, safe='')}/{scope}/{quote(whose, safe='')}/"


class ScopedStorage:
    """A `LayerStorage` over a part of the store's keys."""

    __slots__ = ("_prefix", "_values")

    def __init__(self, values: KeyValues, prefix: str) -> None:
        self._values = values
        self._prefix = prefix

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        found = await self.get_many((key,))
        return found.get(key, default)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of the keys that exist, in one request."""
        wanted = {self._full(key): key for key in keys}
        found = await self._values.load(list(wanted))
        return {wanted[full]: from_json(data) for full, data in found.items()}

    async def set(self, key: str, value: Any) -> None:
        """Write a value. Raises ConfigError `LAYER_VALUE_NOT_JSON`."""
        await self._values.save({self._full(key): plain_json(value, f"the value of {key!r}")})

    async def delete(self, key: str) -> None:
        """Remove a key; an unknown one is no error."""
        await self._values.save({self._full(key): None})

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        found = await self._values.keys(self._prefix + prefix)
        return sorted(key[len(self._prefix) :] for key in found)

    def _full(self, key: str) -> str:
        if not isinstance(key, str) or not key:
            raise ConfigError("INVALID_LAYER_KEY", f"a storage key is {key!r}", "Give a text.")
        return self._prefix + key


class Overlay:
    """`KeyValues` that read from others and keep what is written to themselves."""

    def __init__(self, below: KeyValues) -> None:
        self._below = below
        self._own: dict[str, bytes | None] = {}

    async def load(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values of the keys that exist."""
        wanted = list(keys)
        found = await self._below.load([key for key in wanted if key not in self._own])
        own = {key: value for key in wanted if (value := self._own.get(key)) is not None}
        return {**found, **own}

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Keep the changes here."""
        self._own.update(changes)

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`."""
        below = set(await self._below.keys(prefix))
        for key, value in self._own.items():
            if key.startswith(prefix):
                below.discard(key) if value is None else below.add(key)
        return sorted(below)


def plain_json(value: Any, what: str) -> bytes:
    """A value as JSON that reads back as it was (tuples as lists).

    Raises ConfigError `LAYER_VALUE_NOT_JSON`.
    """
    odd = _odd_part(value)
    if odd is not None:
        raise ConfigError(
            "LAYER_VALUE_NOT_JSON",
            f"{what} holds {odd[0]!r:.100}, a {type(odd[0]).__name__}, which JSON cannot hold",
            "Use texts, finite numbers, booleans, None, lists and dicts with text keys; for a"
            " layer's state set state_type to its type.",
        )
    return to_json_bytes(value)


def _odd_part(value: Any) -> tuple[Any] | None:
    """The first part JSON cannot hold as it is, in a tuple of its own."""
    kind = type(value)
    if kind is dict:
        for key, each in value.items():
            if type(key) is not str:
                return (key,)
            odd = _odd_part(each)
            if odd is not None:
                return odd
        return None
    if kind is list or kind is tuple:
        return next((odd for each in value if (odd := _odd_part(each)) is not None), None)
    if value is None or kind in (str, int, bool) or (kind is float and isfinite(value)):
        return None
    return (value,)
