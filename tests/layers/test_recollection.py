"""Entries that contexts of one scope share: what is written, read, gathered and let go."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetic_ray.layers.builtin.recollection import PART, SMALL_PARTS, Recollection
from noetic_ray.layers.storage import ScopedStorage
from tests.layers.builtin.support import Memory


class Counting(Memory):
    """Says how many bytes were written."""

    written = 0

    async def save(self, changes: Any) -> None:
        self.written += sum(len(value) for value in changes.values() if value)
        await super().save(changes)


def opened(memory: Memory, limit: int = 1_000) -> Recollection:
    return Recollection(ScopedStorage(memory, "layers/x/"), limit)


async def texts(
    recollection: Recollection, query: str = "number", top_k: int = 10_000
) -> list[str]:
    found = await recollection.search(None, query, top_k, 0.1)
    return [each.entry["text"] for each in found]


def named(*numbers: int) -> list[dict[str, Any]]:
    return [{"text": f"number n{number}"} for number in numbers]


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=3 * SMALL_PARTS
    ),
    limit=st.integers(1, 60),
)
async def test_the_newest_of_all_writers_are_found_by_everybody(
    batches: list[tuple[int, int]], limit: int
) -> None:
    memory = Memory()
    writers = [opened(memory, limit) for _ in range(3)]
    written: list[int] = []
    for writer, count in batches:
        numbers = list(range(len(written), len(written) + count))
        await writers[writer].add(None, named(*numbers))
        written += numbers
    expected = {f"number n{number}" for number in written[-limit:]}
    for each in (*writers, opened(memory, limit)):
        assert set(await texts(each)) == expected
        assert each.size == len(expected)


async def test_equal_entries_come_newest_first_and_a_text_once() -> None:
    memory = Memory()
    writer = opened(memory)
    await writer.add(None, [{"text": "number", "n": 1}, {"text": "number!", "n": 2}])
    await writer.add(None, [{"text": "number", "n": 3}])
    found = await opened(memory).search(None, "number", 5, 0.1)
    assert [each.entry["n"] for each in found] == [3, 2]
    assert found[0].score == found[1].score == 1.0


async def test_an_addition_writes_nothing_but_itself() -> None:
    memory = Counting()
    writer = opened(memory, 100_000)
    await writer.add(None, named(*range(PART * 20)))
    first = memory.written / (PART * 20)
    memory.written = 0
    await writer.add(None, named(-1))
    assert memory.written < 2 * first


async def test_small_parts_are_gathered() -> None:
    memory = Memory()
    for number in range(10 * SMALL_PARTS):
        await opened(memory).add(None, named(number))
    assert len(memory.values) <= SMALL_PARTS + 10 * SMALL_PARTS // PART + 1
    assert len(await texts(opened(memory))) == 10 * SMALL_PARTS


async def test_parts_with_nothing_but_old_entries_are_removed() -> None:
    memory = Memory()
    for number in range(400):
        await opened(memory, 10).add(None, named(number))
    sizes = [int(key.rpartition(".")[2]) for key in memory.values]
    assert sum(sizes) < 2 * PART + 10 + SMALL_PARTS
    assert set(await texts(opened(memory, 10))) == {f"number n{n}" for n in range(390, 400)}


async def test_nothing_is_missed_while_another_gathers() -> None:
    memory = Memory()
    reader, writer = opened(memory), opened(memory)
    for number in range(SMALL_PARTS):
        await writer.add(None, named(number))
    assert len(await texts(reader)) == SMALL_PARTS
    await writer.add(None, named(SMALL_PARTS))
    assert len(await texts(reader)) == reader.size == SMALL_PARTS + 1


async def test_parts_gathered_twice_count_once() -> None:
    memory = Memory()
    for number in range(SMALL_PARTS):
        await opened(memory).add(None, named(number))
    before = dict(memory.values)
    await opened(memory).add(None, named(SMALL_PARTS))
    memory.values.update(before)  # somebody died before it removed what it had gathered
    again = opened(memory)
    assert len(await texts(again)) == again.size == SMALL_PARTS + 1


async def test_the_size_is_known_without_reading() -> None:
    memory = Memory()
    await opened(memory, 5).add(None, named(1, 2, 3))
    await opened(memory, 5).add(None, named(4))
    fresh = opened(memory, 5)
    await fresh.refresh()
    assert fresh.size == 4
    assert opened(memory).size == 0


async def test_one_addition_larger_than_the_limit_keeps_its_end() -> None:
    memory = Memory()
    writer = opened(memory, 3)
    await writer.add(None, named(*range(20)))
    assert writer.size == 3
    assert set(await texts(writer)) == {"number n17", "number n18", "number n19"}


async def test_a_changed_embedding_is_said() -> None:
    memory = Memory()
    await opened(memory).add(lambda text: [1.0, 2.0], named(1))
    with pytest.raises(ValueError, match="2 and 3 numbers"):
        await opened(memory).search(lambda text: [1.0, 2.0, 3.0], "x", 1, 0.0)
    uneven = iter([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="1 and 2 numbers"):
        await opened(Memory()).add(lambda text: next(uneven), named(1, 2))


async def test_it_travels_empty_and_works_again_with_a_storage() -> None:
    memory = Memory()
    writer = opened(memory)
    await writer.add(None, named(1))
    arrived = pickle.loads(pickle.dumps(writer))
    with pytest.raises(RuntimeError, match="no storage"):
        await arrived.search(None, "number", 1, 0.0)
    assert await texts(arrived.at(ScopedStorage(memory, "layers/x/"))) == ["number n1"]


async def test_texts_are_kept_in_a_form_that_can_be_saved() -> None:
    memory = Memory()
    await opened(memory).add(None, [{"text": "number \ud83d"}])
    assert await texts(opened(memory)) == ["number \ufffd"]


async def test_a_text_without_words_is_like_nothing() -> None:
    memory = Memory()
    await opened(memory).add(None, [{"text": "!!!"}])
    assert await opened(memory).search(None, "!!!", 1, 0.1) == []
