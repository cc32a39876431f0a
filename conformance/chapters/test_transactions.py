"""TX: local transactions, across a failure.

A transaction ends in one of two ways, with all its sends and all its receipts alike. A failure that takes the broker's
session takes the transaction with it: it can only be rolled back, and commit() must say so (TX-03). Only one moment is
in doubt, when the failure falls into the commit itself. Then "rolled back" is a claim like "committed", and wrong
if the transaction took place: who does not know must say that (TX-09, D-03).
"""

from __future__ import annotations

import threading

import pytest

from conformance.chapters.transacted_work import (
    ACKNOWLEDGES,
    WORK,
    assert_flagged,
    assert_nothing_visible,
    assert_undone,
    uids_of,
    worker,
)
from fixtures.client_process import Step
from fixtures.scene import Scene
from fixtures.waiting import await_condition, await_quiet
from reference_broker.jms import (
    AcknowledgeMode,
    JMSException,
    Message,
    TransactionRolledBackException,
)


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
    # In which order is not the matter here: another session takes them, and ORD-02 is about one (JM 6.2.9).
    assert sorted(uids_of(again)) == given, f"the dead client had committed nothing of {given}; {uids_of(again)} came"
    assert_flagged(scene, [message for message in again if scene.uid(message) in given[:3]])
    session.close()
    visible = uids_of(scene.drain(target))
    assert visible == [], f"the dead client had not committed its sends, and {visible} are visible"
