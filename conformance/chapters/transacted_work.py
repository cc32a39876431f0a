"""A transacted session at work between two queues, and what must be true of its work as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from fixtures.recording import RecordedConnection, RecordedConsumer, RecordedProducer, RecordedSession
from fixtures.scene import Scene
from fixtures.waiting import await_quiet
from reference_broker.jms import (
    JMSException,
    Message,
    Queue,
    TransactionRolledBackException,
)

ACKNOWLEDGES = pytest.mark.needs("transacted-acknowledgement")
WORK = (
    pytest.param(2, 0, id="sends"),
    pytest.param(0, 2, id="receipts", marks=ACKNOWLEDGES),
    pytest.param(2, 2, id="both", marks=ACKNOWLEDGES),
)
"""How many messages a transaction sends and how many it receives."""

pytestmark = pytest.mark.needs("transactions")


@dataclass
class Worker:
    """A transacted session that receives from one queue and sends to another."""

    scene: Scene
    connection: RecordedConnection
    session: RecordedSession
    source: Queue
    target: Queue
    consumer: RecordedConsumer
    producer: RecordedProducer

    def send(self, count: int = 1) -> list[str]:
        """Send within the transaction; the uids."""
        sent = []
        for _ in range(count):
            message = self.scene.message()
            self.producer.send(message)
            sent.append(self.scene.uid(message))
        return sent

    def receive(self, count: int = 1) -> list[str]:
        """Receive within the transaction; the uids."""
        return uids_of(self.scene.take(self.consumer, count))


def worker(scene: Scene, connection: RecordedConnection | None = None) -> Worker:
    """A worker of the scene's client, or of another one."""
    connection = connection or scene.connect()
    session = connection.create_session(True)
    source, target = scene.queue("source"), scene.queue("target")
    return Worker(
        scene, connection, session, source, target, session.create_consumer(source), session.create_producer(target)
    )


def uids_of(messages: Sequence[Message]) -> list[str]:
    """The uids of these messages, in order."""
    return [Scene.uid(message) for message in messages]


def assert_flagged(scene: Scene, messages: Sequence[Message]) -> None:
    """Received in a transaction that was undone: redelivered, as far as a new broker can remember that (D-08)."""
    if scene.fault.code in {"none", "client-kill"} or scene.can("persistent-redelivered-flag"):
        unflagged = uids_of([message for message in messages if not message.redelivered])
        assert not unflagged, f"received in a transaction that was undone and come again unflagged: {unflagged}"


def assert_nothing_visible(work: Worker) -> None:
    """Nobody else sees anything that was sent and not committed."""
    what = f"a message of a transaction that was not committed is visible on {work.target.name}"
    await_quiet(work.scene.arrived(work.target), what, work.scene.patience.quiet)


def assert_undone(work: Worker, in_source: Sequence[str], received: int, in_target: Sequence[str] = ()) -> None:
    """The transaction has left no trace: all that it received is back, flagged, and nothing that it sent is there."""
    visible = uids_of(work.scene.drain(work.target))
    assert visible == list(in_target), f"the transaction was undone; {list(in_target)} may be visible, {visible} is"
    back = work.scene.drain(work.source)
    assert uids_of(back) == list(in_source), (
        f"the transaction was undone, so {list(in_source)} must be on the queue; {uids_of(back)} are"
    )
    assert_flagged(work.scene, back[:received])


def assert_report_is_true(outcome: object, committed: bool) -> None:
    """What commit() said, against what the broker has (D-03)."""
    if isinstance(outcome, TransactionRolledBackException):
        assert not committed, f"commit() claims a rollback ({outcome}) of a transaction that took place"
    elif isinstance(outcome, JMSException):
        assert outcome.outcome_unknown, f"commit() raised {outcome!r}, which does not say that the outcome is unknown"
    else:
        assert outcome is None, f"commit() raised {outcome!r}, which is no JMSException"
        assert committed, "commit() returned normally, and the transaction did not take place"


# -- undisturbed ---------------------------------------------------------------------------------------------
