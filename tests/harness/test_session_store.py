"""Sessions that go on in a later harness."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.harness.session_history import Record, SessionHistory, SessionRecords
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.local import LocalJournal
from tests.support.sessions import BOUND, Talk, Talker, texts

ROOT = Path(__file__).parents[2]
THREAD = "thread/ä 1"


@pytest.fixture
def open_talk(
    backend: str, make_harness: Callable[..., nr.Harness], tmp_path: Path
) -> Callable[..., Talk]:
    """A session of one thread in a new harness on the same store."""

    def make(thread_id: str = THREAD) -> Talk:
        store = tmp_path / "store.db"
        return Talk(make_harness(Talker(), placement=backend, store=store), thread_id)

    return make


def test_a_later_harness_goes_on_with_the_history(open_talk: Callable[..., Talk]) -> None:
    first = open_talk()
    first.session.seed("before")
    first.say("a", message_id="mine")
    first.say("fail")
    first.hold("hold b")
    first.session.abort()
    first.session.seed(nr.developer_message("between"))
    before, used = first.session.history, first.session.usage
    first.harness.close()

    second = open_talk()
    assert second.session.history == before
    assert second.session.usage == used
    with pytest.raises(nr.ConfigError, match="NO_TURN"):
        second.session.response(BOUND)
    with pytest.raises(nr.ConfigError, match="DUPLICATE_MESSAGE_ID"):
        second.session.send("again", message_id="mine")
    assert second.say("c").text == "echo 5: c"
    assert second.session.history[: len(before)] == before
    second.harness.close()

    third = open_talk()
    assert third.session.history == second.session.history
    assert Talk(third.harness, "another").session.history == []


DRIVER = """
import sys
import noetic_ray as nr
from tests.support.sessions import Talk, Talker

harness = nr.Harness("elsewhere", Talker(), placement="inline", store=sys.argv[1])
talk = Talk(harness, sys.argv[2])
talk.say("a")
talk.hold("hold b")
import os
harness._backend.thread.call(harness._backend.journal.flush())
os._exit(1)
"""


def test_another_process_goes_on_where_one_died_in_a_turn(
    make_harness: Callable[..., nr.Harness], tmp_path: Path
) -> None:
    store = tmp_path / "store.db"
    died = subprocess.run(
        [sys.executable, "-c", DRIVER, str(store), THREAD], cwd=ROOT, timeout=BOUND, check=False
    )
    assert died.returncode == 1
    talk = Talk(make_harness(Talker(), placement="inline", store=store), THREAD)
    assert texts(talk.session.history) == ["u:a", "a:echo 1: a", "u:hold b"]
    assert talk.session.history[-1].type == "function_call"
    assert talk.session.usage.input == 4
    assert talk.say("c").text == "echo 3: c"


def test_without_a_store_a_thread_ends_with_its_harness(
    make_harness: Callable[..., nr.Harness],
) -> None:
    first = Talk(make_harness(Talker(), placement="inline"), THREAD)
    first.say("a")
    first.harness.close()
    assert Talk(make_harness(Talker(), placement="inline"), THREAD).session.history == []


# -- records -------------------------------------------------------------------------------------


async def test_a_record_of_a_turn_holds_its_message_and_no_more() -> None:
    journal = LocalJournal(JournalCore())
    records = SessionRecords(journal, "a/b", stored=True)
    message = nr.user_message("x")
    key = await records.add(Record([message], "run", 7))
    assert key == "sessions/a%2Fb/0000000001"
    (raw,) = (await journal.load([key])).values()
    record = Record.load(raw)
    assert (record.items, record.run_id, record.since) == ([message], "run", 7)
    assert record.usage is None
    await records.keep(key, Record([message], "run", 7, nr.TokenUsage(1, 2, 3)))
    await records.add(Record([nr.user_message("seed")]))
    later = SessionRecords(journal, "a/b", stored=True)
    past = await later.load()
    assert texts(past.items) == ["u:x", "u:seed"]
    assert past.usage == nr.TokenUsage(1, 2, 3)
    assert (await later.add(Record([]))).endswith("0000000003")
    await journal.aclose()


async def test_without_a_store_no_record_is_written() -> None:
    journal = LocalJournal(JournalCore())
    records = SessionRecords(journal, "t", stored=False)
    await records.add(Record([nr.user_message("x")]))
    assert await journal.keys("sessions/") == []
    assert (await records.load()).items == []
    await journal.aclose()


def test_a_history_has_each_item_once() -> None:
    history = SessionHistory()
    item: Any = nr.user_message("x")
    assert (history.add(item), history.add(item), len(history)) == (True, False, 1)
    assert item.id in history
    fresh = nr.user_message("y")
    assert history.new_of([item, fresh, fresh]) == (fresh,)
    with pytest.raises(nr.DuplicateItem):
        history.new_of([fresh, fresh.model_copy(update={"role": "system"})])
    copy = history.since(0)
    copy.clear()
    assert len(history) == 1
