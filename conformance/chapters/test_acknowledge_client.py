"""ACK-CLIENT: acknowledging by hand, across a failure.

A session is dirty while the application holds messages that it has not acknowledged. If such a session is lost and made
anew, nothing that the application holds can be acknowledged any more: all of it will come again. The application
must hear so exactly once (D-06), by an error from acknowledge(), and then everything starts over with the oldest
message that was not acknowledged. A silent success would be a lie: external work would be done twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fixtures.recording import RecordedConnection
from fixtures.scene import Scene
from fixtures.waiting import await_condition
from reference_broker.jms import AcknowledgeMode, Code, IllegalStateException, JMSException, Message, Queue

CLIENT = AcknowledgeMode.CLIENT


def uids_of(messages: Sequence[Message]) -> list[str]:
    """The uids of these messages, in order."""
    return [Scene.uid(message) for message in messages]


def assert_flagged(scene: Scene, messages: Sequence[Message], why: str) -> None:
    """Redelivered, also if the broker that delivered first is gone, as far as the broker can remember that (D-08)."""
    if scene.fault.code != "none" and not scene.can("persistent-redelivered-flag"):
        return
    unflagged = uids_of([message for message in messages if not message.redelivered])
    assert not unflagged, f"{why}, so JMSRedelivered must be true; it is false for {unflagged} (D-08, JM 6.2.11)"


def assert_left(scene: Scene, queue: Queue, expected: Sequence[str], why: str) -> list[Message]:
    """What a fresh connection finds on the queue, to its end, is just this."""
    left = scene.drain(queue)
    assert uids_of(left) == list(expected), f"{why}: {list(expected)} must be left, {uids_of(left)} are"
    return left


def await_prefetched(scene: Scene, connection: RecordedConnection) -> None:
    """What was sent before this call has reached the client: a message that was sent after it has."""
    signal = scene.queue("signal")
    session = connection.create_session()
    consumer = session.create_consumer(signal)
    scene.send(signal)
    scene.take(consumer)
    session.close()


@pytest.mark.requirement("ACK-CLIENT-01", faults=("none",), profiles=("RC", "NF"))
def test_acknowledge_covers_what_was_received_and_no_more(scene: Scene) -> None:
    """One acknowledge() takes everything received through both consumers, and nothing that was only prefetched."""
    left, right = scene.queue("left"), scene.queue("right")
    session = scene.connect().create_session(acknowledge_mode=CLIENT)
    first, second = session.create_consumer(left), session.create_consumer(right)
    on_left, on_right = scene.send(left, 3), scene.send(right, 3)
    oldest, _ = scene.take(first, 2)
    scene.take(second, 1)

    oldest.acknowledge()

    session.close()
    assert_left(scene, left, on_left[2:], "two of three were received when a message was acknowledged (JM 6.2.10)")
    assert_left(scene, right, on_right[1:], "one of three was received through the other consumer (JM 6.2.10)")


@pytest.mark.requirement("ACK-CLIENT-02", faults=("kill-live",), profiles=("RC",))
def test_prefetched_messages_do_not_make_a_session_dirty(scene: Scene) -> None:
    """The application holds nothing when the broker dies: what it receives then it can acknowledge."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 3)
    await_prefetched(scene, connection)

    scene.fail_over(connection)

    (message,) = scene.take(consumer)
    message.acknowledge()
    session.close()
    assert_left(scene, queue, sent[1:], "the first message was acknowledged after the failover")


@pytest.mark.requirement("ACK-CLIENT-03", faults=("kill-live",), profiles=("RC", "NF"))
def test_a_dirty_session_starts_over_with_the_oldest(scene: Scene) -> None:
    """Two messages are held and three prefetched: all five come from the new broker, in order."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 5)
    held = scene.take(consumer, 2)
    await_prefetched(scene, connection)

    scene.fail_over(connection)

    if not scene.recreates:
        scene.call(lambda: consumer.receive(0), "receive on the lost connection").error(JMSException)
        session = scene.fresh().create_session(acknowledge_mode=CLIENT)
        consumer = session.create_consumer(queue)
    again = scene.take(consumer, 5)
    assert uids_of(again) == sent, f"{sent} were sent and none was acknowledged; after the loss {uids_of(again)} came"
    assert all(old not in again for old in held), "a message object from before the loss was handed out again"
    assert_flagged(scene, again[:2], "the application had received these before the broker died")


@pytest.mark.requirement("ACK-CLIENT-04", faults=("kill-live",), profiles=("RC", "NF"))
def test_acknowledge_after_failover_raises(scene: Scene) -> None:
    """What was received before the failure cannot be acknowledged after it: an error says so, and all come again."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 3)
    *_, newest = scene.take(consumer, 3)

    scene.fail_over(connection)

    acknowledge = scene.call(newest.acknowledge, "acknowledge() of a message from before the failure")
    if scene.recreates:
        error = acknowledge.error(IllegalStateException)
        assert error.code == Code.SESSION_STALE, f"the error says {error.code}, not that the session is stale (D-06)"
        again = scene.take(consumer, 3)
    else:
        acknowledge.error(JMSException)
        again = scene.take(scene.fresh().create_session(acknowledge_mode=CLIENT).create_consumer(queue), 3)
    assert uids_of(again) == sent, f"acknowledge() raised, so {sent} must all come again; {uids_of(again)} came"
    assert_flagged(scene, again, "the application had received these before the broker died")


@pytest.mark.requirement("ACK-CLIENT-05", "ACK-CLIENT-06", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize("received_since", [0, 1, 3], ids=lambda count: f"{count}-received-since")
def test_error_for_a_dirty_session_starts_delivery_over(scene: Scene, received_since: int) -> None:
    """Also by a message that was received after the failover; whatever was received then comes once more, flagged."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 4)
    held = scene.take(consumer, 2)

    scene.fail_over(connection)

    since = scene.take(consumer, received_since)
    error = scene.call((held + since)[-1].acknowledge, "acknowledge() on the dirty session").error(
        IllegalStateException
    )
    assert error.code == Code.SESSION_STALE, f"the error says {error.code}, not that the session is stale (D-06)"
    again = scene.take(consumer, 4)
    assert uids_of(again) == sent, (
        f"acknowledge() raised after {received_since} receipts on the new broker: delivery must begin again at the "
        f"oldest of {sent}; {uids_of(again)} came"
    )
    assert_flagged(scene, again[: max(2, received_since)], "the application had received these")


@pytest.mark.requirement("ACK-CLIENT-07", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize("received_since", [0, 2], ids=lambda count: f"{count}-received-since")
def test_one_error_cleans_the_session(scene: Scene, received_since: int) -> None:
    """The error comes once: then acknowledge() works, and the queue is empty."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    scene.send(queue, 3)
    held = scene.take(consumer, 2)
    scene.fail_over(connection)
    since = scene.take(consumer, received_since)
    scene.call((held + since)[-1].acknowledge, "acknowledge() on the dirty session").error(IllegalStateException)

    *_, newest = scene.take(consumer, 3)
    newest.acknowledge()

    session.close()
    assert_left(scene, queue, [], "all three were acknowledged after the one error")


@pytest.mark.requirement("ACK-CLIENT-08", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize("received_since", [0, 3], ids=lambda count: f"{count}-received-since")
def test_recover_after_failover(scene: Scene, received_since: int) -> None:
    """recover() does not raise; delivery begins at the oldest and can be acknowledged at once."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 4)
    scene.take(consumer, 2)
    scene.fail_over(connection)
    scene.take(consumer, received_since)

    session.recover()

    again = scene.take(consumer, 4)
    assert uids_of(again) == sent, f"after recover() delivery must begin at the oldest of {sent}; {uids_of(again)} came"
    assert_flagged(scene, again[: max(2, received_since)], "the application had received these")
    again[-1].acknowledge()
    session.close()
    assert_left(scene, queue, [], "all four were acknowledged after recover()")


@pytest.mark.requirement("ACK-CLIENT-09", faults=("kill-live",), profiles=("RC",))
def test_a_session_that_had_acknowledged_everything_is_clean(scene: Scene) -> None:
    """It held nothing when the broker died: nothing comes again, and its next acknowledge() works."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    scene.send(queue, 2)
    *_, newest = scene.take(consumer, 2)
    newest.acknowledge()

    scene.fail_over(connection)

    (new,) = scene.send(queue)
    (message,) = scene.take(consumer)
    assert scene.uid(message) == new, f"only {new} was not acknowledged, and {scene.uid(message)} came"
    message.acknowledge()
    session.close()
    assert_left(scene, queue, [], "everything was acknowledged, before and after the failover")


@pytest.mark.requirement("ACK-CLIENT-10", faults=("kill-live",), profiles=("RC", "NF"))
def test_an_old_message_acknowledges_nothing_new(scene: Scene) -> None:
    """A message object that outlived its session's state raises, and what was received since stays unacknowledged."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 2)
    old, _ = scene.take(consumer, 2)
    scene.fail_over(connection)
    if scene.recreates:
        session.recover()
    else:
        session = scene.fresh().create_session(acknowledge_mode=CLIENT)
        consumer = session.create_consumer(queue)
    scene.take(consumer, 2)

    acknowledge = scene.call(old.acknowledge, "acknowledge() by a message from before the failure")
    acknowledge.error(IllegalStateException if scene.recreates else JMSException)

    session.close()
    assert_left(scene, queue, sent, "the only acknowledge() was by a message from before the failure (D-06)")


@pytest.mark.requirement("ACK-CLIENT-12", faults=("drop-reply", "drop-req"), profiles=("RC", "NF"))
def test_interrupted_acknowledge_is_reported(scene: Scene) -> None:
    """It raises with unknown outcome; what it concerned is gone or comes again flagged, and the session is clean."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 3)
    *_, newest = scene.take(consumer, 3)

    call = scene.interrupt_before_fence(newest.acknowledge, "acknowledge()", connection)

    error = call.error(JMSException)
    assert error.outcome_unknown, f"acknowledge() raised {error!r}, which claims to know what became of it"
    if scene.recreates:
        (end,) = scene.send(queue)
        again = scene.take(consumer)
        while scene.uid(again[-1]) != end:
            again += scene.take(consumer)
        again.pop().acknowledge()
        session.close()
        assert_left(scene, queue, [], "everything that came after the failover was acknowledged")
    else:
        again = scene.drain(queue)
    assert_flagged(scene, again, "an interrupted acknowledge() concerned them")
    if scene.fault.code == "drop-req":
        assert uids_of(again) == sent, f"the acknowledge() never reached the broker, and {uids_of(again)} came again"


@pytest.mark.requirement("ACK-CLIENT-13", faults=("kill-live",), profiles=("RC",))
def test_a_listener_goes_on_after_failover(scene: Scene) -> None:
    """It is not set again: it gets the same messages from the new broker, and the one error cleans its session, too."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    received: list[Message] = []
    session.create_consumer(queue).message_listener = received.append
    sent = scene.send(queue, 3)
    await_condition(lambda: len(received) >= 3, "the listener gets three messages", scene.patience.delivery)

    scene.fail_over(connection)

    await_condition(lambda: len(received) >= 6, "the listener gets them again", scene.patience.delivery)
    scene.call(received[5].acknowledge, "acknowledge() on the dirty session").error(IllegalStateException)
    await_condition(lambda: len(received) >= 9, "the listener gets them once more", scene.patience.delivery)
    received[8].acknowledge()
    session.close()
    assert uids_of(received) == sent * 3, f"the listener was given {uids_of(received)}, not three times {sent}"
    assert_flagged(scene, received[3:], "the listener had received these")
    assert_left(scene, queue, [], "all were acknowledged after the one error")


@pytest.mark.requirement("ACK-CLIENT-14", faults=("none",), profiles=("RC", "NF"))
def test_recover_redelivers_the_unacknowledged(scene: Scene) -> None:
    """In order and flagged; messages of higher priority that have come since may be in between."""
    queue = scene.queue()
    connection = scene.connect()
    session = connection.create_session(acknowledge_mode=CLIENT)
    consumer = session.create_consumer(queue)
    sent = scene.send(queue, 4)
    scene.take(consumer, 3)
    urgent = scene.message()
    scene.witness().create_session().create_producer(queue).send(urgent, priority=9)

    session.recover()

    again = scene.take(consumer, 5)
    first_sent = [message for message in again if scene.uid(message) != scene.uid(urgent)]
    assert uids_of(first_sent) == sent, f"{sent} were not acknowledged; after recover() {uids_of(first_sent)} came"
    assert_flagged(scene, first_sent[:3], "the application had received these before recover()")
    if scene.can("delivery-count"):
        counts = [message.delivery_count for message in first_sent[:3]]
        assert min(counts) >= 2, f"they were delivered for the second time, and the counts are {counts} (JM 3.5.11)"
    again[-1].acknowledge()


@pytest.mark.requirement("ACK-CLIENT-14", faults=("none",), profiles=("RC", "NF"))
@pytest.mark.needs("transactions")
def test_recover_is_no_method_of_a_transacted_session(scene: Scene) -> None:
    """recover() on a transacted session raises an IllegalStateException (JM 6.2.10)."""
    session = scene.connect().create_session(True)
    scene.call(session.recover, "recover() on a transacted session").error(IllegalStateException)


@pytest.mark.requirement("ACK-CLIENT-15", faults=("kill-live",), profiles=("RC",))
def test_a_dirty_session_leaves_its_sibling_alone(scene: Scene) -> None:
    """Two sessions of one connection, one of them dirty: the other acknowledges as if nothing had happened."""
    one, other = scene.queue("dirty"), scene.queue("clean")
    connection = scene.connect()
    dirty, clean = (connection.create_session(acknowledge_mode=CLIENT) for _ in range(2))
    of_dirty, of_clean = dirty.create_consumer(one), clean.create_consumer(other)
    on_dirty = scene.send(one)
    scene.send(other)
    (held,) = scene.take(of_dirty)
    (settled,) = scene.take(of_clean)
    settled.acknowledge()

    scene.fail_over(connection)

    scene.send(other)
    (message,) = scene.take(of_clean)
    message.acknowledge()
    scene.call(held.acknowledge, "acknowledge() on the dirty session").error(IllegalStateException)
    clean.close()
    dirty.close()
    assert_left(scene, other, [], "the clean session acknowledged both of its messages")
    assert_left(scene, one, on_dirty, "the dirty session's acknowledge() raised")
