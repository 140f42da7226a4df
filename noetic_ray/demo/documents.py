"""Documents: found, read, and cut into chunks a model can take in at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

CHUNK = 900
"""Characters a chunk may have, roughly."""
MAX_BYTES = 5_000_000
_SENTENCE_END = re.compile(r"[.!?][\"')]?\s")
_LINE_END = re.compile(r"\n")
_WORD_END = re.compile(r"\s")
_PASSED_OVER = ("node_modules", "__pycache__")


@dataclass(frozen=True, slots=True)
class Document:
    """A text and the name it goes by."""

    name: str
    text: str

    def chunks(self) -> list[str]:
        """The text in pieces of about `CHUNK` characters, cut at blank lines where there are."""
        pieces: list[str] = []
        for block in _blocks(self.text):
            if pieces and len(pieces[-1]) + len(block) < CHUNK:
                pieces[-1] += "\n\n" + block
            else:
                pieces.append(block)
        return pieces


class Problem(NamedTuple):
    """A path that could not be read, or a document that could not be worked on, and why."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class Unreadable(Exception):
    """A file is no text that can be worked on; the message says why."""


def samples() -> list[Document]:
    """The documents that come with the library."""
    folder = resources.files("noetic_ray.demo") / "documents"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return [Document(file.name, file.read_text("utf-8")) for file in files]


def load(paths: Sequence[str]) -> tuple[list[Document], list[Problem]]:
    """Read files, and the files in folders; what cannot be read is told, not raised."""
    documents: list[Document] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    for name in (file for path in paths for file in _files(path, problems)):
        real = os.path.realpath(name)
        if real in seen:
            continue
        seen.add(real)
        try:
            documents.append(Document(name, _read(Path(name))))
        except Unreadable as why:
            problems.append(Problem(name, str(why)))
        except OSError as error:
            problems.append(Problem(name, (error.strerror or str(error)).lower()))
    return documents, problems


def _files(path: str, problems: list[Problem]) -> Iterator[str]:
    """The path itself, or every file under a folder in a steady order, hidden ones left out."""
    if not os.path.isdir(path):
        yield path
        return

    def refused(error: OSError) -> None:
        problems.append(Problem(str(error.filename), (error.strerror or str(error)).lower()))

    found = False
    for folder, folders, names in os.walk(path, onerror=refused):
        folders[:] = sorted(f for f in folders if f[0] != "." and f not in _PASSED_OVER)
        for name in sorted(n for n in names if n[0] != "."):
            found = True
            yield os.path.join(folder, name)
    if not found and not any(problem.path == path for problem in problems):
        problems.append(Problem(path, "no files in this folder"))


def _read(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise Unreadable("not a regular file")
    if path.stat().st_size > MAX_BYTES:
        raise Unreadable(f"larger than {MAX_BYTES // 1_000_000} MB")
    data = path.read_bytes()
    if b"\0" in data:
        raise Unreadable("a binary file, not text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise Unreadable("empty")
    return text


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs; those that are too long are cut."""
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        block = paragraph.strip("\n")
        while len(block) > CHUNK:
            end = _cut(block[:CHUNK])
            yield block[:end].rstrip()
            block = block[end:].lstrip()
        if block.strip():
            yield block


def _cut(piece: str) -> int:
    """Where to end a piece: after a sentence, or else a line, or else a word."""
    for end in (_SENTENCE_END, _LINE_END, _WORD_END):
        ends = [match.end() for match in end.finditer(piece)]
        if ends:
            return ends[-1]
    return len(piece)
