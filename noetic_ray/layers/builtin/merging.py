"""Merging plain data: deep, and three-way for what children bring back.

Nothing here changes what it is given; results may share parts with it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from noetic_ray.canonical import canonical

MAX_DEPTH = 32
#: Keys that stand for machinery elsewhere; they are dropped, and `__any__` like them.
FORBIDDEN = frozenset({"__proto__", "constructor", "prototype"})


class _Gone:
    def __repr__(self) -> str:
        return "GONE"


GONE: Final = _Gone()


def plain(value: Any) -> Any:
    """`value` as JSON reads it back, without keys that stand for machinery.

    Raises ValueError for data nested more than 32 deep, lists and dicts counted alike.
    """
    return _cleaned(canonical(value), 1)


def _cleaned(value: Any, depth: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if depth > MAX_DEPTH:
        raise ValueError(f"the data is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return [_cleaned(each, depth + 1) for each in value]
    return {key: _cleaned(each, depth + 1) for key, each in value.items() if _is_plain(key)}


def _is_plain(key: str) -> bool:
    dunder = len(key) > 4 and key.startswith("__") and key.endswith("__")
    return key not in FORBIDDEN and not dunder


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is neither True nor 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def deep_merge(base: Any, update: Any) -> Any:
    """`update` over `base`: dicts key by key, everything else as a whole."""
    if not isinstance(base, dict) or not isinstance(update, dict):
        return update
    merged = dict(base)
    for key, value in update.items():
        merged[key] = deep_merge(base[key], value) if key in base else value
    return merged


def take_changes(ours: Any, seed: Any, theirs: Any, add_lists: bool = False) -> Any:
    """What they changed since `seed`, brought into ours; what they left alone stays ours.

    Dicts are compared key by key. A key they removed goes, unless it was changed here meanwhile.
    With `add_lists` what they added to a list is appended to ours, each once; else a changed list
    replaces it, like every other value.
    """
    if same(theirs, seed):
        return ours
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return _take_keys(ours, seed if isinstance(seed, dict) else {}, theirs, add_lists)
    if add_lists and isinstance(theirs, list) and isinstance(ours, list):
        return _with_added(ours, seed if isinstance(seed, list) else [], theirs)
    return theirs


def _take_keys(
    ours: dict[str, Any], seed: dict[str, Any], theirs: dict[str, Any], add_lists: bool
) -> dict[str, Any]:
    merged = dict(ours)
    for key, value in theirs.items():
        if key in ours:
            merged[key] = take_changes(ours[key], seed.get(key, GONE), value, add_lists)
        elif not same(value, seed.get(key, GONE)):
            merged[key] = value
    for key, value in seed.items():
        if key not in theirs and key in ours and same(ours[key], value):
            del merged[key]
    return merged


def _with_added(ours: list[Any], seed: list[Any], theirs: list[Any]) -> list[Any]:
    known = {_mark(each) for each in (*ours, *seed)}
    merged = list(ours)
    for each in theirs:
        mark = _mark(each)
        if mark not in known:
            known.add(mark)
            merged.append(each)
    return merged


def _mark(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
