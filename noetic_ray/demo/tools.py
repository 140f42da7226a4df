"""What a reader's model may do with the text in front of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import noetic_ray as nr
from noetic_ray.demo.shares import Share
from noetic_ray.demo.words import count, flat


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence somebody found worth keeping."""

    document: str
    sentence: str


@dataclass
class Desk:
    """A reader's state: the chunks `first` to `last` of a share, and what was found in them."""

    share: Share
    first: int
    last: int
    terms: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    @classmethod
    def for_share(cls, share: Share) -> Desk:
        """A clean desk with all of a share on it."""
        return cls(share, 1, len(share.chunks))

    def part(self, first: int, last: int) -> Desk:
        """A clean desk with some of the chunks; ValueError when it does not have them."""
        if not self.first <= first <= last <= self.last:
            raise ValueError(f"the chunks here are {self.first} to {self.last}")
        return Desk(self.share, first, last)

    def text(self, number: int) -> str:
        """One chunk."""
        return self.part(number, number).whole()

    def whole(self) -> str:
        """All chunks on this desk."""
        return "\n\n".join(chunk.text for chunk in self.share.chunks[self.first - 1 : self.last])

    def count(self, terms: Iterable[str]) -> dict[str, int]:
        """How often terms stand in all chunks here; kept."""
        counts = count(self.whole(), terms)
        self.terms.update(counts)
        return counts

    def take(self, terms: Iterable[str], notes: Iterable[Note]) -> None:
        """Add what a helper found, its terms counted again in all chunks here."""
        self.count(terms)
        self.notes.extend(notes)

    @property
    def task(self) -> str:
        """What the model is asked."""
        return f"Read {self.share.title}. Its chunks are {self.first} to {self.last}."


# A tool's schema comes from its type hints and its description from its docstring. The context is
# passed by the library and never shown to the model. What a tool raises, the model is told.


@nr.tool
async def read_chunk(number: int, ctx: nr.Context) -> str:
    """Read one chunk of the text."""
    desk: Desk = ctx.state
    return desk.text(number)


@nr.tool
async def count_terms(terms: list[str], ctx: nr.Context) -> dict[str, int]:
    """Count how often terms stand in all of your chunks; this is exact, your own count is not."""
    desk: Desk = ctx.state
    return desk.count(terms)


@nr.tool
async def note(chunk: int, sentence: str, ctx: nr.Context) -> str:
    """Keep a key sentence for the report, word for word as it stands in the chunk."""
    desk: Desk = ctx.state
    if flat(sentence) not in flat(desk.text(chunk)):
        raise ValueError("this sentence is not in the chunk; quote it word for word")
    desk.notes.append(Note(desk.share.chunks[chunk - 1].document, flat(sentence)))
    return f"noted; {len(desk.notes)} so far"
