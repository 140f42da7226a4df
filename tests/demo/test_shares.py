from __future__ import annotations

import pytest

from noetic_ray.demo.documents import Document, samples
from noetic_ray.demo.shares import Chunk, deal


def all_chunks(documents: list[Document]) -> set[Chunk]:
    return {Chunk(document.name, text) for document in documents for text in document.chunks()}


@pytest.mark.parametrize("readers", [1, 2, 3, 4, 5, 9, 23, 24, 50, 333])
def test_any_number_of_readers_gets_a_share_and_nothing_is_left_out(readers: int) -> None:
    documents = samples()
    shares = deal(documents, readers)
    assert [share.number for share in shares] == list(range(readers))
    assert all(share.chunks for share in shares)
    assert {chunk for share in shares for chunk in share.chunks} == all_chunks(documents)


@pytest.mark.parametrize("readers", [1, 3, 4, 9, 50])
def test_only_shares_marked_so_repeat_what_others_have(readers: int) -> None:
    first = [share for share in deal(samples(), readers) if not share.again]
    chunks = [chunk for share in first for chunk in share.chunks]
    assert len(chunks) == len(set(chunks)) == len(all_chunks(samples()))


def test_there_is_one_reader_for_each_document_by_default() -> None:
    documents = samples()
    assert [share.title for share in deal(documents)] == [each.name for each in documents]


def test_long_documents_get_more_readers() -> None:
    documents = [Document("long", "A line.\n\n" * 900), Document("short", "A line.\n\n" * 90)]
    titles = [share.title for share in deal(documents, 6)]
    assert sum(title.startswith("long") for title in titles) == 5


def test_a_share_of_several_documents_names_them_all() -> None:
    (share,) = deal(samples(), 1)
    assert sorted(share.documents) == [each.name for each in samples()]
    assert share.title.endswith(" and 3 more")
