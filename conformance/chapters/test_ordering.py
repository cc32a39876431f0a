"""ORD: the order in which messages of one session to one destination arrive.

The rules check order in every log. Here are the moments that endanger it: messages that come back, and sends that
wait while nobody serves.
"""

from __future__ import annotations

import pytest

from fixtures.scene import Scene
from fixtures.waiting import await_quiet
from reference_broker.jms import AcknowledgeMode, DeliveryMode

COUNT = 10


@pytest.mark.requirement("ORD-01", faults=("none",), profiles=("RC", "NF"))
def test_messages_arrive_in_the_order_sent(scene: Scene) -> None:
    """One session, one destination, equal priority and mode."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, COUNT)

    consumer = client.create_session().create_consumer(queue)

    arrived = [scene.uid(message) for message in scene.take(consumer, COUNT)]
    assert arrived == sent, f"sent {sent}, and they came as {arrived} (JM 6.2.9)"


@pytest.mark.requirement("ORD-02", faults=("kill-live",), profiles=("RC",))
@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.SESSION_TRANSACTED], ids=lambda m: m.label)
def test_what_a_failover_returns_comes_before_what_was_not_seen(scene: Scene, mode: AcknowledgeMode) -> None:
    """Received, not settled, and given back by the failure: these come first again, in their order."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, COUNT)
    session = client.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
    consumer = session.create_consumer(queue)
    before = [scene.uid(message) for message in scene.take(consumer, 3)]
    assert before == sent[:3]

    scene.fail_over(client)

    again = [scene.uid(message) for message in scene.take(consumer, COUNT)]
    assert again == sent, f"after the failover the order is {again}, not that of sending, {sent}"


@pytest.mark.requirement("ORD-02", faults=("kill-live",), profiles=("NF",))
def test_what_a_loss_returns_comes_before_what_was_not_seen(scene: Scene) -> None:
    """The same for an application that opens a new connection."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, COUNT)
    scene.take(client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue), 3)

    scene.fail_over(client)

    again = [scene.uid(message) for message in scene.take(scene.fresh().create_session().create_consumer(queue), COUNT)]
    assert again == sent, f"over the new connection the order is {again}, not that of sending, {sent}"


@pytest.mark.requirement("ORD-02", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.parametrize("how", ["recover", "rollback"])
def test_what_was_given_back_by_hand_comes_first_also_after_the_kill(scene: Scene, how: str) -> None:
    """recover() or rollback() returns messages; the order holds then, and still holds when the broker has died."""
    queue = scene.queue()
    client = scene.connect()
    sent = scene.send(queue, COUNT)
    transacted = how == "rollback"
    session = client.create_session(transacted, AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    scene.take(consumer, 4)
    session.rollback() if transacted else session.recover()
    again = [scene.uid(message) for message in scene.take(consumer, 4)]
    assert again == sent[:4], f"after {how}() the order is {again}, not {sent[:4]} (JM 6.2.9)"

    scene.fail_over(client)

    left = [scene.uid(message) for message in scene.drain_after_closing(queue, client)]
    assert left == sent, f"after {how}() and the death of the broker the order is {left}, not that of sending"


@pytest.mark.requirement("ORD-03", "VLV-18", faults=("kill-live",), profiles=("RC",))
def test_a_send_that_waited_goes_before_later_ones(scene: Scene) -> None:
    """Numbered sends of one producer through an outage: the one held back is not overtaken."""
    queue = scene.queue()
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    messages = [scene.message() for _ in range(COUNT)]

    def send_all() -> None:
        for message in messages[1:]:
            producer.send(message)

    producer.send(messages[0])
    with scene.outage(client):
        sending = scene.call(send_all, "the sends")
        await_quiet(lambda: not sending.pending, "the sends end while nobody serves", scene.patience.quiet)
    sending.result()

    arrived = [scene.uid(message) for message in scene.drain(queue)]
    expected = [scene.uid(message) for message in messages]
    assert arrived == expected, f"sent through the outage as {expected}, arrived as {arrived}"


@pytest.mark.requirement("ORD-07", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.needs("non-persistent")
def test_each_delivery_mode_keeps_its_own_order(scene: Scene) -> None:
    """Two interleaved streams; non-persistent ones may vanish in the kill, but what comes of each comes in order."""
    queue = scene.queue()
    client = scene.connect()
    session = client.create_session()
    producer = session.create_producer(queue)
    streams: dict[DeliveryMode, list[str]] = {mode: [] for mode in DeliveryMode}
    for _ in range(COUNT):
        for mode, uids in streams.items():
            message = scene.message()
            producer.send(message, delivery_mode=mode)
            uids.append(scene.uid(message))

    scene.fail_over(client)

    arrived = [scene.uid(message) for message in scene.drain(queue)]
    for mode, uids in streams.items():
        came = [uid for uid in arrived if uid in uids]
        assert came == [uid for uid in uids if uid in came], f"{mode.name} messages came out of order: {came}"
    assert [uid for uid in arrived if uid in streams[DeliveryMode.PERSISTENT]] == streams[DeliveryMode.PERSISTENT]
