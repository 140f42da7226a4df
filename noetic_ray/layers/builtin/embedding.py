"""Texts as vectors: the user's function, or hashed words that need no network."""

from __future__ import annotations

import base64
import math
import re
import unicodedata
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

from noetic_ray.layers.builtin.calling import called
from noetic_ray.until import Embed

__all__ = ["DIMENSIONS", "Embed", "embedded", "hashed_words", "packed", "unpacked"]

DIMENSIONS = 256
#: Thai to Khmer, kana, Han: written without spaces between words.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"([{_UNSPACED}]+)|[^\W{_UNSPACED}]+")
_LEVELS = 127


def hashed_words(text: str) -> list[float]:
    """256 numbers: words, pairs of words and parts of words, hashed; of length 1.

    The same in every process. Texts that share words and stems point the same way; what is meant
    with other words is not found. Scripts without spaces are taken by two characters at a time. A
    text without words is all zeros, which is like nothing.
    """
    vector = [0.0] * DIMENSIONS
    words = _words(unicodedata.normalize("NFKC", text).casefold())
    for feature, weight in _features(words):
        digest = int.from_bytes(
            blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=4).digest()
        )
        sign = 1.0 if digest & 1 else -1.0
        vector[(digest >> 1) % DIMENSIONS] += sign * weight
    length = math.hypot(*vector)
    return [each / length for each in vector] if length else vector


def _words(text: str) -> list[str]:
    words: list[str] = []
    for found in _WORD.finditer(text):
        word, run = found[0], found[1]
        words += map("".join, pairwise(run)) if run and len(run) > 1 else (word,)
    return words


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
    given = await called(embed, text)
    if isinstance(given, str | bytes):
        raise ValueError(f"embed gave {given!r:.100}, not numbers")
    try:
        vector = [float(number) for number in given]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"embed gave {given!r:.100}, not numbers") from None
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
