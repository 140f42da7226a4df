"""What readers found, and the report that is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from noetic_ray.demo.documents import Document, Problem
from noetic_ray.demo.shares import Share
from noetic_ray.demo.tools import Desk, Note
from noetic_ray.demo.words import count, weigh, words
from noetic_ray.errors import NoeticError

TERMS = 8
SENTENCES = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What one reader says about its share, or why it could not."""

    share: int
    title: str
    documents: list[str]
    answer: str = ""
    again: bool = False
    terms: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    error: str | None = None

    @classmethod
    def on(cls, desk: Desk, answer: str) -> Finding:
        """What is on a desk when the reading is over."""
        share = desk.share
        return cls(
            share.number, share.title, share.documents, answer, share.again, desk.terms, desk.notes
        )

    @classmethod
    def failed(cls, share: Share, error: NoeticError) -> Finding:
        """A reader that did not come to an end."""
        why = f"{error.kind}: {error}"
        return cls(share.number, share.title, share.documents, again=share.again, error=why)


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """A document: exact counts of its terms, its key sentences, and what its readers answered."""

    name: str
    words: int
    chunks: int
    readers: int
    terms: dict[str, int]
    sentences: list[str]
    summaries: list[str]


@dataclass(frozen=True, slots=True)
class Report:
    """`shared_terms` are terms of several documents, with their names."""

    documents: list[DocumentReport] = field(default_factory=list)
    shared_terms: dict[str, list[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def merge(documents: Sequence[Document], findings: Sequence[Finding]) -> Report:
    """One report of all findings. Terms are counted once more, in the whole document."""
    made: list[DocumentReport] = []
    problems: list[Problem] = []
    for document in documents:
        mine = [each for each in findings if document.name in each.documents]
        problems += (Problem(each.title, each.error) for each in mine if each.error)
        good = [each for each in mine if each.error is None]
        if good:
            made.append(_one(document, good))
    return Report(made, _shared(made), list(dict.fromkeys(problems)))


def _one(document: Document, findings: Sequence[Finding]) -> DocumentReport:
    wanted = (term.lower() for finding in findings for term in finding.terms)
    counts = {term: n for term, n in count(document.text, wanted).items() if n}
    terms = dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:TERMS])
    noted = {
        note.sentence: weigh(note.sentence, counts)
        for finding in findings
        for note in finding.notes
        if note.document == document.name
    }
    return DocumentReport(
        name=document.name,
        words=len(words(document.text)),
        chunks=len(document.chunks()),
        readers=len(findings),
        terms=terms,
        sentences=sorted(noted, key=lambda sentence: -noted[sentence])[:SENTENCES],
        summaries=[each.answer for each in findings if _belongs(each, document)],
    )


def _belongs(finding: Finding, document: Document) -> bool:
    """An answer about several documents stands with the first of them only."""
    return not finding.again and finding.documents[0] == document.name


def _shared(documents: Sequence[DocumentReport]) -> dict[str, list[str]]:
    where: dict[str, list[str]] = {}
    for document in documents:
        for term in document.terms:
            where.setdefault(term, []).append(document.name)
    shared = {term: names for term, names in where.items() if len(names) > 1}
    return dict(sorted(shared.items(), key=lambda pair: (-len(pair[1]), pair[0])))
