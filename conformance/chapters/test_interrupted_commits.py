"""TX-08 to TX-10, TX-16: commits that a failure interrupts.

A commit whose reply is lost may have taken place. It must come back within the limits, must not claim what is not so,
and must have done all of its work or nothing, whichever of the two it says (D-03).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conformance.chapters.transacted_work import (
    Worker,
    assert_report_is_true,
    uids_of,
    worker,
)
from fixtures.scene import Scene
from fixtures.waiting import await_condition
from reference_broker.jms import (
    JMSException,
    TransactionRolledBackException,
)


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
