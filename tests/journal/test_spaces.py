"""The spaces of a run, as the journal holds them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_ray.canonical import from_json
from noetic_ray.client.trace_fold import TraceFold
from noetic_ray.errors import TraceError
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.spaces import RunSpaces
from noetic_ray.journal.sqlite import SqliteStore

FACTS: dict[str, Any] = {
    "label": "Memory",
    "type": "context",
    "icon": "database",
    "description": "d",
    "metadata": {"owner": ["me"]},
}


class Book:
    """Spaces with the events they made."""

    def __init__(self) -> None:
        self.spaces = RunSpaces()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def do(self, operation: str, **arguments: Any) -> Any:
        answer, events = self.spaces.do(operation, arguments)
        self.events += events
        return answer

    def create(self, id: str | None = "s", **facts: Any) -> str:
        return str(self.do("create", id=id, **{**FACTS, **facts})["id"])

    @property
    def kinds(self) -> list[str]:
        return [type.removeprefix("space.") for type, _ in self.events]


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_space_has_the_facts_it_was_made_with(book: Book) -> None:
    assert book.do("create", id=None, **FACTS).keys() == {"id", *FACTS}
    fresh = book.create(None)
    named = book.create("mine")
    assert len(fresh) == 12
    assert named == "mine"
    assert book.do("get_space", id=fresh) == {"id": fresh, **FACTS}
    assert [each["id"] for each in book.do("list")][1:] == [fresh, "mine"]
    assert book.events[-1] == ("space.created", {"space_id": "mine", **FACTS})


@pytest.mark.parametrize("id", ["", 3, ["x"], b"x"])
def test_an_id_that_is_no_text_is_refused(book: Book, id: Any) -> None:
    with pytest.raises(TraceError):
        book.create(id)
    assert book.events == []


def test_an_id_is_taken_until_its_space_is_deleted(book: Book) -> None:
    book.create("s")
    book.do("set", space_id="s", key="k", value=1)
    with pytest.raises(TraceError) as refused:
        book.create("s")
    assert refused.value.space_id == "s"
    book.do("delete_space", id="s")
    book.create("s")
    assert book.do("keys", space_id="s") == []
    assert book.kinds == ["created", "set", "deleted", "created"]


def test_a_space_is_found_by_its_id_and_else_by_a_type_only_it_has(book: Book) -> None:
    book.create("a", type="notes")
    book.create("b", type="facts")
    assert book.do("get_space", id="facts")["id"] == "b"
    book.create("facts", type="other")
    assert book.do("get_space", id="facts")["id"] == "facts", "an id comes first"
    book.create("c", type="notes")
    assert book.do("get_space", id="notes") is None
    book.do("delete_space", id="c")
    book.do("delete_space", id="notes")
    assert [each["id"] for each in book.do("list")] == ["b", "facts"]
    book.create("untyped", type="")
    assert book.do("get_space", id="") is None
    for wrong in (None, 3, ["a"]):
        with pytest.raises(TraceError):
            book.do("get_space", id=wrong)


def test_values_are_kept_as_json(book: Book) -> None:
    book.create()
    given = {"nested": [1, 2.5, None, True], "text": "ü"}
    for key, value in (("one", "value1"), ("two", given), ("three", 12345), ("none", None)):
        assert book.do("set", space_id="s", key=key, value=value) is None
    given["nested"] = []
    assert book.do("get", space_id="s", key="two") == (
        True,
        {"nested": [1, 2.5, None, True], "text": "ü"},
    )
    assert book.do("get", space_id="s", key="none") == (True, None)
    assert book.do("get", space_id="s", key="nope") == (False, None)
    assert book.do("keys", space_id="s") == ["one", "two", "three", "none"]
    book.do("set", space_id="s", key="odd", value={1, 2})
    assert book.do("get", space_id="s", key="odd")[1] in ([1, 2], [2, 1])


def test_an_answer_is_a_copy(book: Book) -> None:
    book.create()
    book.do("set", space_id="s", key="k", value={"list": [1]})
    book.do("get", space_id="s", key="k")[1]["list"].append(2)
    book.do("get_space", id="s")["metadata"]["owner"].append("you")
    book.do("list")[0]["metadata"].clear()
    assert book.do("get", space_id="s", key="k") == (True, {"list": [1]})
    assert book.do("get_space", id="s")["metadata"] == {"owner": ["me"]}


def test_only_what_changes_something_is_an_event(book: Book) -> None:
    book.create()
    book.do("set", space_id="s", key="k", value=1)
    book.do("set", space_id="s", key="k", value=2)
    book.do("remove", space_id="s", key="k")
    book.do("remove", space_id="s", key="k")
    book.do("clear", space_id="s")
    book.do("delete_space", id="s")
    book.do("delete_space", id="s")
    book.do("clear", space_id="s")
    book.do("remove", space_id="s", key="k")
    assert book.kinds == ["created", "set", "set", "removed", "cleared", "deleted"]
    assert book.events[2] == ("space.set", {"space_id": "s", "key": "k", "value": 2})
    assert book.events[3] == ("space.removed", {"space_id": "s", "key": "k"})
    assert book.events[4] == ("space.cleared", {"space_id": "s"})


def test_a_deleted_space_is_empty_and_cannot_be_written(book: Book) -> None:
    book.create()
    book.do("set", space_id="s", key="k", value=1)
    book.do("delete_space", id="s")
    before = list(book.events)
    assert book.do("get", space_id="s", key="k") == (False, None)
    assert book.do("keys", space_id="s") == []
    for operation, arguments in (
        ("set", {"value": 1}),
        ("increment", {"by": 1}),
        ("compare_and_set", {"expected": None, "value": 1}),
    ):
        with pytest.raises(TraceError, match="was deleted"):
            book.do(operation, space_id="s", key="k", **arguments)
    assert book.events == before


@pytest.mark.parametrize("key", [3, None, ["k"], b"k"])
def test_a_key_is_a_text(book: Book, key: Any) -> None:
    book.create()
    for operation, arguments in (
        ("set", {"value": 1}),
        ("get", {}),
        ("remove", {}),
        ("increment", {"by": 1}),
        ("compare_and_set", {"expected": None, "value": 1}),
    ):
        with pytest.raises(TraceError, match="key"):
            book.do(operation, space_id="s", key=key, **arguments)
    assert book.kinds == ["created"]


def test_a_key_json_cannot_hold_is_found_again(book: Book) -> None:
    book.create()
    book.do("set", space_id="s", key="\ud800", value=1)
    assert book.do("increment", space_id="s", key="\ud800", by=1) == 2
    assert book.do("get", space_id="s", key="\ud800") == (True, 2)
    book.do("remove", space_id="s", key="\ud800")
    assert book.do("keys", space_id="s") == []


def test_counting(book: Book) -> None:
    book.create()
    count = {"space_id": "s", "key": "n"}
    assert book.do("increment", by=1, **count) == 1
    assert book.do("increment", by=-3, **count) == -2
    assert book.do("increment", by=0.5, **count) == -1.5
    book.do("set", value=None, **count)
    assert book.do("increment", by=2, **count) == 2, "None counts as nothing yet"
    assert [data.get("value") for _, data in book.events[1:]] == [1, -2, -1.5, None, 2]


@pytest.mark.parametrize(
    ("old", "by"),
    [
        *(("text", 1), (True, 1), ([1], 1)),
        *((1, "1"), (1, None), (1, True)),
        *((1e308, 1e308), (0, float("nan")), (10**400, 0.5)),
    ],
)
def test_what_cannot_be_counted_is_left_as_it_is(book: Book, old: Any, by: Any) -> None:
    book.create()
    book.do("set", space_id="s", key="n", value=old)
    with pytest.raises(TraceError) as refused:
        book.do("increment", space_id="s", key="n", by=by)
    assert refused.value.space_id == "s"
    assert book.do("get", space_id="s", key="n") == (True, old)
    assert book.kinds == ["created", "set"]


@pytest.mark.parametrize(
    ("old", "expected", "equal"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1, 2], (1, 2), True),
        ([1, 2], [2, 1], False),
        ([True], [1], False),
        ({}, [], False),
        ("", None, False),
    ],
)
def test_a_value_is_compared_as_json(book: Book, old: Any, expected: Any, equal: bool) -> None:
    book.create()
    book.do("set", space_id="s", key="k", value=old)
    arguments = {"space_id": "s", "key": "k", "expected": expected, "value": "new"}
    assert book.do("compare_and_set", **arguments) is equal
    assert book.do("get", space_id="s", key="k") == (True, "new" if equal else old)
    assert book.kinds == ["created", "set", "set"][: 3 if equal else 2]


def test_a_key_that_is_absent_is_expected_as_none(book: Book) -> None:
    book.create()
    assert not book.do("compare_and_set", space_id="s", key="k", expected=0, value=1)
    assert book.do("compare_and_set", space_id="s", key="k", expected=None, value=1)
    assert not book.do("compare_and_set", space_id="s", key="k", expected=None, value=2)


ids = st.sampled_from(["a", "b"])
keys = st.sampled_from(["x", "y", "z"])
values = st.none() | st.integers(-3, 3) | st.text(max_size=2)
operations = st.one_of(
    st.tuples(st.just("create"), st.fixed_dictionaries({"id": ids})),
    st.tuples(st.just("delete_space"), st.fixed_dictionaries({"id": ids})),
    st.tuples(
        st.just("set"), st.fixed_dictionaries({"space_id": ids, "key": keys, "value": values})
    ),
    st.tuples(st.just("remove"), st.fixed_dictionaries({"space_id": ids, "key": keys})),
    st.tuples(st.just("clear"), st.fixed_dictionaries({"space_id": ids})),
    st.tuples(
        st.just("increment"),
        st.fixed_dictionaries({"space_id": ids, "key": keys, "by": st.integers(-2, 2)}),
    ),
    st.tuples(
        st.just("compare_and_set"),
        st.fixed_dictionaries({"space_id": ids, "key": keys, "expected": values, "value": values}),
    ),
)


@given(st.lists(operations, max_size=30))
def test_the_events_tell_all_of_it(done: list[tuple[str, dict[str, Any]]]) -> None:
    """Spaces that are replayed, and a fold of the same events, hold what the spaces hold."""
    book, fold, replayed = Book(), TraceFold(), RunSpaces()
    for operation, arguments in done:
        before = len(book.events)
        try:
            more = FACTS if operation == "create" else {}
            book.do(operation, **arguments, **more)
        except TraceError:
            assert len(book.events) == before, "what was refused did nothing"
    for type, data in book.events:
        fold.feed(type, "c", 1.0, data)
    replayed.replay(book.events)
    held = {each["id"]: contents(book.spaces, each["id"]) for each in book.do("list")}
    assert {each.id: each.data for each in fold.spaces()} == held
    listed, _ = replayed.do("list", {})
    assert {each["id"]: contents(replayed, each["id"]) for each in listed} == held
    assert listed == book.do("list")


def contents(spaces: RunSpaces, id: str) -> dict[str, Any]:
    found, _ = spaces.do("keys", {"space_id": id})
    return {key: spaces.do("get", {"space_id": id, "key": key})[0][1] for key in found}


# -- in the journal ------------------------------------------------------------------------------


async def told(core: JournalCore, run_id: str = "r") -> list[tuple[int, str, str, Any]]:
    selection = await core.select(run_id, ("space.",), 0)
    return [
        (seq or 0, type, context_id, from_json(data))
        for seq, type, context_id, _, data in selection.entries
    ]


async def test_operations_are_events_of_the_context_that_did_them(core: JournalCore) -> None:
    await core.space("r", "c1", "create", {"id": "s", **FACTS}, {})
    await core.space("r", "c2", "set", {"space_id": "s", "key": "k", "value": 1}, {})
    await core.space("r", "c2", "get", {"space_id": "s", "key": "k"}, {})
    with pytest.raises(TraceError):
        await core.space("r", "c2", "set", {"space_id": "t", "key": "k", "value": 1}, {})
    assert [(seq, type, who) for seq, type, who, _ in await told(core)] == [
        (1, "space.created", "c1"),
        (2, "space.set", "c2"),
    ]


async def test_runs_do_not_share_spaces(core: JournalCore) -> None:
    await core.space("r1", "c", "create", {"id": "s", **FACTS}, {})
    await core.space("r2", "c", "create", {"id": "s", **FACTS}, {})
    await core.space("r1", "c", "set", {"space_id": "s", "key": "k", "value": 1}, {})
    assert await core.space("r2", "c", "keys", {"space_id": "s"}, {}) == []
    assert len(await told(core, "r2")) == 1


async def test_the_order_of_events_is_the_order_of_operations(core: JournalCore) -> None:
    await core.space("r", "c", "create", {"id": "s", **FACTS}, {})

    async def write(n: int) -> Any:
        await core.space("r", f"c{n}", "set", {"space_id": "s", "key": "last", "value": n}, {})
        counts = {"space_id": "s", "key": "n", "by": 1}
        return await core.space("r", f"c{n}", "increment", counts, {})

    sums = await asyncio.gather(*(write(n) for n in range(50)))
    assert sorted(sums) == list(range(1, 51))
    events = await told(core)
    assert [data["value"] for *_, data in events if data.get("key") == "n"] == list(range(1, 51))
    lasts = [data["value"] for *_, data in events if data.get("key") == "last"]
    kept = await core.space("r", "c", "get", {"space_id": "s", "key": "last"}, {})
    assert kept == (True, lasts[-1])
    assert sorted(lasts) == list(range(50))


async def test_an_operation_waits_for_what_was_recorded_before_it(
    core: JournalCore, make_sender: Any
) -> None:
    sender = make_sender(core.handle, max_delay=30.0)
    for n in range(10):
        sender.emit("r", "trace.log", "c", {"n": n})
    asked = asyncio.ensure_future(
        core.space("r", "c", "create", {"id": "s", **FACTS}, sender.mark())
    )
    await asyncio.sleep(0)
    assert not asked.done()
    sender.hasten()
    await asked
    page = await core.read("r")
    assert [entry[1] for entry in page.entries] == ["trace.log"] * 10 + ["space.created"]


async def test_an_ended_run_s_spaces_are_closed(core: JournalCore) -> None:
    await core.space("r", "c", "create", {"id": "s", **FACTS}, {})
    await core.end_run("r", {}, ("r", "run.ended", "r", 1.0, b"{}"))
    with pytest.raises(TraceError, match="has ended"):
        await core.space("r", "c", "set", {"space_id": "s", "key": "k", "value": 1}, {})


async def test_spaces_are_read_back_from_the_store(tmp_path: Any) -> None:
    path = tmp_path / "journal.db"
    first = JournalCore(SqliteStore(path))
    await first.space("r", "c", "create", {"id": "s", **FACTS}, {})
    await first.space("r", "c", "set", {"space_id": "s", "key": "k", "value": {"a": 1}}, {})
    await first.space("r", "c", "increment", {"space_id": "s", "key": "n", "by": 2}, {})
    await first.aclose()
    second = JournalCore(SqliteStore(path))
    try:
        counts = {"space_id": "s", "key": "n", "by": 1}
        both = [second.space("r", "c", "increment", counts, {}) for _ in range(2)]
        assert sorted(await asyncio.gather(*both)) == [3, 4]
        assert await second.space("r", "c", "get", {"space_id": "s", "key": "k"}, {}) == (
            True,
            {"a": 1},
        )
        assert [seq for seq, *_ in await told(second)] == [1, 2, 3, 4, 5]
    finally:
        await second.aclose()
