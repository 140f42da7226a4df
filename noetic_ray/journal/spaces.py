"""The spaces of runs: key-value data that the journal holds, since every context shares it.

Each operation answers at once and says which events it is; the journal records them in the same
turn, so that the order of events is the order of operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from uuid_utils import uuid7

from noetic_ray.canonical import canonical, clean_text
from noetic_ray.error_record import type_name
from noetic_ray.errors import TraceError

SPACE_PREFIX = "space."
SpaceEvent = tuple[str, dict[str, Any]]
_FACTS = ("label", "type", "icon", "description", "metadata")


class _Space:
    __slots__ = ("data", "facts")

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.data: dict[str, Any] = {}


class RunSpaces:
    """The spaces of one run."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}
        self._events: list[SpaceEvent] = []

    def replay(self, events: Iterable[SpaceEvent]) -> None:
        """Take up what happened before, from the record."""
        for type, data in events:
            self._apply(type, data)

    def do(self, operation: str, arguments: Mapping[str, Any]) -> tuple[Any, list[SpaceEvent]]:
        """Carry out an operation of :class:`noetic_ray.client.spaces.Space` or of the trace.

        Returns its answer and the events it made. Raises TraceError, and nothing happened then.
        """
        self._events = []
        handler = getattr(self, f"_do_{operation}")
        answer = handler(**arguments)
        return answer, self._events

    # -- spaces ----------------------------------------------------------------------------------

    def _do_create(self, id: str | None, **facts: Any) -> dict[str, Any]:
        if id is not None and (not isinstance(id, str) or not id):
            raise TraceError(f"a space's id is a text, not {id!r}; leave it out to get a fresh one")
        if id is not None and id in self._spaces:
            raise TraceError(f"the run has a space {id!r} already; get_space finds it", None, id)
        new = id or uuid7().hex[-12:]
        self._happens("space.created", {"space_id": new, **facts})
        return self._facts_of(new)

    def _do_get_space(self, id: str) -> dict[str, Any] | None:
        found = self._find(id)
        return None if found is None else self._facts_of(found)

    def _do_delete_space(self, id: str) -> None:
        found = self._find(id)
        if found is not None:
            self._happens("space.deleted", {"space_id": found})

    def _do_list(self) -> list[dict[str, Any]]:
        return [self._facts_of(id) for id in self._spaces]

    def _find(self, name: str) -> str | None:
        """The id a name means: an id, else a type only one space has."""
        if not isinstance(name, str):
            raise TraceError(f"a space is named by a text, not {type_name(type(name))}")
        if name in self._spaces:
            return name
        typed = [id for id, space in self._spaces.items() if name and space.facts["type"] == name]
        return typed[0] if len(typed) == 1 else None

    def _facts_of(self, id: str) -> dict[str, Any]:
        facts: dict[str, Any] = canonical(self._spaces[id].facts)
        return {"id": id, **facts}

    # -- keys ------------------------------------------------------------------------------------

    def _do_set(self, space_id: str, key: str, value: Any) -> None:
        self._existing(space_id)
        self._set(space_id, _key(space_id, key), value)

    def _do_get(self, space_id: str, key: str) -> tuple[bool, Any]:
        data, key = self._data(space_id), _key(space_id, key)
        return key in data, canonical(data.get(key))

    def _do_remove(self, space_id: str, key: str) -> None:
        key = _key(space_id, key)
        if key in self._data(space_id):
            self._happens("space.removed", {"space_id": space_id, "key": key})

    def _do_keys(self, space_id: str) -> list[str]:
        return list(self._data(space_id))

    def _do_clear(self, space_id: str) -> None:
        if space_id in self._spaces:
            self._happens("space.cleared", {"space_id": space_id})

    def _do_increment(self, space_id: str, key: str, by: Any) -> Any:
        key = _key(space_id, key)
        old = self._existing(space_id).data.get(key)
        for what, number in ((f"key {key!r}", 0 if old is None else old), ("the step", by)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise TraceError(
                    f"{what} of space {space_id!r} is {number!r}, and no number to count with",
                    None,
                    space_id,
                )
        total = _sum(old or 0, by)
        if total is None:
            raise TraceError(
                f"key {key!r} of space {space_id!r} would become too large a number; it is left "
                "as it is",
                None,
                space_id,
            )
        self._set(space_id, key, total)
        return total

    def _do_compare_and_set(self, space_id: str, key: str, expected: Any, value: Any) -> bool:
        key = _key(space_id, key)
        old = self._existing(space_id).data.get(key)
        if not _same(old, canonical(expected)):
            return False
        self._set(space_id, key, value)
        return True

    def _set(self, space_id: str, key: str, value: Any) -> None:
        self._happens("space.set", {"space_id": space_id, "key": key, "value": value})

    def _existing(self, space_id: str) -> _Space:
        space = self._spaces.get(space_id)
        if space is None:
            raise TraceError(f"space {space_id!r} was deleted; create it again", None, space_id)
        return space

    def _data(self, space_id: str) -> dict[str, Any]:
        space = self._spaces.get(space_id)
        return {} if space is None else space.data

    # -- what happened ---------------------------------------------------------------------------

    def _happens(self, type: str, data: dict[str, Any]) -> None:
        kept = canonical(data)
        self._events.append((type, kept))
        self._apply(type, kept)

    def _apply(self, type: str, data: Mapping[str, Any]) -> None:
        id = data["space_id"]
        if type == "space.created":
            self._spaces[id] = _Space({name: data.get(name) for name in _FACTS})
        elif type == "space.deleted":
            self._spaces.pop(id, None)
        elif id in self._spaces:
            self._change(self._spaces[id].data, type, data)

    @staticmethod
    def _change(values: dict[str, Any], type: str, data: Mapping[str, Any]) -> None:
        if type == "space.set":
            values[data["key"]] = data["value"]
        elif type == "space.removed":
            values.pop(data["key"], None)
        elif type == "space.cleared":
            values.clear()


def _key(space_id: str, key: Any) -> str:
    """A key as it is kept. Raises TraceError for what is no text."""
    if not isinstance(key, str):
        raise TraceError(f"a key of a space is a text, not {key!r}", None, space_id)
    return clean_text(key)


def _sum(one: float, other: float) -> float | None:
    """None when JSON cannot hold it."""
    try:
        total = one + other
        return total if isfinite(total) else None
    except OverflowError:
        return None


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: keys in any order, 1 like 1.0 and unlike true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
