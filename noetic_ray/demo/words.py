"""Words, terms and sentences of a text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

_WORD = re.compile(r"[^\W\d_]{2,}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\Wa-z\d_]|[\"'(])")
_CODE = re.compile(r"[=<>{}\[\]@_]|\(\)")
#: Words that say nothing about what a text is about.
_COMMON = """
a about above after again against all also always an and another any are as at back be because
been before behind being below between both but by came can cannot class come comes could def did
do does doing done down during each either else even ever every false few first for four from get
given gives go goes had half has have having he her here hers him his how hundred if import in
into is it its itself just kept last less like made make makes many may me mean means meant might
more most must my nearly never no nobody none nor not nothing now of off often on once one only
onto or other others our out over own per put return same second see seen self set she should
since small so some somebody still such take taken than that the their theirs them then there
these they third this those though three through thus to together too true twice two under until
up upon us use used very was way we well went were what when where whether which while who whom
whose why will with within without would yet you your
"""
COMMON = frozenset(_COMMON.split())


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order; numbers are none."""
    return _WORD.findall(text.lower())


def terms(texts: Iterable[str], n: int) -> list[str]:
    """The `n` words the texts use most, common ones left out."""
    counted: Counter[str] = Counter()
    for text in texts:
        counted.update(word for word in words(text) if word not in COMMON and len(word) > 2)
    return [term for term, _ in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:n]]


def count(text: str, wanted: Iterable[str]) -> dict[str, int]:
    """How often each term stands in a text, as whole words, upper or lower case."""
    return {
        term: len(re.findall(rf"(?<!\w){re.escape(term)}(?!\w)", text, re.IGNORECASE))
        for term in dict.fromkeys(wanted)
        if term.strip()
    }


def flat(text: str) -> str:
    """The text on one line, with single spaces."""
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line; headings and scraps are left out."""
    found: list[str] = []
    for paragraph in re.split(r"\n\n|\"\"\"", text):
        found += filter(_is_sentence, _SENTENCE.split(flat(paragraph)))
    return found


def _is_sentence(text: str) -> bool:
    """Code has other signs, a heading has no end, a scrap is short."""
    if _CODE.search(text):
        return False
    return text.rstrip("\"')").endswith((".", "!", "?")) and len(text.split()) > 4


def weigh(sentence: str, counts: dict[str, int]) -> float:
    """How much of what a text is about a sentence holds: its terms' counts, per root of length."""
    own = words(sentence)
    weight = sum(counts.get(word, 0) for word in set(own))
    return weight / math.sqrt(max(len(own), 8))
