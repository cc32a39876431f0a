"""The gate: order, group commit, and that nothing leaves before it is durable."""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue
from threading import Event

import pytest

from reference_broker.broker.commands import Done
from reference_broker.broker.effects import Effects, Output
from reference_broker.broker.envelope import Address, Envelope
from reference_broker.broker.records import Put, Record, Remove
from reference_broker.store.gate import Gate
from reference_broker.store.group import Group
from reference_broker.store.sqlite import StoreError

WAIT = 10.0


class SlowDisk:
    """Writes one group for each `allow`; fails if told to."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.started = Event()
        self._allowed: Queue[bool] = Queue()

    def allow(self, *, fail: bool = False) -> None:
        self._allowed.put(fail)

    def write(self, group: Group) -> None:
        self.started.set()
        if self._allowed.get(timeout=WAIT):
            raise StoreError("disk full")
        self.groups.append(group)


class Shell:
    def __init__(self, *, early: bool = False) -> None:
        self.disk = SlowDisk()
        self.left: list[int] = []
        self.failures: list[StoreError] = []
        self._news: Queue[Callable[[], None]] = Queue()
        self.gate = Gate(self.disk, self._release, self._news.put, self.failures.append, early=early)

    def _release(self, outputs: list[Output]) -> None:
        self.left += [output.what.request for output in outputs if isinstance(output.what, Done)]

    def submit(self, answer: int, *records: Record) -> None:
        self.gate.submit(Effects(list(records), [Output(1, Done(request=answer))]))

    def write_one(self, *, fail: bool = False) -> None:
        self.disk.allow(fail=fail)
        self._news.get(timeout=WAIT)()


@pytest.fixture
def shell():
    made = Shell()
    yield made
    for _ in range(3):
        made.disk.allow()
    made.gate.close()


def put(number: int) -> Put:
    return Put(number, Envelope(Address("q")))


def test_outputs_without_records_pass_at_once(shell: Shell) -> None:
    shell.submit(1)
    assert shell.left == [1]


def test_nothing_leaves_before_its_group_is_written_and_all_in_order(shell: Shell) -> None:
    shell.submit(1, put(1))
    shell.submit(2)
    shell.submit(3, put(2))
    shell.submit(4, put(3))
    assert shell.disk.started.wait(WAIT)
    assert shell.left == []
    shell.write_one()
    assert shell.left == [1]
    shell.write_one()
    assert shell.left == [1, 2, 3, 4]
    assert [sorted(group.puts) for group in shell.disk.groups] == [[1], [2, 3]]


def test_what_was_undone_before_its_group_was_written_needs_no_write(shell: Shell) -> None:
    shell.submit(1, put(1))
    shell.submit(2, put(2))
    shell.submit(3, Remove(2))
    shell.write_one()
    assert shell.left == [1, 2, 3]
    assert [sorted(group.puts) for group in shell.disk.groups] == [[1]]


def test_after_a_failed_write_nothing_leaves_any_more(shell: Shell) -> None:
    shell.submit(1, put(1))
    shell.write_one(fail=True)
    shell.submit(2)
    assert [str(error) for error in shell.failures] == ["disk full"]
    assert shell.left == []


def test_drain_waits_for_what_is_due(shell: Shell) -> None:
    drained: list[bool] = []
    shell.submit(1, put(1))
    shell.gate.drain(lambda: drained.append(True))
    assert not drained
    shell.write_one()
    assert drained == [True]


def test_the_defect_confirm_before_commit_lets_answers_out_early() -> None:
    shell = Shell(early=True)
    shell.submit(1, put(1))
    assert shell.left == [1]
    assert not shell.disk.groups
    shell.write_one()
    shell.gate.close()
