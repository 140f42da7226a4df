"""Vectors that stand for texts, and how alike two of them are."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

#: Turns a text into numbers, as many for each text; sync or async.
Embed: TypeAlias = Callable[[str], Sequence[float] | Awaitable[Sequence[float]]]


def as_vector(given: Any) -> list[float]:
    """What `embed` gave, as floats. Raises ValueError unless they are one or more finite numbers."""
    if isinstance(given, str | bytes):
        raise ValueError(f"embed gave {given!r:.100}, not numbers")
    try:
        vector = [float(number) for number in given]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"embed gave {given!r:.100}, not numbers") from None
    if not vector:
        raise ValueError("embed gave a vector without numbers")
    if not all(map(math.isfinite, vector)):
        odd = next(number for number in vector if not math.isfinite(number))
        raise ValueError(f"embed gave a vector with {odd} in it")
    return vector


def unit(vector: Sequence[float]) -> list[float]:
    """The vector of length 1 in the same direction; all zeros stay zeros."""
    largest = max(map(abs, vector))
    if largest == 0:
        return list(vector)
    # Scaled first: the squares of very large and very small numbers are out of range.
    scaled = [number / largest for number in vector]
    length = math.hypot(*scaled)
    return [number / length for number in scaled]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """From -1, opposite, to 1, the same direction; 0 with a vector of zeros.

    Raises ValueError for vectors of different lengths, empty ones, and numbers that are not finite.
    """
    one, other = as_vector(one), as_vector(other)
    check_lengths(len(one), len(other))
    dot = sum(a * b for a, b in zip(unit(one), unit(other), strict=True))
    # Vectors that point the same way come out a rounding error short of 1.
    return round(dot, 9)


def check_lengths(one: int, other: int) -> None:
    """Raises ValueError unless the two vectors can be compared."""
    if one != other:
        raise ValueError(f"embed gave vectors of {one} and {other} numbers")
