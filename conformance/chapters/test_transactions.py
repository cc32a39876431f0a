"""TX: local transactions, across a failure.

A transaction ends in one of two ways, with all its sends and all its receipts alike. A failure that takes the broker's
session takes the transaction with it: it can only be rolled back, and commit() must say so (TX-03). Only one moment is
in doubt, when the failure falls into the commit itself. Then "rolled back" is a claim like "committed", and wrong
if the transaction took place: who does not know must say that (TX-09, D-03).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from fixtures.client_process import Step
from fixtures.recording import RecordedConnection, RecordedConsumer, RecordedProducer, RecordedSession
from fixtures.scene import Scene
from fixtures.waiting import await_condition, await_quiet
from reference_broker.jms import (
    AcknowledgeMode,
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


@pytest.mark.requirement("TX-01", faults=("none",), profiles=("RC", "NF"))
@ACKNOWLEDGES
def test_commit_takes_effect_as_a_whole(scene: Scene) -> None:
    """Nothing shows before commit(); all of it is final afterwards, and the next transaction begins by itself."""
    work = worker(scene)
    given = scene.send(work.source, 3)
    received = work.receive(2)
    sent = work.send(2)
    await_quiet(
        scene.arrived(work.target), "a message is visible before its transaction is committed", scene.patience.quiet
    )

    work.session.commit()

    work.receive(1)
    work.send(1)
    work.session.rollback()
    work.session.close()
    assert received == given[:2]
    assert_undone(work, given[2:], 1, in_target=sent)


@pytest.mark.requirement("TX-01", faults=("none",), profiles=("RC", "NF"))
@ACKNOWLEDGES
def test_rollback_undoes_and_the_next_transaction_begins(scene: Scene) -> None:
    """What was received comes again to the same session, flagged; what was sent is gone; the next commit is whole."""
    work = worker(scene)
    given = scene.send(work.source, 2)
    work.receive(2)
    work.send(2)

    work.session.rollback()

    again = scene.take(work.consumer, 2)
    assert uids_of(again) == given, f"rollback() gives back {given}; {uids_of(again)} came"
    assert_flagged(scene, again)
    sent = work.send()
    work.session.commit()
    work.session.close()
    assert_undone(work, [], 0, in_target=sent)


# -- the transaction was open when the broker died -----------------------------------------------------------


@pytest.mark.requirement("TX-02", "TX-03", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.parametrize(("sends", "receipts"), WORK)
def test_commit_after_failover_raises_and_undoes(scene: Scene, sends: int, receipts: int) -> None:
    """The transaction went with its broker: commit() raises, its sends never appear, its receipts come again."""
    work = worker(scene)
    given = scene.send(work.source, 3)
    work.receive(receipts)
    work.send(sends)

    scene.fail_over(work.connection)

    commit = scene.call(work.session.commit, "commit() of a transaction that the failure has undone")
    commit.error(TransactionRolledBackException if scene.recreates else JMSException)
    scene.call(work.session.close, "close of the session").result()
    assert_undone(work, given, receipts)


@pytest.mark.requirement("TX-04", faults=("kill-live",), profiles=("RC",))
def test_commit_without_work_succeeds_after_failover(scene: Scene) -> None:
    """There is nothing to undo: commit() returns, and the session goes on."""
    work = worker(scene)
    before = work.send()
    work.session.commit()

    scene.fail_over(work.connection)

    work.session.commit()
    after = work.send()
    work.session.commit()
    work.session.close()
    assert_undone(work, [], 0, in_target=before + after)


@pytest.mark.requirement("TX-05", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize(("sends", "receipts"), WORK)
def test_what_is_added_after_the_failover_shares_the_fate(scene: Scene, sends: int, receipts: int) -> None:
    """A transaction begun before the failure is not committed by its second half."""
    work = worker(scene)
    given = scene.send(work.source, 4)
    work.receive(receipts)
    work.send(sends)

    scene.fail_over(work.connection)

    work.receive(receipts)
    work.send(2)
    scene.call(work.session.commit, "commit() with work from before and after the failover").error(
        TransactionRolledBackException
    )
    work.session.close()
    assert_undone(work, given, receipts)


@pytest.mark.requirement("TX-06", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize(("sends", "receipts"), WORK)
def test_the_repeated_transaction_commits(scene: Scene, sends: int, receipts: int) -> None:
    """After the exception no rollback() is needed: the same work again is committed, once."""
    work = worker(scene)
    given = scene.send(work.source, 3)
    work.receive(receipts)
    work.send(sends)
    scene.fail_over(work.connection)
    scene.call(work.session.commit, "commit() after the failover").error(TransactionRolledBackException)

    again = work.receive(receipts)
    sent = work.send(sends)
    work.session.commit()

    work.session.close()
    assert again == given[:receipts], f"the repeated transaction must receive {given[:receipts]}, not {again}"
    assert_undone(work, given[receipts:], 0, in_target=sent)


@pytest.mark.requirement("TX-07", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize("received_since", [0, 3], ids=lambda count: f"{count}-received-since")
@ACKNOWLEDGES
def test_rollback_after_failover(scene: Scene, received_since: int) -> None:
    """rollback() does not raise; the session is clean and begins with what the new broker sends first."""
    work = worker(scene)
    given = scene.send(work.source, 4)
    work.receive(2)
    work.send(2)
    scene.fail_over(work.connection)
    work.receive(received_since)

    work.session.rollback()

    again = scene.take(work.consumer, 4)
    assert uids_of(again) == given, f"after rollback() {given} must come; {uids_of(again)} came"
    assert_flagged(scene, again[: max(2, received_since)])
    sent = work.send()
    work.session.commit()
    work.session.close()
    assert_undone(work, [], 0, in_target=sent)


@pytest.mark.requirement("TX-12", faults=("kill-live",), profiles=("RC",))
def test_a_session_made_anew_is_transacted(scene: Scene) -> None:
    """The first send on the new broker belongs to a transaction: nobody sees it before commit()."""
    work = worker(scene)
    work.session.commit()
    scene.fail_over(work.connection)

    sent = work.send(2)

    await_quiet(
        scene.arrived(work.target), "a message is visible before its transaction is committed", scene.patience.quiet
    )
    work.session.commit()
    work.session.close()
    assert_undone(work, [], 0, in_target=sent)


@pytest.mark.requirement("TX-12", faults=("kill-live",), profiles=("RC",))
@ACKNOWLEDGES
def test_receipts_of_a_session_made_anew_wait_for_commit(scene: Scene) -> None:
    """A message received on the new broker is not acknowledged by itself: without commit() it comes again."""
    work = worker(scene)
    given = scene.send(work.source, 2)
    scene.fail_over(work.connection)

    work.receive(1)
    work.session.close()

    assert_undone(work, given, 1)


@pytest.mark.requirement("TX-13", faults=("kill-live",), profiles=("RC", "NF"))
def test_unfinished_transactions_leave_nothing(scene: Scene) -> None:
    """Neither what was sent without a commit nor what was rolled back appears on the next broker."""
    work = worker(scene)
    work.send(3)
    work.session.rollback()
    work.send(3)

    scene.fail_over(work.connection)

    assert_nothing_visible(work)
    scene.call(work.session.close, "close of the session").result()
    assert_undone(work, [], 0)


@pytest.mark.requirement("TX-14", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize("before", [0, 2], ids=lambda count: f"{count}-sent-before")
def test_a_send_that_waits_out_the_outage_is_transacted(scene: Scene, before: int) -> None:
    """It is part of a transaction: of a new one, which commits, or of the one that the failure has undone."""
    work = worker(scene)
    work.send(before)

    with scene.outage(work.connection):
        sending = scene.call(work.send, "a send during the outage")
        await_quiet(lambda: not sending.pending, "the send ends while nobody serves", scene.patience.quiet)

    sent = sending.result()
    await_quiet(
        scene.arrived(work.target), "a message is visible before its transaction is committed", scene.patience.quiet
    )
    commit = scene.call(work.session.commit, "commit() after the outage")
    if before:
        commit.error(TransactionRolledBackException)
    else:
        commit.result()
    work.session.close()
    assert_undone(work, [], 0, in_target=[] if before else sent)


@pytest.mark.requirement("TX-18", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.parametrize("moment", ["after", "during"])
@ACKNOWLEDGES
def test_closing_a_dirty_session_rolls_back(scene: Scene, moment: str) -> None:
    """close() does not raise, after a failover or in its midst, and commits nothing."""
    work = worker(scene)
    given = scene.send(work.source, 3)
    work.receive(2)
    work.send(2)

    if moment == "after":
        scene.fail_over(work.connection)
        scene.call(work.session.close, "close() after the failure").result()
    else:
        scene.strike()
        scene.await_loss(work.connection)
        scene.call(work.session.close, "close() during the failover").result()
        scene.heal()

    assert_undone(work, given, 2)


@pytest.mark.requirement("TX-17", faults=("kill-live",), profiles=("RC",))
@ACKNOWLEDGES
def test_a_listener_whose_commit_raised_goes_on(scene: Scene) -> None:
    """It commits each message; the commit after the failure raises, and the same messages come again in order."""
    work = worker(scene)
    received: list[str] = []
    errors: list[TransactionRolledBackException] = []
    go_on = threading.Event()

    def on_message(message: Message) -> None:
        received.append(scene.uid(message))
        go_on.wait(scene.patience.failover + scene.patience.takeover)
        try:
            work.session.commit()
        except TransactionRolledBackException as error:
            errors.append(error)

    work.consumer.message_listener = on_message
    given = scene.send(work.source, 3)
    await_condition(lambda: len(received) >= 1, "the listener gets its first message", scene.patience.delivery)

    scene.fail_over(work.connection)
    go_on.set()

    await_condition(lambda: len(received) >= 4, "the listener goes on", scene.patience.delivery, lambda: received)
    work.session.close()
    assert len(errors) == 1, f"one commit() was undone by the failure; {len(errors)} raised"
    assert received == [given[0], *given], f"the listener must get {given[0]} again and then go on; it got {received}"
    assert_undone(work, [], 0)


# -- the failure falls into the commit -----------------------------------------------------------------------


@pytest.mark.requirement("TX-08", faults=("drop-reply",), profiles=("RC", "NF"))
def test_a_commit_whose_reply_is_lost_is_released(scene: Scene) -> None:
    """commit() waits for a reply that will never come: it must come back, without any time-out of the call."""
    work = worker(scene, scene.connect(call_timeout=None))
    sent = work.send()

    call = scene.interrupt(work.session.commit, "commit()", effect=scene.arrived(work.target))

    outcome = call.outcome(scene.patience.detection + scene.patience.failover)
    assert outcome is None or isinstance(outcome, JMSException), f"commit() raised {outcome!r}, no JMSException"
    scene.call(work.session.close, "close of the session").result()
    scene.drain(work.target)
    assert set(scene.journal.copies(work.target.name)) >= set(sent), "the commit had taken place before the failure"


@pytest.mark.requirement("TX-08", faults=("blackhole",), profiles=("RC", "NF"))
def test_a_commit_on_a_silent_link_is_released(scene: Scene) -> None:
    """The link falls silent with its sockets open: only heart-beats can tell, and they must."""
    work = worker(scene, scene.connect(call_timeout=None))
    work.send()

    scene.strike()
    call = scene.call(work.session.commit, "commit() on a silent link")
    if scene.recreates:
        scene.await_loss(work.connection)
        scene.heal()
        outcome = call.outcome(scene.patience.failover)
    else:
        outcome = call.outcome(scene.patience.detection)

    assert outcome is None or isinstance(outcome, JMSException), f"commit() raised {outcome!r}, no JMSException"


@pytest.mark.requirement("TX-09", faults=("drop-reply", "drop-req"), profiles=("RC", "NF"))
def test_an_interrupted_commit_is_reported_truly(scene: Scene) -> None:
    """As a success only if it took place, as rolled back only if it did not, else as unknown; whole in any case."""
    work = worker(scene)
    receipts = 2 if scene.can("transacted-acknowledgement") else 0
    given = scene.send(work.source, 3)
    work.receive(receipts)
    sent = work.send(2)

    call = scene.interrupt(work.session.commit, "commit()", effect=scene.arrived(work.target))

    outcome = call.outcome()
    scene.call(work.session.close, "close of the session").result()
    committed = _took_place(work, sent, given, receipts)
    assert_report_is_true(outcome, committed)
    assert committed or scene.fault.code == "drop-req", "the broker had processed the commit before the failure"


@pytest.mark.requirement("TX-10", faults=("drop-reply", "drop-req"), profiles=("RC",))
@pytest.mark.needs("commit-fate")
def test_the_fate_of_an_interrupted_commit_is_found_out(scene: Scene) -> None:
    """The client asks after the failover: commit() returns if it took place and says rolled back if it did not."""
    work = worker(scene)
    sent = work.send(2)

    call = scene.interrupt(work.session.commit, "commit()", effect=scene.arrived(work.target))

    if scene.fault.code == "drop-reply":
        call.result()
    else:
        call.error(TransactionRolledBackException)
    more = work.send()
    work.session.commit()
    work.session.close()
    scene.drain(work.target)
    visible = set(scene.journal.copies(work.target.name)) & {*sent, *more}
    due = {*sent, *more} if scene.fault.code == "drop-reply" else {*more}
    assert visible == due, f"{sorted(due)} were committed, {sorted(visible)} are visible"


INSTANTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""When to kill the broker, in parts of the time that an undisturbed commit takes."""


@pytest.mark.requirement("TX-16", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.parametrize("instant", INSTANTS, ids=lambda part: f"at-{part:g}")
def test_a_broker_killed_within_a_commit_has_all_or_nothing(scene: Scene, instant: float) -> None:
    """Whatever the instant: all sends and all receipts of the transaction took effect, or none did."""
    work = worker(scene)
    receipts = 10 if scene.can("transacted-acknowledgement") else 0
    given = scene.send(work.source, 2 * receipts)
    work.receive(receipts)
    work.send(20)
    undisturbed = scene.call(work.session.commit, "an undisturbed commit()")
    undisturbed.result()
    work.receive(receipts)
    sent = work.send(20)

    call = scene.call(work.session.commit, "commit()")
    due = instant * undisturbed.seconds
    await_condition(lambda: not call.pending or call.seconds >= due, "the instant comes", scene.patience.reply)
    scene.fail_over(work.connection)

    outcome = call.outcome()
    scene.call(work.session.close, "close of the session").result()
    assert_report_is_true(outcome, _took_place(work, sent, given[receipts:], receipts))


@pytest.mark.requirement("TX-16", faults=("kill-live",), profiles=("RC", "NF"))
def test_a_broker_killed_after_a_commit_has_all_of_it(scene: Scene) -> None:
    """commit() has returned: the broker that dies at once has the transaction, as a whole."""
    work = worker(scene)
    receipts = 2 if scene.can("transacted-acknowledgement") else 0
    given = scene.send(work.source, 3)
    work.receive(receipts)
    sent = work.send(5)

    work.session.commit()
    scene.fail_over(work.connection)

    scene.call(work.session.close, "close of the session").result()
    assert _took_place(work, sent, given, receipts), "commit() had returned before the broker died, and nothing is left"


def _took_place(work: Worker, sent: Sequence[str], given: Sequence[str], receipts: int) -> bool:
    """Whether the transaction was committed, by what is visible; that it is not torn is asserted."""
    work.scene.drain(work.target)
    visible = [uid for uid in sent if uid in work.scene.journal.copies(work.target.name)]
    back = uids_of(work.scene.drain(work.source))
    assert visible in ([], list(sent)), f"the transaction sent {list(sent)}, and only {visible} became visible"
    left = list(given[receipts:] if visible else given)
    fate = "committed" if visible else "rolled back"
    assert back == left, f"by its sends the transaction was {fate}: {left} must be on the other queue, {back} are"
    return bool(visible)


# -- the client dies -----------------------------------------------------------------------------------------


@pytest.mark.requirement("TX-19", faults=("client-kill",), profiles=("RC", "NF"))
@ACKNOWLEDGES
def test_the_transaction_of_a_dead_client_is_rolled_back(scene: Scene) -> None:
    """Nobody will ever end it: the broker gives back what it received, flagged, and forgets what it sent."""
    source, target = scene.queue("source"), scene.queue("target")
    given = scene.send(source, 5)
    client = scene.client_process(
        AcknowledgeMode.SESSION_TRANSACTED, Step("receive", source.name, 3), Step("send", target.name, 2)
    )

    scene.kill_client(client)

    session = scene.witness().create_session()
    again = scene.take(session.create_consumer(source), 5)
    assert uids_of(again) == given, f"the dead client had committed nothing of {given}; {uids_of(again)} came"
    assert_flagged(scene, again[:3])
    session.close()
    visible = uids_of(scene.drain(target))
    assert visible == [], f"the dead client had not committed its sends, and {visible} are visible"
