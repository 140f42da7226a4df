"""A layer's own keys in the harness's store, kept apart by layer and scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Protocol
from urllib.parse import quote

from noetic_ray.canonical import clean_text, from_json, to_json_bytes
from noetic_ray.errors import ConfigError
from noetic_ray.protocols import KeyValues

ROOT = "layers/"
STATE_KEY = "state"

#: What JSON readers take, with room for what they find around it.
_MAX_LEVELS = 180
#: Numbers up to here have at most 4,300 digits, beyond which Python reads none.
_MAX_BITS = 14_000


class LayerStorage(Protocol):
    """What a hook's `storage` offers. Values are JSON; keys are texts.

    Under the key `state` stands the layer's saved state, when it has one.
    """

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
        if not isinstance(key, str) or not key or clean_text(key) is not key:
            raise ConfigError(
                "INVALID_LAYER_KEY",
                f"a storage key is {key!r:.100}",
                "Give a text that is not empty and that UTF-8 can hold.",
            )
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
        mixed = {**found, **{key: self._own[key] for key in wanted if key in self._own}}
        return {key: value for key, value in mixed.items() if value is not None}

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Keep the changes here."""
        self._own.update(changes)

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`."""
        found = set(await self._below.keys(prefix)) - self._own.keys()
        own = (key for key, value in self._own.items() if value is not None)
        return sorted(found.union(key for key in own if key.startswith(prefix)))

    async def add(self, prefix: str, value: bytes) -> int:
        """Append to the list of values under `prefix`, here only."""
        index = len(await self.keys(prefix))
        self._own[f"{prefix}{index:08d}"] = value
        return index


def plain_json(value: Any, what: str) -> bytes:
    """A value as JSON that reads back as it was (tuples as lists).

    Raises ConfigError `LAYER_VALUE_NOT_JSON`.
    """
    fault = _fault(value, 0)
    if fault is not None:
        raise ConfigError(
            "LAYER_VALUE_NOT_JSON",
            f"{what} holds {fault}, which JSON cannot hold",
            "Use texts, finite numbers, booleans, None, lists and dicts with text keys; for a"
            " layer's state set state_type to its type.",
        )
    return to_json_bytes(value)


def _fault(value: Any, level: int) -> str | None:
    """The first part that would not come back as it is, in words."""
    kind = type(value)
    if kind is dict:
        return _key_fault(value) or _inner_fault(value.values(), level)
    if kind is list or kind is tuple:
        return _inner_fault(value, level)
    if kind is str:
        return None if clean_text(value) is value else "a text with half a surrogate pair"
    if kind is int:
        return None if value.bit_length() <= _MAX_BITS else "a number of thousands of digits"
    if value is None or kind is bool or (kind is float and isfinite(value)):
        return None
    return f"{value!r:.100}, a {kind.__name__}"


def _key_fault(keys: Iterable[Any]) -> str | None:
    for key in keys:
        if type(key) is not str:
            return f"the dict key {key!r:.100}, a {type(key).__name__}"
        if clean_text(key) is not key:
            return "a dict key with half a surrogate pair"
    return None


def _inner_fault(parts: Iterable[Any], level: int) -> str | None:
    if level == _MAX_LEVELS:
        return f"more than {_MAX_LEVELS} levels, or itself"
    for each in parts:
        fault = _fault(each, level + 1)
        if fault is not None:
            return fault
    return None
