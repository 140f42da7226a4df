"""Merging plain data: deep, and three-way for what children bring back."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

MAX_DEPTH = 32
#: Keys that stand for machinery elsewhere; they are dropped.
FORBIDDEN = frozenset({"__proto__", "constructor", "prototype"})


class _Gone:
    def __repr__(self) -> str:
        return "GONE"


GONE: Final = _Gone()


def deep_merge(base: Any, update: Any, depth: int = 0) -> Any:
    """`update` over `base`: dicts key by key, everything else as a whole. Both stay as they are.

    Raises ValueError for dicts nested more than 32 deep.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"the data is nested more than {MAX_DEPTH} deep")
    if not isinstance(update, Mapping):
        return deepcopy(update)
    merged = dict(base) if isinstance(base, Mapping) else {}
    for key, value in update.items():
        if _is_plain(key):
            merged[key] = deep_merge(merged.get(key), value, depth + 1)
    return merged


def _is_plain(key: Any) -> bool:
    if not isinstance(key, str):
        return True
    return key not in FORBIDDEN and not (key.startswith("__") and key.endswith("__"))


def take_changes(ours: Any, seed: Any, theirs: Any, add_lists: bool = False) -> Any:
    """What they changed since `seed`, brought into ours; what they left alone stays ours.

    Dicts are compared key by key. With `add_lists` new members of a list are appended to ours,
    else a changed list replaces it, like every other value.
    """
    if theirs == seed:
        return ours
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        before = seed if isinstance(seed, Mapping) else {}
        merged = dict(ours)
        for key in {**before, **theirs}:
            value = _changed(
                ours.get(key, GONE),
                before.get(key, GONE),
                theirs.get(key, GONE),
                add_lists,
            )
            if value is GONE:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged
    if add_lists and isinstance(theirs, list) and isinstance(ours, list):
        before_list = seed if isinstance(seed, list) else []
        added = [each for each in theirs if each not in before_list and each not in ours]
        return [*ours, *added]
    return theirs


def _changed(ours: Any, seed: Any, theirs: Any, add_lists: bool) -> Any:
    if theirs is GONE:
        return GONE if seed is not GONE else ours
    if ours is GONE:
        return GONE if theirs == seed else theirs
    return take_changes(ours, None if seed is GONE else seed, theirs, add_lists)
