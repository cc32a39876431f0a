"""ACK-AUTO: the session acknowledges by itself, with the return of receive or of the listener.

Only one message is ever in doubt, the last one consumed (JM 6.2.11): it may come again, flagged, and it must not get
lost between a receive that raised and a broker that took it as consumed (D-16).
"""

from __future__ import annotations

import threading

import pytest

from fixtures.client_process import Step
from fixtures.recording import RecordedConnection, RecordedConsumer
from fixtures.scene import FaultDidNotHappen, Scene
from fixtures.waiting import await_condition
from reference_broker.jms import AcknowledgeMode, Code, JMSException, Message, Queue

AUTO = AcknowledgeMode.AUTO


def next_consumer(scene: Scene, consumer: RecordedConsumer, queue: Queue) -> RecordedConsumer:
    """Who receives after the failure: the same consumer, or without failover one of a new connection."""
    return consumer if scene.recreates else scene.fresh().create_session().create_consumer(queue)


def uids(messages: list[Message]) -> list[str]:
    """Names of messages, in order."""
    return [Scene.uid(message) for message in messages]


@pytest.mark.requirement("ACK-AUTO-01", faults=("client-kill",), profiles=("RC", "NF"))
def test_message_whose_listener_is_at_work_is_not_acknowledged(scene: Scene) -> None:
    """The client dies inside its listener: that message comes again."""
    queue = scene.queue()
    sent = scene.send(queue, 2)
    client = scene.client_process(AUTO, Step("listen", queue.name, 1))

    scene.kill_client(client)

    first = scene.drain(queue)[0]
    assert scene.uid(first) == sent[0], "the message in the listener of the dead client must come again (JM 6.2.10)"
    assert first.redelivered, "and it must be flagged, for an application has seen it"


@pytest.mark.requirement("ACK-AUTO-02", faults=("kill-live",), profiles=("RC", "NF"))
def test_only_the_last_message_may_come_again(scene: Scene) -> None:
    """Five were received before the broker died: of these at most the fifth is seen again, flagged."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, 10)
    consumer = client.create_session().create_consumer(queue)
    scene.take(consumer, 5)

    scene.fail_over(client)

    again = [m for m in scene.drain_after_closing(queue, client) if scene.uid(m) in sent[:5]]
    assert set(uids(again)) <= {sent[4]}, f"came again: {uids(again)}; only {sent[4]} may (JM 6.2.11)"
    assert all(message.redelivered for message in again), "a repeat must be flagged redelivered"


@pytest.mark.requirement("ACK-AUTO-03", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.needs("persistent-redelivered-flag")
def test_redelivery_is_flagged_although_the_first_broker_is_dead(scene: Scene) -> None:
    """Received, and the broker killed before it hears of the acknowledgement: flagged by the one that serves next."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, 2)
    consumer = client.create_session().create_consumer(queue)
    scene.take(consumer, 1)
    with scene.requests_held():
        call = scene.call(consumer.receive, "receive")
        scene.strike()
    call.ended()
    scene.await_loss(client)
    scene.heal()
    if scene.recreates:
        scene.await_restored(client)

    again = scene.take(next_consumer(scene, consumer, queue), 1)[0]

    assert scene.uid(again) == sent[1], "the message whose acknowledgement never arrived must come again"
    assert again.redelivered, "JMSRedelivered must be true although the broker that delivered it first is dead (D-08)"
    assert again.delivery_count == 0 or again.delivery_count >= 2, f"its delivery count is {again.delivery_count}"


@pytest.mark.requirement("ACK-AUTO-04", faults=("drop-req",), profiles=("RC", "NF"))
def test_message_is_not_both_raised_for_and_lost(scene: Scene) -> None:
    """The acknowledgement is lost on its way: the message comes again, and receive has not claimed to consume it."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, 2)
    consumer = client.create_session().create_consumer(queue)
    scene.take(consumer, 1)

    call = scene.interrupt_before_fence(consumer.receive, "receive", client)

    outcome = call.outcome()
    if scene.recreates and scene.can("commit-fate"):
        assert isinstance(outcome, JMSException), f"receive returned {outcome!r}, and the broker has not consumed it"
        assert outcome.code == Code.CALL_UNBLOCKED
    if scene.recreates:
        scene.await_restored(client)
    again = scene.take(next_consumer(scene, consumer, queue), 1)[0]
    assert scene.uid(again) == sent[1], f"the message in doubt must come again; {scene.uid(again)} came"
    assert again.redelivered, "the copy that comes again must be flagged"


@pytest.mark.requirement("ACK-AUTO-05", "LSN-01", faults=("cut",), profiles=("RC", "NF"))
def test_failure_inside_the_listener_is_told_and_the_message_comes_again(scene: Scene) -> None:
    """The transport breaks while on_message runs: nobody can raise, so the ExceptionListener hears of it."""
    queue = scene.queue()
    client = scene.connect(listening=True)
    seen: list[Message] = []
    inside, broken, again = threading.Event(), threading.Event(), threading.Event()

    def on_message(message: Message) -> None:
        seen.append(message)
        if len(seen) == 1:
            inside.set()
            broken.wait()
        else:
            again.set()

    client.create_session().create_consumer(queue).message_listener = on_message
    sent = scene.send(queue)[0]
    await_condition(inside.is_set, "the listener is called", scene.patience.delivery)
    scene.strike()
    scene.await_loss(client)
    broken.set()
    await_condition(lambda: bool(client.notifications), "the ExceptionListener hears of it", scene.patience.detection)

    if scene.recreates:
        await_condition(again.is_set, "the message comes to the listener again", scene.patience.delivery)
        copy = seen[1]
    else:
        copy = scene.take(scene.fresh().create_session().create_consumer(queue))[0]
    assert scene.uid(copy) == sent
    assert copy.redelivered, "the copy after the failure inside the listener must be flagged redelivered"


@pytest.mark.requirement("ACK-AUTO-06", faults=("cut",), profiles=("RC", "NF"))
@pytest.mark.needs("async-ack")
def test_unsent_acknowledgement_is_reported_to_the_listener(scene: Scene) -> None:
    """With asynchronous acknowledgements no call is left to raise: the ExceptionListener hears of the failure."""
    queue = scene.queue()
    client = scene.connect(listening=True, async_ack=True)
    sent = scene.send(queue)[0]
    consumer = client.create_session().create_consumer(queue)
    with scene.requests_held():
        received = scene.take(consumer)[0]
        scene.strike()
    scene.await_loss(client)

    def told() -> bool:
        return any(error.code == Code.CALL_UNBLOCKED for error in client.notifications)

    assert scene.uid(received) == sent
    await_condition(told, "the ExceptionListener hears of the unsent acknowledgement", scene.patience.detection)
    if scene.recreates:
        scene.await_restored(client)
    again = scene.take(next_consumer(scene, consumer, queue))[0]
    assert scene.uid(again) == sent
    assert again.redelivered


@pytest.mark.requirement("ACK-AUTO-07", faults=("drop-reply",), profiles=("RC", "NF"))
def test_processed_acknowledgement_is_final(scene: Scene) -> None:
    """Only the confirmation is lost: the message is consumed, once, and the application has it."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, 2)
    consumer = client.create_session().create_consumer(queue)
    scene.take(consumer, 1)
    scene.await_prefetched(client)

    call = scene.interrupt_before_fence(consumer.receive, "receive", client)

    outcome = call.outcome()
    came_after = uids(scene.drain_after_closing(queue, client))
    if isinstance(outcome, JMSException) and sent[1] in came_after:
        raise FaultDidNotHappen(
            "the second message had not reached the client when replies were held: not acknowledged"
        )
    assert sent[1] not in came_after, "the broker had processed its acknowledgement: it must not come again (JM 6.2.11)"
    assert isinstance(outcome, Message), f"receive raised {outcome!r} for a message that is consumed: it is lost"
    assert scene.uid(outcome) == sent[1]


@pytest.mark.requirement("ACK-AUTO-08", faults=("kill-live",), profiles=("RC",))
def test_recover_succeeds_after_failover(scene: Scene) -> None:
    """recover() on an AUTO session has nothing to undo; delivery goes on with the oldest not acknowledged."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, 6)
    session = client.create_session()
    consumer = session.create_consumer(queue)
    scene.take(consumer, 3)
    scene.fail_over(client)

    session.recover()

    assert uids(scene.take(consumer, 3)) == sent[3:], "delivery must go on with the oldest message not acknowledged"


@pytest.mark.requirement("ACK-AUTO-08", faults=("kill-live",), profiles=("NF",))
def test_recover_on_a_lost_connection_raises(scene: Scene) -> None:
    """Without failover the session is gone; a new one begins with the oldest message not acknowledged."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, 6)
    session = client.create_session()
    scene.take(session.create_consumer(queue), 3)
    scene.fail_over(client)

    scene.call(session.recover, "recover()").error(JMSException)

    assert uids(scene.take(scene.fresh().create_session().create_consumer(queue), 3)) == sent[3:]


@pytest.mark.requirement("ACK-AUTO-09", "SND-07", faults=("kill-live",), profiles=("RC", "NF"))
def test_prefetched_messages_come_again_in_order(scene: Scene) -> None:
    """What only the client library held is dropped and sent by the new broker: neither lost nor repeated."""
    queue = scene.queue()
    client = scene.connect(prefetch=100)
    sent = scene.send(queue, 20)
    consumer = client.create_session().create_consumer(queue)
    scene.take(consumer, 3)

    scene.fail_over(client)

    after = next_consumer(scene, consumer, queue)
    first = scene.take(after, 1)
    if scene.uid(first[0]) == sent[2] and first[0].redelivered:
        first = scene.take(after, 1)  # the last one consumed may come again (ACK-AUTO-02); it is not the matter here
    rest = uids(first + scene.take(after, 16))
    assert rest == sent[3:], f"after 3 of 20 the sequence must go on unbroken; it went on as {rest}"
    twice = uids(scene.drain_after_closing(queue, client))
    assert not twice, f"prefetched copies of the dead broker were handed out, and came again from the new one: {twice}"


@pytest.mark.requirement("ACK-AUTO-11", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.parametrize("settled", [False, True], ids=["during", "after"])
def test_close_around_a_failover_acknowledges_nothing(scene: Scene, settled: bool) -> None:
    """close() during or after the failover does not raise, and what was never delivered remains."""
    queue = scene.queue()
    client: RecordedConnection = scene.connect()
    sent = scene.send(queue, 10)
    session = client.create_session()
    scene.take(session.create_consumer(queue), 2)

    scene.strike()
    if settled:
        scene.await_loss(client)
    closing = scene.call(session.close, "close of the session")
    scene.heal()
    closing.result()

    left = uids(scene.drain_after_closing(queue, client))
    assert left[-8:] == sent[2:], f"eight messages were never delivered; {left} remain after the close"
