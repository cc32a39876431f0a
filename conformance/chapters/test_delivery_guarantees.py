"""MSG-04, MSG-10, MSG-11, MSG-15, ORD-04: what a stream of messages may lose, repeat or reorder while brokers die.

The other chapters stop the world at one protocol moment. Here it goes on: one client sends and one consumes while the
fault strikes in the middle, once for each acknowledge mode. The tests themselves only see to it that messages flow
before and after; whether each of them was treated as its mode demands is for the rules to judge from the delivery log.
"""

from __future__ import annotations

import threading

import pytest

from fixtures.calls import Call
from fixtures.recording import RecordedConsumer, RecordedProducer, RecordedSession
from fixtures.recording.journal import digest_of, now_ms
from fixtures.scene import Scene
from fixtures.waiting import await_condition
from reference_broker.jms import AcknowledgeMode, DeliveryMode, JMSException, JMSType, Message, Queue

MODES = (
    AcknowledgeMode.AUTO,
    AcknowledgeMode.CLIENT,
    AcknowledgeMode.DUPS_OK,
    AcknowledgeMode.SESSION_TRANSACTED,
)
MESSAGES = 60
BEFORE_THE_FAULT = 15
TIME_TO_LIVE = 300
"""Milliseconds."""
BATCH = 5
"""Messages to an acknowledgement in CLIENT mode, and to a commit."""


class Sender:
    """Sends a numbered stream until it is through or, without failover, its connection is gone."""

    def __init__(self, scene: Scene, producer: RecordedProducer) -> None:
        self._scene = scene
        self._producer = producer
        self.errors: list[JMSException] = []

    def run(self) -> None:
        """Never repeats a send by itself: an error leaves that message open."""
        for _ in range(MESSAGES):
            try:
                self._producer.send(self._scene.message())
            except JMSException as error:
                self.errors.append(error)
                if not self._scene.recreates:
                    return


class Receiver:
    """Consumes until it is told that no more will be sent and the queue has nothing for it."""

    def __init__(self, scene: Scene, session: RecordedSession, consumer: RecordedConsumer) -> None:
        self._scene = scene
        self._session = session
        self._consumer = consumer
        self.taken = 0
        self.errors: list[JMSException] = []
        self.no_more = threading.Event()

    def run(self) -> None:
        """Settles every few messages as the mode asks; an error leaves the batch to come again."""
        last: Message | None = None
        while True:
            try:
                message = self._consumer.receive(200)
                if message is not None:
                    self.taken += 1
                    last = message
                if last is not None and (message is None or self.taken % BATCH == 0):
                    self._settle(last)
                    last = None
                if message is None and self.no_more.is_set():
                    return
            except JMSException as error:
                self.errors.append(error)
                last = None
                if not self._scene.recreates:
                    return

    def _settle(self, last: Message) -> None:
        if self._session.acknowledge_mode is AcknowledgeMode.CLIENT:
            last.acknowledge()
        elif self._session.transacted:
            self._session.commit()


def stream_through_a_fault(scene: Scene, queue: Queue, mode: AcknowledgeMode, delivery: DeliveryMode) -> Receiver:
    """One sender and one receiver on connections of their own, the fault in their middle."""
    sending, receiving = scene.connect(), scene.connect()
    producer = sending.create_session().create_producer(queue)
    producer.delivery_mode = delivery
    session = receiving.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
    sender, receiver = Sender(scene, producer), Receiver(scene, session, session.create_consumer(queue))
    consuming: Call[None] = scene.call(receiver.run, "the receiver")
    producing: Call[None] = scene.call(sender.run, "the sender")
    await_condition(
        lambda: receiver.taken >= BEFORE_THE_FAULT,
        f"{BEFORE_THE_FAULT} messages are received before the fault",
        scene.patience.delivery,
        lambda: f"{receiver.taken} received, errors {receiver.errors}",
    )

    scene.fail_over(sending, receiving)
    after_the_fault = receiver.taken

    producing.result()
    receiver.no_more.set()
    consuming.result()
    if scene.recreates:
        assert receiver.taken > after_the_fault or not scene.journal.never_seen(queue.name), (
            "no message was received after the failover although some were on the queue"
        )
    return receiver


@pytest.mark.requirement("MSG-11", "ORD-04", faults=("kill-live", "cut"), profiles=("RC", "NF"))
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.label)
def test_persistent_stream(scene: Scene, mode: AcknowledgeMode) -> None:
    """Every persistent message whose send returned is delivered; repeats are flagged; order holds."""
    stream_through_a_fault(scene, scene.queue(), mode, DeliveryMode.PERSISTENT)


@pytest.mark.requirement("MSG-15", faults=("kill-live",), profiles=("RC", "NF"))
def test_bodies_survive_the_broker_that_took_them(scene: Scene) -> None:
    """Each kind of body is delivered by the node that takes over as it was sent, byte for byte."""
    queue = scene.queue()
    client = scene.connect()
    session = client.create_session()
    producer = session.create_producer(queue)
    sent = bodies(session)
    for message in sent:
        producer.send(message)

    scene.fail_over(client)

    came = {scene.uid(message): message for message in scene.drain(queue)}
    for message in sent:
        copy = came.get(scene.uid(message))
        assert copy is not None, f"the {type(message).__name__} was confirmed and is gone"
        assert type(copy) is type(message), f"sent as {type(message).__name__}, delivered as {type(copy).__name__}"
        assert digest_of(copy) == digest_of(message), f"the body of the {type(message).__name__} came changed"


@pytest.mark.requirement("MSG-04", faults=("none",), profiles=("RC", "NF"))
@pytest.mark.needs("expiration")
def test_time_to_live_counts_from_the_send_call(scene: Scene) -> None:
    """Sent in a transaction that is committed when the time is over: nothing arrives."""
    queue = scene.queue()
    session = scene.connect().create_session(transacted=True)
    producer = session.create_producer(queue)
    mortal, immortal = scene.message(), scene.message()
    before = now_ms()
    producer.send(mortal, time_to_live=TIME_TO_LIVE)
    after = now_ms()
    producer.send(immortal, time_to_live=0)
    assert before + TIME_TO_LIVE <= mortal.expiration <= after + TIME_TO_LIVE, "it counts from the call (JM 3.4.9)"
    assert immortal.expiration == 0, "no time to live is no expiration"

    overdue = mortal.expiration + TIME_TO_LIVE
    await_condition(lambda: now_ms() > overdue, "the time to live is over", scene.patience.delivery)
    session.commit()

    arrived = [scene.uid(message) for message in scene.drain(queue)]
    assert arrived == [scene.uid(immortal)], "only the message without an expiration may arrive"


def bodies(session: RecordedSession) -> list[Message]:
    """A message of each kind, with a body that a careless codec would spoil."""
    octets = session.create_bytes_message()
    octets.write(bytes(range(256)) * 4)
    table = session.create_map_message()
    table.set("truth", True)
    table.set("number", -(2**31), JMSType.INT)
    table.set("text", "nul \0 and ü")
    series = session.create_stream_message()
    for value in (1, 2.5, "three", None, b"\x00\xff"):
        series.write(value)
    text = session.create_text_message("line\nend : \\ \r \u20ac \U0001f642")
    return [session.create_message(), text, octets, table, series, session.create_object_message({"a": [1, 2]})]


@pytest.mark.requirement("MSG-10", faults=("kill-live", "cut"), profiles=("RC", "NF"))
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.label)
def test_non_persistent_stream(scene: Scene, mode: AcknowledgeMode) -> None:
    """Non-persistent messages may vanish in the failure, without a word, and never come twice unflagged."""
    stream_through_a_fault(scene, scene.queue(), mode, DeliveryMode.NON_PERSISTENT)
