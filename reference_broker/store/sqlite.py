"""The store in one SQLite file: write-ahead log, synchronous=FULL, one transaction a group.

A group is durable when its transaction is committed; a tail that a crash tore off is dropped by SQLite (HA-SS-05).
Rows of `message` are read back in the order of their ids, which is the order of the queues (ORD-06).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from reference_broker.broker.envelope import Envelope
from reference_broker.broker.records import StoredMessage, StoredState

from .group import Group

APPLICATION = 0x4A4D5343
"""Marks the file as ours ("JMSC")."""
SCHEMA = 1
"""Version of the tables."""
FILE = "messages.sqlite"

_TABLES = """
CREATE TABLE message (id INTEGER PRIMARY KEY, marked INTEGER NOT NULL, envelope BLOB NOT NULL);
CREATE TABLE producer (name TEXT PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE committed (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE activation (epoch INTEGER NOT NULL);
INSERT INTO activation VALUES (0);
"""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


class StoreError(Exception):
    """The store cannot be used; the text says which file, what is wrong and what to do."""


class SqliteStore:
    """The store in a directory; open it only while holding the directory's lock (HA-SS-02)."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self._connection: sqlite3.Connection | None = None

    def activate(self) -> tuple[int, StoredState]:
        """Open, count the activation (D-10) and load; raises StoreError."""
        try:
            self._connection = connection = sqlite3.connect(
                self._file, isolation_level=None, check_same_thread=False, cached_statements=32
            )
            connection.execute("PRAGMA busy_timeout=2000")
            _prepare(connection)
            connection.execute("UPDATE activation SET epoch = epoch + 1")
            (epoch,) = connection.execute("SELECT epoch FROM activation").fetchone()
            return int(epoch), _load(connection)
        except (sqlite3.Error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.close()
            raise StoreError(
                f"{self._file}: {error}; it is damaged, not ours, or not writable. "
                "Restore it from a copy, or move it away to start with an empty store"
            ) from error

    def write(self, group: Group) -> None:
        """Make a group durable, all of it or nothing; raises StoreError."""
        connection = self._connection
        assert connection is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            _write_messages(connection, group)
            _write_memory(connection, group)
            connection.execute("COMMIT")
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise StoreError(f"{self._file}: {error}; what is not written is not confirmed") from error

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _prepare(connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if objects and application != APPLICATION:
        raise sqlite3.DatabaseError("another program's database")
    if objects and schema != SCHEMA:
        raise sqlite3.DatabaseError(f"written by another version (schema {schema}, this is {SCHEMA})")
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError(f"its file system has no write-ahead log (journal mode {mode})")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA wal_autocheckpoint=4000")
    if not objects:
        connection.executescript(
            f"BEGIN; {_TABLES} PRAGMA application_id={APPLICATION}; PRAGMA user_version={SCHEMA}; COMMIT;"
        )


def _write_messages(connection: sqlite3.Connection, group: Group) -> None:
    puts, marks = group.puts, group.marks
    encode = _encoder.encode
    if puts:
        rows = [(number, number in marks, encode(envelope)) for number, envelope in puts.items()]
        connection.executemany("INSERT INTO message VALUES (?, ?, ?)", rows)
    if marks:
        later = [(number,) for number in marks if number not in puts]
        connection.executemany("UPDATE message SET marked = 1 WHERE id = ?", later)
    if group.removes:
        connection.executemany("DELETE FROM message WHERE id = ?", [(number,) for number in group.removes])


def _write_memory(connection: sqlite3.Connection, group: Group) -> None:
    connection.executemany("REPLACE INTO producer VALUES (?, ?)", list(group.producers.items()))
    connection.executemany("DELETE FROM producer WHERE name = ?", [(name,) for name in group.retired])
    connection.executemany("REPLACE INTO committed (name) VALUES (?)", [(name,) for name in group.settled])
    connection.executemany("DELETE FROM committed WHERE name = ?", [(name,) for name in group.forgotten])


def _load(connection: sqlite3.Connection) -> StoredState:
    rows = connection.execute("SELECT id, marked, envelope FROM message ORDER BY id")
    return StoredState(
        messages=tuple(StoredMessage(number, bool(marked), _decoder.decode(text)) for number, marked, text in rows),
        producers=tuple(connection.execute("SELECT name, sequence FROM producer")),
        committed=tuple(name for (name,) in connection.execute("SELECT name FROM committed ORDER BY number")),
    )
