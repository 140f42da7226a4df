"""The report as a page on a terminal."""

from __future__ import annotations

from itertools import islice

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from noetic_ray.demo.report import DocumentReport, Report
from noetic_ray.view.texts import plural

_WIDTH = 100
_SHARED_SHOWN = 10


def show_report(console: Console, report: Report) -> None:
    """Print documents, what they share, and what could not be read."""
    for document in report.documents:
        _document(console, document)
    if report.shared_terms:
        console.print(Text("Terms that documents share", style="bold"))
        for term, names in islice(report.shared_terms.items(), _SHARED_SHOWN):
            _indented(console, Text.assemble((term, "cyan"), ": ", ", ".join(names)))
        console.print()
    if report.problems:
        console.print(Text("Not read", style="bold red"))
        for problem in report.problems:
            _indented(console, Text(str(problem)))
        console.print()


def _document(console: Console, document: DocumentReport) -> None:
    sizes = (document.words, "word"), (document.chunks, "chunk"), (document.readers, "reader")
    size = "  " + ", ".join(plural(n, what) for n, what in sizes)
    console.print(Text.assemble((document.name, "bold"), (size, "dim")))
    if document.terms:
        counted = ((f"{term} {n}", "cyan") for term, n in document.terms.items())
        _indented(console, Text("  ").join(Text(*each) for each in counted))
    for sentence in document.sentences:
        _indented(console, Text(f"“{sentence}”"))
    for summary in document.summaries:
        _indented(console, Text(summary, style="italic"))
    console.print()


def _indented(console: Console, text: Text) -> None:
    console.print(Padding(text, (0, 0, 0, 2), expand=False), width=min(console.width, _WIDTH))
