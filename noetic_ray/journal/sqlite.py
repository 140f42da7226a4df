"""A store in one SQLite file: write-ahead log, append-only events, values, one writer."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.errors import ConfigError
from noetic_ray.journal.events import (
    ITEM_APPENDED,
    RUN_ENDED,
    RUN_STARTED,
    Row,
    RunInfo,
    Stored,
    unwrap_item,
)
from noetic_ray.journal.fold import SUMMARY_TYPES, summarize
from noetic_ray.journal.store import CONFLICT, Extent
from noetic_ray.usage import TokenUsage

SCHEMA_VERSION = 2
#: "noet" in ASCII, in the header of every file of ours.
_APPLICATION_ID = 0x6E6F6574
_BUSY_SECONDS = 10.0

_SUMMARY_LIST = ", ".join(f"'{name}'" for name in sorted(SUMMARY_TYPES))
# Values may be large: with rowids the index that finds keys has none of them in it.
_SCHEMA = f"""
CREATE TABLE events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    context_id TEXT NOT NULL,
    time REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX items ON events (run_id, context_id, seq) WHERE type = '{ITEM_APPENDED}';
CREATE INDEX summaries ON events (run_id, type, seq) WHERE type IN ({_SUMMARY_LIST});
CREATE TABLE ended_runs (
    run_id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    step TEXT,
    started_at REAL,
    ended_at REAL,
    contexts INTEGER NOT NULL,
    tokens TEXT NOT NULL,
    cost REAL NOT NULL
);
CREATE TABLE layer_values (key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""
# Named so that the planner may use the partial index, whose condition it must recognize.
_SUMMARY_ROWS = (
    "SELECT seq, type, context_id, time, CAST(data AS BLOB) FROM events"
    f" WHERE run_id = ? AND type IN ({_SUMMARY_LIST}) ORDER BY seq"
)
_LAST_OF_TYPE = (
    f"SELECT MAX(seq) FROM events WHERE run_id = ? AND type = ? AND type IN ({_SUMMARY_LIST})"
)
_FAILURES = {
    "SQLITE_NOTADB": ("STORE_UNREADABLE", "It is not an SQLite database: name another file."),
    "SQLITE_CORRUPT": ("STORE_UNREADABLE", "The file is damaged: restore a copy."),
    "SQLITE_CANTOPEN": ("STORE_UNREADABLE", "Check that its folder exists and may be used."),
    "SQLITE_PERM": ("STORE_UNREADABLE", "Check the permissions of the file and its folder."),
    "SQLITE_READONLY": ("STORE_READ_ONLY", "Check the permissions of the file and its disk."),
    "SQLITE_FULL": ("STORE_FULL", "Free some space; writing goes on by itself."),
    "SQLITE_BUSY": ("STORE_BUSY", "Another process keeps it locked: close that one."),
    "SQLITE_LOCKED": ("STORE_BUSY", "Another process keeps it locked: close that one."),
    "SQLITE_CONSTRAINT": (CONFLICT, "Two harnesses write the same run: stop one of them."),
}


class SqliteStore:
    """Events, and values beside them, in the file at `path`, made when it does not exist.

    Several processes may read while one writes. Raises ConfigError: `STORE_UNREADABLE`,
    `STORE_SCHEMA_MISMATCH` (another version wrote it), `STORE_READ_ONLY`, `STORE_FULL`,
    `STORE_BUSY`, `STORE_CONFLICT`, `STORE_FAILED`, `STORE_CLOSED`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().absolute()
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        try:
            with self._failing_as("opened"):
                self._writing = self._connect()
                self._prepare(self._writing)
                self._reading = self._connect()
        except BaseException:
            self.close()
            raise

    def write(self, rows: Sequence[Row]) -> None:
        """Add events in one transaction; durable on return. All or nothing."""
        with self._lock, self._failing_as("written"):
            connection = self._open(self._writing)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))", rows
                )
                for run_id, _, type_, *_ in rows:
                    if type_ == RUN_ENDED:
                        self._keep_summary(connection, run_id)
                    elif type_ == RUN_STARTED:
                        connection.execute("DELETE FROM ended_runs WHERE run_id = ?", (run_id,))

    def extent(self, run_id: str) -> Extent:
        """How far a run goes."""
        last = "SELECT MAX(seq) FROM events WHERE run_id = ?"
        with self._cursor() as connection:
            seq = connection.execute(last, (run_id,)).fetchone()[0] or 0
            ended = connection.execute(_LAST_OF_TYPE, (run_id, RUN_ENDED)).fetchone()[0] or 0
            started = connection.execute(_LAST_OF_TYPE, (run_id, RUN_STARTED)).fetchone()[0] or 0
        return Extent(seq, ended if ended > started else 0)

    def events(self, run_id: str, since: int = 0, limit: int = 1_000) -> list[Stored]:
        """Events of a run with a number above `since`, in order."""
        query = (
            "SELECT seq, type, context_id, time, CAST(data AS BLOB) FROM events"
            " WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        with self._cursor() as connection:
            return connection.execute(query, (run_id, since, limit)).fetchall()

    def items(
        self, run_id: str, context_id: str, since: int = 0, limit: int = 1_000
    ) -> list[bytes]:
        """JSON of the items of one context, without its first `since`."""
        query = (
            "SELECT CAST(data AS BLOB) FROM events WHERE run_id = ? AND context_id = ?"
            f" AND type = '{ITEM_APPENDED}' ORDER BY seq LIMIT ? OFFSET ?"
        )
        with self._cursor() as connection:
            rows = connection.execute(query, (run_id, context_id, limit, since)).fetchall()
        return [unwrap_item(data) for (data,) in rows]

    def item_count(self, run_id: str, context_id: str) -> int:
        """How many items of one context there are."""
        query = (
            "SELECT COUNT(*) FROM events WHERE run_id = ? AND context_id = ?"
            f" AND type = '{ITEM_APPENDED}'"
        )
        with self._cursor() as connection:
            return int(connection.execute(query, (run_id, context_id)).fetchone()[0])

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        # Jumps from run to run in the primary key instead of visiting every event.
        query = (
            "WITH RECURSIVE ids(id) AS (SELECT MIN(run_id) FROM events UNION ALL"
            " SELECT (SELECT MIN(run_id) FROM events WHERE run_id > id) FROM ids"
            " WHERE id IS NOT NULL) SELECT id FROM ids WHERE id IS NOT NULL"
        )
        with self._cursor() as connection:
            ended = {row[0]: _info(row) for row in connection.execute("SELECT * FROM ended_runs")}
            ids = [row[0] for row in connection.execute(query).fetchall()]
            runs = [
                ended.get(each)
                or summarize(each, connection.execute(_SUMMARY_ROWS, (each,)).fetchall())
                for each in ids
            ]
        return sorted(runs, key=lambda run: (run.started_at or 0.0, run.id))

    def load_values(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of those keys, beside the events, that exist, as they were at one time."""
        query = "SELECT value FROM layer_values WHERE key = ?"
        found: dict[str, bytes] = {}
        with self._cursor() as connection, connection:
            connection.execute("BEGIN")
            for key in keys:
                row = connection.execute(query, (key,)).fetchone()
                if row is not None:
                    found[key] = bytes(row[0])
        return found

    def save_values(self, changes: Mapping[str, bytes | None]) -> None:
        """Write keys, or remove those given as None, in one transaction; durable on return."""
        kept = [(key, value) for key, value in changes.items() if value is not None]
        gone = [(key,) for key, value in changes.items() if value is None]
        with self._lock, self._failing_as("written"):
            connection = self._open(self._writing)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT OR REPLACE INTO layer_values VALUES (?, ?)", kept)
                connection.executemany("DELETE FROM layer_values WHERE key = ?", gone)

    def value_keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""
        query = "SELECT key FROM layer_values WHERE key >= ? ORDER BY key"
        found: list[str] = []
        with self._cursor() as connection:
            for (key,) in connection.execute(query, (prefix,)):
                if not key.startswith(prefix):
                    break
                found.append(key)
        return found

    def close(self) -> None:
        """Let go of the file. The last one to close it removes its write-ahead log."""
        with self._read_lock:
            reading, self._reading = self._reading, None
            if reading is not None:
                reading.close()
        with self._lock:
            writing, self._writing = self._writing, None
            if writing is not None:
                writing.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check whose file it is; make the tables in an empty one."""
        if not self._known(connection):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                # Somebody else may have been faster.
                if not self._known(connection):
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _known(self, connection: sqlite3.Connection) -> bool:
        """Whether our tables are there. Raises when the file is somebody else's."""
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]
        if owner == _APPLICATION_ID:
            if version == SCHEMA_VERSION:
                return True
            raise ConfigError(
                "STORE_SCHEMA_MISMATCH",
                f"the store {self.path} has schema version {version}, this release reads"
                f" {SCHEMA_VERSION}.",
                "Use the release that wrote it, or another file.",
            )
        if owner or version or tables:
            raise ConfigError(
                "STORE_UNREADABLE",
                f"{self.path} is a database of another program.",
                "Name another file.",
            )
        return False

    def _keep_summary(self, connection: sqlite3.Connection, run_id: str) -> None:
        info = summarize(run_id, connection.execute(_SUMMARY_ROWS, (run_id,)).fetchall())
        tokens = info.tokens
        connection.execute(
            "INSERT OR REPLACE INTO ended_runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                info.id,
                info.status,
                info.step,
                info.started_at,
                info.ended_at,
                info.contexts,
                to_json_bytes(
                    [tokens.input, tokens.output, tokens.total, tokens.cached, tokens.unreported]
                ).decode(),
                info.cost,
            ),
        )

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock, self._failing_as("read"):
            yield self._open(self._reading)

    def _open(self, connection: sqlite3.Connection | None) -> sqlite3.Connection:
        if connection is None:
            raise ConfigError("STORE_CLOSED", f"the store {self.path} is closed.", "Open it again.")
        return connection

    @contextmanager
    def _failing_as(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", None) or type(error).__name__
            code, hint = _reason(name)
            raise ConfigError(
                code, f"the store {self.path} cannot be {doing}: {error} ({name}).", hint
            ) from error


def open_store(where: str | os.PathLike[str]) -> SqliteStore:
    """Open what `store=` names: a path, or `sqlite:///path` (four slashes when absolute)."""
    return SqliteStore(store_path(where))


def store_path(where: str | os.PathLike[str]) -> str:
    """The absolute path `store=` names, for a process with another working directory.

    Raises ConfigError `STORE_UNSUPPORTED` for other kinds of stores.
    """
    text = os.fspath(where)
    scheme, found, rest = text.partition("://")
    if found:
        if scheme != "sqlite" or not rest.startswith("/") or len(rest) < 2:
            raise ConfigError(
                "STORE_UNSUPPORTED",
                f"store={text!r} is not a kind of store known here.",
                "Give a file path or sqlite:///path.",
            )
        text = rest[1:]
    if not text:
        raise ConfigError("STORE_UNSUPPORTED", "store= is empty.", "Give a file path.")
    return str(Path(text).expanduser().absolute())


def _reason(name: str) -> tuple[str, str]:
    for known, reason in _FAILURES.items():
        if name.startswith(known):
            return reason
    return "STORE_FAILED", "Check the disk."


def _info(row: Iterable[Any]) -> RunInfo:
    run_id, status, step, started_at, ended_at, contexts, tokens, cost = row
    used = TokenUsage(*from_json(tokens))
    return RunInfo(run_id, status, step, started_at, ended_at, contexts, used, cost)
