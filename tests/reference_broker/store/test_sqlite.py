"""The SQLite store: what was written is found, and what is not a store is said to be none."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from reference_broker.broker.envelope import Address, BodyKind, Envelope
from reference_broker.broker.records import Advance, Forget, Mark, Put, Remove, Retire, Settle, StoredMessage
from reference_broker.jms.conversion import JMSType
from reference_broker.store.group import Group
from reference_broker.store.sqlite import FILE, SqliteStore, StoreError

RICH = Envelope(
    Address("q"),
    message_id="ID:1",
    priority=7,
    reply_to=Address("r", temporary=True),
    properties={"n": (JMSType.LONG, 2**40), "f": (JMSType.FLOAT, 1.0), "z": (JMSType.NULL, None)},
    body_kind=BodyKind.TEXT,
    body=b"\x00\xff",
    headers={"x": "y"},
)


def group(*records: object) -> Group:
    made = Group()
    made.add(records)  # type: ignore[arg-type]
    return made


def written(directory: Path, *groups: Group) -> None:
    store = SqliteStore(directory)
    store.activate()
    for each in groups:
        store.write(each)
    store.close()


def test_everything_comes_back_in_order_and_the_epoch_counts(tmp_path: Path) -> None:
    written(
        tmp_path,
        group(Put(2, RICH), Put(1, RICH), Advance("p", 4), Settle("c/s/1")),
        group(Mark(1), Put(3, RICH), Advance("p", 5), Advance("old", 1), Settle("c/s/0")),
        group(Remove(2), Retire("old")),
    )
    epoch, state = SqliteStore(tmp_path).activate()
    assert epoch == 2
    assert state.messages == (StoredMessage(1, True, RICH), StoredMessage(3, False, RICH))
    assert state.producers == (("p", 5),)
    assert state.committed == ("c/s/1", "c/s/0")


def test_what_undoes_itself_is_not_written() -> None:
    undone = group(Put(1, RICH), Mark(1), Remove(1), Settle("t"), Forget("t"))
    assert (undone.puts, undone.marks, undone.removes, undone.settled) == ({}, set(), set(), {})
    assert len(group(Put(1, RICH), Remove(1))) == 0


def test_a_group_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.activate()
    store.write(group(Put(1, RICH)))
    with pytest.raises(StoreError, match="UNIQUE constraint"):
        store.write(group(Put(0, RICH), Put(1, RICH)))
    store.close()
    assert [found.id for found in SqliteStore(tmp_path).activate()[1].messages] == [1]


def test_a_torn_tail_of_the_log_is_ignored(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.activate()
    store.write(group(Put(1, RICH)))
    whole = (tmp_path / f"{FILE}-wal").read_bytes()
    store.write(group(Put(2, RICH)))
    torn = (tmp_path / f"{FILE}-wal").read_bytes()[: len(whole) + 100]
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / FILE).write_bytes((tmp_path / FILE).read_bytes())
    (copy / f"{FILE}-wal").write_bytes(torn)
    store.close()
    assert [found.id for found in SqliteStore(copy).activate()[1].messages] == [1]


def foreign(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def newer(file: Path) -> None:
    written(file.parent)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version=99")


def garbage(file: Path) -> None:
    file.write_bytes(b"no database at all" * 100)


def undecodable(file: Path) -> None:
    written(file.parent)
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO message VALUES (1, 0, x'00')")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (foreign, "another program's database"),
        (newer, "written by another version"),
        (garbage, "not a database"),
        (undecodable, "Expected"),
    ],
)
def test_what_is_no_store_of_ours_is_one_clear_error(tmp_path: Path, spoil, says: str) -> None:
    spoil(tmp_path / FILE)
    with pytest.raises(StoreError, match=says) as raised:
        SqliteStore(tmp_path).activate()
    assert str(tmp_path / FILE) in str(raised.value)


def test_a_directory_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open"):
        SqliteStore(tmp_path / "nowhere").activate()
