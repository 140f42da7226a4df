"""Who reads what: documents dealt out to any number of readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noetic_ray.demo.documents import Document


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document."""

    document: str
    text: str


@dataclass(frozen=True, slots=True)
class Share:
    """What one reader reads. `again` marks a part that another reader has, too."""

    number: int
    title: str
    chunks: tuple[Chunk, ...]
    again: bool = False

    @property
    def documents(self) -> list[str]:
        """The names of the documents it is part of."""
        return list(dict.fromkeys(chunk.document for chunk in self.chunks))


def deal(documents: Sequence[Document], readers: int | None = None) -> list[Share]:
    """Exactly `readers` shares, one for each document unless told otherwise.

    With more readers than documents, long documents are cut into more parts than short ones; when
    even single chunks run out, parts are read again by others. With fewer, readers get several
    documents.
    """
    if readers is None or readers == len(documents):
        return [_share(n, [document]) for n, document in enumerate(documents)]
    if readers < len(documents):
        return [_share(n, group) for n, group in enumerate(_groups(documents, readers))]
    shares: list[Share] = []
    for document, parts in zip(documents, _readers_each(documents, readers), strict=True):
        shares += _parts(document, parts, len(shares))
    return shares


def _share(number: int, documents: Sequence[Document]) -> Share:
    chunks = tuple(Chunk(each.name, text) for each in documents for text in each.chunks())
    return Share(number, _title([each.name for each in documents]), chunks)


def _title(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _groups(documents: Sequence[Document], groups: int) -> list[list[Document]]:
    """The documents in groups of about the same length."""
    made: list[list[Document]] = [[] for _ in range(groups)]
    weights = [0] * groups
    for document in sorted(documents, key=lambda each: -len(each.text)):
        lightest = weights.index(min(weights))
        made[lightest].append(document)
        weights[lightest] += len(document.text)
    return made


def _readers_each(documents: Sequence[Document], readers: int) -> list[int]:
    """How many readers each document gets: the next one goes where the parts are longest."""
    given = [1] * len(documents)
    for _ in range(readers - len(documents)):
        lengths = [len(doc.text) / n for doc, n in zip(documents, given, strict=True)]
        given[lengths.index(max(lengths))] += 1
    return given


def _parts(document: Document, parts: int, first: int) -> list[Share]:
    texts = document.chunks()
    cuts = min(parts, len(texts))
    made = []
    for n in range(parts):
        part = n % cuts
        mine = texts[part * len(texts) // cuts : (part + 1) * len(texts) // cuts]
        chunks = tuple(Chunk(document.name, text) for text in mine)
        again = n >= cuts
        place = "" if parts == 1 else f" ({part + 1}/{cuts}{', again' if again else ''})"
        made.append(Share(first + n, document.name + place, chunks, again))
    return made
