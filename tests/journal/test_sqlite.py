from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from noetic_ray.errors import ConfigError
from noetic_ray.items import item_json, user_message
from noetic_ray.journal.events import Row, wrap_item
from noetic_ray.journal.sqlite import SqliteStore, open_store, store_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


def _row(
    seq: int, type_: str = "t", data: bytes = b"{}", run: str = "r", context: str = "c"
) -> Row:
    return (run, seq, type_, context, 100.0 + seq, data)


def _code(caught: pytest.ExceptionInfo[ConfigError]) -> str:
    assert caught.value.hint
    return caught.value.code


def _finished_run(store: SqliteStore, run: str = "r") -> None:
    used = b'{"tokens":{"input":2,"output":1,"total":3,"cached":1},"cost":0.5}'
    rows = [
        _row(1, "run.started", b'{"step":"main"}', run, run),
        _row(2, "context.started", b'{"step":"main"}', run, run),
        _row(3, "item.appended", wrap_item(item_json(user_message("hi"))), run, run),
        _row(4, "usage.updated", used, run, run),
        _row(5, "context.ended", b'{"status":"completed"}', run, run),
        _row(6, "run.ended", b'{"status":"completed"}', run, run),
    ]
    store.write(rows)


def test_events_come_back_as_they_were(store: SqliteStore) -> None:
    text = '{"text":"Grüße \\u0000 🎈"}'.encode()
    store.write([_row(1), _row(2, "u", text), _row(1, run="other")])
    assert store.events("r") == [(1, "t", "c", 101.0, b"{}"), (2, "u", "c", 102.0, text)]
    assert store.events("r", since=1, limit=1) == [(2, "u", "c", 102.0, text)]
    assert store.events("nobody") == []
    assert store.extent("r") == (2, 0)
    assert store.extent("nobody") == (0, 0)


def test_a_transaction_is_all_or_nothing(store: SqliteStore) -> None:
    store.write([_row(1)])
    with pytest.raises(ConfigError) as caught:
        store.write([_row(2), _row(1)])
    assert _code(caught) == "STORE_CONFLICT"
    assert store.extent("r").last_seq == 1
    store.write([_row(2)])
    assert store.extent("r").last_seq == 2


def test_items_are_found_per_context(store: SqliteStore) -> None:
    raws = [item_json(user_message(str(n))) for n in range(6)]
    store.write(
        [
            _row(n + 1, "item.appended", wrap_item(raw), context="ab"[n % 2])
            for n, raw in enumerate(raws)
        ]
    )
    assert store.items("r", "a") == raws[::2]
    assert store.items("r", "b", since=1, limit=1) == [raws[3]]
    assert store.item_count("r", "a") == 3
    assert store.item_count("r", "nobody") == 0


def test_runs_are_listed_finished_or_not(store: SqliteStore) -> None:
    _finished_run(store, "b")
    store.write([_row(1, "run.started", b'{"step":"x"}', "a", "a")])
    first, second = store.runs()
    assert (first.id, first.status, first.step, first.ended_at) == ("a", "running", "x", None)
    assert (second.id, second.status, second.step, second.ended_at) == (
        "b",
        "completed",
        "main",
        106.0,
    )
    assert (second.contexts, second.tokens.total, second.tokens.cached, second.cost) == (
        1,
        3,
        1,
        0.5,
    )


def test_a_run_that_goes_on_is_running_again(store: SqliteStore) -> None:
    _finished_run(store)
    assert store.extent("r") == (6, 6)
    store.write([_row(7, "run.started", b"{}")])
    assert store.extent("r") == (7, 0)
    assert [run.status for run in store.runs()] == ["running"]
    store.write([_row(8, "run.ended", b'{"status":"failed"}')])
    assert store.extent("r") == (8, 8)
    assert [run.status for run in store.runs()] == ["failed"]


def test_another_process_reads_a_finished_run(path: Path) -> None:
    writing = SqliteStore(path)
    _finished_run(writing)
    code = (
        "import sys; from noetic_ray.journal.sqlite import SqliteStore;"
        "s = SqliteStore(sys.argv[1]);"
        "print([r.status for r in s.runs()], len(s.events('r')), len(s.items('r', 'r'))); s.close()"
    )
    for _ in range(2):  # while it is written, then when nobody has it open
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == "['completed'] 6 1\n"
        writing.close()


def test_events_survive_a_writer_that_is_killed(path: Path) -> None:
    code = (
        "import os, sys; from noetic_ray.journal.sqlite import SqliteStore;"
        "s = SqliteStore(sys.argv[1]); s.write([('r', 1, 't', 'c', 1.0, b'{}')]);"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    assert done.returncode == -9
    store = SqliteStore(path)
    assert store.events("r") == [(1, "t", "c", 1.0, b"{}")]
    store.close()
    assert [each.name for each in path.parent.iterdir()] == ["runs.db"]


def test_the_last_user_leaves_one_file(path: Path) -> None:
    one, two = SqliteStore(path), SqliteStore(path)
    _finished_run(one)
    assert two.runs()
    one.close()
    assert two.runs()
    two.close()
    assert [each.name for each in path.parent.iterdir()] == ["runs.db"]
    two.close()


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    store.close()
    for use in (store.runs, lambda: store.write([_row(1)])):
        with pytest.raises(ConfigError) as caught:
            use()
        assert _code(caught) == "STORE_CLOSED"


def test_two_stores_may_make_the_same_file_at_once(path: Path) -> None:
    code = (
        "import sys; from noetic_ray.journal.sqlite import SqliteStore;"
        "s = SqliteStore(sys.argv[1]); s.write([(sys.argv[2], 1, 't', 'c', 1.0, b'{}')]); s.close()"
    )
    makers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)]) for n in range(4)]
    assert [maker.wait(60) for maker in makers] == [0] * 4
    store = SqliteStore(path)
    assert [run.id for run in store.runs()] == ["0", "1", "2", "3"]
    store.close()


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("I am a text. " * 1_000)
    with pytest.raises(ConfigError, match="not a database") as caught:
        SqliteStore(path)
    assert _code(caught) == "STORE_UNREADABLE"
    assert path.read_text().startswith("I am a text.")


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program") as caught:
        SqliteStore(path)
    assert _code(caught) == "STORE_UNREADABLE"
    assert path.read_bytes() == before


def test_a_newer_schema(path: Path) -> None:
    SqliteStore(path).close()
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(ConfigError, match="version 99") as caught:
        SqliteStore(path)
    assert _code(caught) == "STORE_SCHEMA_MISMATCH"


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"runs\.db") as caught:
        SqliteStore(tmp_path / "no" / "runs.db")
    assert _code(caught) == "STORE_UNREADABLE"


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SqliteStore(tmp_path)
    assert _code(caught) == "STORE_UNREADABLE"


def test_a_damaged_file(path: Path) -> None:
    store = SqliteStore(path)
    store.write([_row(n, data=b'"%s"' % (b"x" * 3_000)) for n in range(1, 200)])
    store.close()
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xff" * 200_000)

    def use() -> None:
        with closing(SqliteStore(path)) as damaged:
            damaged.events("r")

    with pytest.raises(ConfigError) as caught:
        use()
    assert _code(caught) == "STORE_UNREADABLE"


def test_a_file_made_before_it_had_values(path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as earlier:
        earlier.execute("DROP TABLE layer_values")
        earlier.execute("PRAGMA user_version = 1")
    with pytest.raises(ConfigError, match="version 1") as caught:
        SqliteStore(path)
    assert _code(caught) == "STORE_SCHEMA_MISMATCH"


def _execute(store: SqliteStore, statement: str) -> None:
    assert store._writing is not None
    store._writing.execute(statement)


def test_a_full_disk(store: SqliteStore) -> None:
    _execute(store, "PRAGMA max_page_count = 20")
    big = b'"%s"' % (b"x" * 200_000)
    with pytest.raises(ConfigError, match="full") as caught:
        store.write([_row(1), _row(2, data=big)])
    assert _code(caught) == "STORE_FULL"
    assert store.events("r") == []
    _execute(store, "PRAGMA max_page_count = 100000")
    store.write([_row(1), _row(2, data=big)])
    assert store.extent("r").last_seq == 2


def test_a_read_only_disk(store: SqliteStore) -> None:
    _execute(store, "PRAGMA query_only = 1")
    with pytest.raises(ConfigError, match="written") as caught:
        store.write([_row(1)])
    assert _code(caught) == "STORE_READ_ONLY"


def test_a_locked_file(path: Path, store: SqliteStore) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    _execute(store, "PRAGMA busy_timeout = 10")
    with pytest.raises(ConfigError) as caught:
        store.write([_row(1)])
    assert _code(caught) == "STORE_BUSY"
    other.execute("ROLLBACK")
    other.close()
    store.write([_row(1)])


# Values beside the events.


def test_values_are_written_read_and_removed(store: SqliteStore) -> None:
    store.save_values({"a": b"1", "b": b"\x00\xff", "c": b""})
    assert store.load_values(["c", "b", "unknown"]) == {"b": b"\x00\xff", "c": b""}
    store.save_values({"a": b"2", "b": None, "unknown": None})
    assert store.load_values("abc") == {"a": b"2", "c": b""}
    assert store.value_keys("") == ["a", "c"]
    assert store.load_values([]) == {}
    assert store.runs() == []


def test_keys_with_a_prefix_come_from_the_index_alone(store: SqliteStore) -> None:
    store.save_values({f"{a}/{n}": b"1" for a in "abc" for n in range(3)})
    assert store.value_keys("b/") == ["b/0", "b/1", "b/2"]
    assert store._reading is not None
    plan = store._reading.execute(
        "EXPLAIN QUERY PLAN SELECT key FROM layer_values WHERE key >= ? ORDER BY key", ("b/",)
    ).fetchall()
    assert [row[3].split(" USING ")[1].split(" INDEX ")[0] for row in plan] == ["COVERING"]


def test_values_survive_a_writer_that_is_killed(path: Path) -> None:
    code = (
        "import os, sys; from noetic_ray.journal.sqlite import SqliteStore;"
        "s = SqliteStore(sys.argv[1]); s.save_values({'a': b'1', 'b': b'x' * 5_000_000});"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    assert done.returncode == -9
    with closing(SqliteStore(path)) as store:
        assert store.load_values("ab") == {"a": b"1", "b": b"x" * 5_000_000}


def test_a_save_is_all_or_nothing_on_a_full_disk(store: SqliteStore) -> None:
    store.save_values({"old": b"1"})
    _execute(store, "PRAGMA max_page_count = 20")
    changes: dict[str, bytes | None] = {"old": None, "a": b"1", "large": b"x" * 200_000}
    with pytest.raises(ConfigError, match="full") as caught:
        store.save_values(changes)
    assert _code(caught) == "STORE_FULL"
    assert store.load_values(list(changes)) == {"old": b"1"}
    _execute(store, "PRAGMA max_page_count = 100000")
    store.save_values(changes)
    assert store.value_keys("") == ["a", "large"]


def test_values_and_a_read_only_disk(store: SqliteStore) -> None:
    store.save_values({"a": b"1"})
    _execute(store, "PRAGMA query_only = 1")
    with pytest.raises(ConfigError, match="written") as caught:
        store.save_values({"a": None})
    assert _code(caught) == "STORE_READ_ONLY"
    assert store.load_values("a") == {"a": b"1"}


def test_values_of_a_damaged_file(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.save_values({f"k{n:04}": b"x" * 3_000 for n in range(200)})
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xff" * 200_000)

    def load() -> None:
        with closing(SqliteStore(path)) as damaged:
            damaged.load_values([f"k{n:04}" for n in range(200)])

    with pytest.raises(ConfigError) as caught:
        load()
    assert _code(caught) == "STORE_UNREADABLE"


def test_values_and_a_locked_file(path: Path, store: SqliteStore) -> None:
    _execute(store, "PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigError) as caught:
            store.save_values({"a": b"1"})
        assert _code(caught) == "STORE_BUSY"
        assert store.load_values("a") == {}
    store.save_values({"a": b"1"})
    assert store.load_values("a") == {"a": b"1"}


def test_values_of_a_closed_store(store: SqliteStore) -> None:
    store.close()
    uses: list[Callable[[], object]] = [
        lambda: store.load_values("a"),
        lambda: store.save_values({"a": b"1"}),
        lambda: store.value_keys(""),
    ]
    for use in uses:
        with pytest.raises(ConfigError) as caught:
            use()
        assert _code(caught) == "STORE_CLOSED"


def test_a_load_sees_all_of_a_save_or_nothing_of_it(path: Path, store: SqliteStore) -> None:
    names = [f"k{n}" for n in range(50)]
    seen: set[frozenset[bytes]] = set()
    store.save_values(dict.fromkeys(names, b"0"))

    def save_often() -> None:
        for n in range(1, 100):
            store.save_values(dict.fromkeys(names, b"%d" % n))

    with closing(SqliteStore(path)) as other, ThreadPoolExecutor(1) as pool:
        saving = pool.submit(save_often)
        while not saving.done():
            seen.add(frozenset(other.load_values(names).values()))
        saving.result()
        assert all(len(values) == 1 for values in seen)
        assert other.load_values(names) == dict.fromkeys(names, b"99")


def test_store_names_are_paths_or_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert store_path("a.db") == str(tmp_path / "a.db")
    assert store_path(tmp_path / "a.db") == str(tmp_path / "a.db")
    assert store_path("sqlite:///a.db") == str(tmp_path / "a.db")
    assert store_path("sqlite:////var/a.db") == "/var/a.db"
    assert store_path("~/a.db") == "/home/somebody/a.db"
    opened = open_store("sqlite:///a.db")
    assert opened.path == tmp_path / "a.db"
    opened.close()


@pytest.mark.parametrize("where", ["redis://x/y", "sqlite://a.db", "sqlite:///", ""])
def test_other_stores_are_refused(where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_path(where)
    assert _code(caught) == "STORE_UNSUPPORTED"
