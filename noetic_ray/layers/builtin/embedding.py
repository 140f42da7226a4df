"""Texts as vectors: the user's function, or hashed words that need no network."""

from __future__ import annotations

import asyncio
import base64
import math
import re
from array import array
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from inspect import isawaitable
from itertools import pairwise
from typing import Any, TypeAlias

from noetic_ray.signatures import is_async

Embed: TypeAlias = Callable[[str], "Sequence[float] | Awaitable[Sequence[float]]"]
DIMENSIONS = 256
_WORD = re.compile(r"\w+")
_LEVELS = 127


def hashed_words(text: str) -> list[float]:
    """256 numbers: words, pairs of words and parts of words, hashed; of length 1.

    The same in every process. Texts that share words and stems point the same way; what is meant
    with other words is not found.
    """
    vector = [0.0] * DIMENSIONS
    words = _WORD.findall(text.casefold())
    for feature, weight in _features(words):
        digest = int.from_bytes(blake2b(feature.encode(), digest_size=4).digest())
        sign = 1.0 if digest & 1 else -1.0
        vector[(digest >> 1) % DIMENSIONS] += sign * weight
    length = math.hypot(*vector)
    return [each / length for each in vector] if length else vector


def _features(words: Sequence[str]) -> list[tuple[str, float]]:
    found = [(word, 1.0) for word in words]
    found += [(f"{one} {two}", 0.5) for one, two in pairwise(words)]
    for word in words:
        if len(word) > 4:
            found.append((f"^{word[:4]}", 0.5))
    return found


async def embedded(embed: Embed | None, text: str) -> list[float]:
    """The vector of a text. Raises ValueError for one that cannot be compared."""
    if embed is None:
        return hashed_words(text)
    given: Any
    if is_async(embed):
        given = await embed(text)  # type: ignore[misc]
    else:
        given = await asyncio.to_thread(embed, text)
        if isawaitable(given):
            given = await given
    vector = [float(number) for number in given]
    if not vector or not all(map(math.isfinite, vector)):
        raise ValueError("embed gave an empty vector, or one with numbers that are not finite")
    return vector


def packed(vector: Sequence[float]) -> str:
    """A vector's direction in a byte a dimension, as text."""
    largest = max(map(abs, vector), default=0.0) or 1.0
    levels = array("b", (round(each / largest * _LEVELS) for each in vector))
    return base64.b64encode(levels.tobytes()).decode()


def unpacked(text: str) -> array[int]:
    """The reverse of `packed`, up to the length."""
    levels = array("b")
    levels.frombytes(base64.b64decode(text))
    return levels
