"""The STOMP adapter over a real node, in the scenes that were run against ActiveMQ and RabbitMQ too (docs/stomp.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from adapters.registry import make_adapter
from fixtures.cluster import Cluster
from fixtures.definition import load_definition
from reference_broker.client.options import ClientOptions
from reference_broker.jms import (
    AcknowledgeMode,
    Connection,
    DeliveryMode,
    JMSType,
    Message,
    MessageConsumer,
    Queue,
    TextMessage,
)

WAIT = 5000
"""Milliseconds for a message that must come."""
SHORT = 200
"""Milliseconds in which one that must not come would have come."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(load_definition("reference")) as cluster:
        cluster.await_serving()
        yield cluster


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    definition = load_definition("reference")
    adapter = make_adapter("stomp", definition.adapter_settings("stomp"))
    options = ClientOptions(endpoints=(cluster.live.endpoint("stomp"),), reconnect_attempts=0)
    with adapter.connection_factory(options).create_connection() as connection:
        connection.start()
        yield connection
    assert not [thread for thread in threading.enumerate() if "stomp" in thread.name.lower()]


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> Queue:
    return Queue(f"{request.node.name}-{time.time_ns()}")


def put(connection: Connection, queue: Queue, count: int, **quality: int) -> None:
    with connection.create_session() as session:
        producer = session.create_producer(queue)
        for number in range(count):
            producer.send(session.create_text_message(str(number)), **quality)  # type: ignore[arg-type]


def take(consumer: MessageConsumer, count: int) -> list[tuple[str | None, bool]]:
    taken = []
    for _ in range(count):
        message = consumer.receive(WAIT)
        assert isinstance(message, TextMessage), taken
        taken.append((message.text, message.redelivered))
    return taken


def texts(*numbers: int, redelivered: bool = False) -> list[tuple[str, bool]]:
    return [(str(number), redelivered) for number in numbers]


def test_every_kind_of_message_survives_byte_for_byte(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    sent: list[Message] = [
        session.create_text_message(text) for text in ("", None, "h\xe9\0llo", "lines\n\n", "a" * 100_000)
    ]
    data = session.create_bytes_message()
    data.write(bytes(range(256)) * 3)
    entries = session.create_map_message()
    entries.set("x", 1, JMSType.BYTE)
    entries.set("b", b"\0\1")
    stream = session.create_stream_message()
    stream.write(1.5, JMSType.FLOAT)
    sent += [data, session.create_bytes_message(), entries, stream]
    sent += [session.create_object_message({"a": [1, 2]}), session.create_message()]
    producer = session.create_producer(queue)
    for message in sent:
        message.set_property("color", "red:\\n\n\0 ")
        message.set_property("n", 3, JMSType.INT)
        message.set_property("priority", 1.5)
        message.set_property("nil", None)
        message.set_property("empty", "")
        message.correlation_id, message.type, message.reply_to = "c:1", "t", Queue("back")
        producer.send(message, priority=7)
    consumer = session.create_consumer(queue)
    for message in sent:
        got = consumer.receive(WAIT)
        assert got is not None
        assert type(got) is type(message)
        assert list(got.property_items()) == list(message.property_items())
        for name in ("correlation_id", "type", "reply_to", "message_id", "timestamp", "priority", "delivery_mode"):
            assert getattr(got, name) == getattr(message, name), name
        for name in ("text", "data", "serialized"):
            assert getattr(got, name, None) == getattr(message, name, None)
        if hasattr(message, "items"):
            assert list(got.items()) == list(message.items())  # type: ignore[attr-defined]


def test_recover_starts_over_with_the_oldest(connection: Connection, queue: Queue) -> None:
    put(connection, queue, 5)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    assert take(consumer, 3) == texts(0, 1, 2)
    session.recover()
    assert take(consumer, 5) == texts(0, 1, 2, redelivered=True) + texts(3, 4)
    session.recover()
    last: Message | None = None
    for _ in range(5):
        last = consumer.receive(WAIT)
    assert last is not None
    last.acknowledge()
    session.recover()
    assert consumer.receive(SHORT) is None


def test_rollback_undoes_sends_and_receipts(connection: Connection, queue: Queue) -> None:
    put(connection, queue, 5)
    session = connection.create_session(transacted=True)
    consumer, producer = session.create_consumer(queue), session.create_producer(queue)
    take(consumer, 3)
    producer.send(session.create_text_message("never"))
    session.rollback()
    assert take(consumer, 5) == texts(0, 1, 2, redelivered=True) + texts(3, 4)
    producer.send(session.create_text_message("9"))
    session.commit()
    assert take(consumer, 1) == texts(9)
    session.commit()
    session.close()
    assert connection.create_session().create_consumer(queue).receive(SHORT) is None


@pytest.mark.parametrize("mode", [AcknowledgeMode.SESSION_TRANSACTED, AcknowledgeMode.CLIENT])
def test_a_session_may_hold_more_than_the_prefetch(connection: Connection, queue: Queue, mode: AcknowledgeMode) -> None:
    put(connection, queue, 250)
    session = connection.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
    consumer = session.create_consumer(queue)
    for _ in range(250):
        message = consumer.receive(WAIT)
        assert message is not None
    message.acknowledge() if mode is AcknowledgeMode.CLIENT else session.commit()
    session.close()
    assert connection.create_session().create_consumer(queue).receive(SHORT) is None


@pytest.mark.parametrize("mode", [AcknowledgeMode.SESSION_TRANSACTED, AcknowledgeMode.CLIENT])
def test_closing_a_consumer_leaves_what_the_session_holds(
    connection: Connection, queue: Queue, mode: AcknowledgeMode
) -> None:
    put(connection, queue, 4)
    session = connection.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
    consumer = session.create_consumer(queue)
    message = consumer.receive(WAIT)
    assert message is not None
    consumer.close()
    message.acknowledge() if mode is AcknowledgeMode.CLIENT else session.commit()
    assert take(session.create_consumer(queue), 3) == texts(1, 2, 3)


def test_closing_a_session_gives_back_in_order(connection: Connection, queue: Queue) -> None:
    put(connection, queue, 4)
    session = connection.create_session(transacted=True)
    take(session.create_consumer(queue), 2)
    session.close()
    consumer = connection.create_session().create_consumer(queue)
    assert take(consumer, 4) == texts(0, 1, redelivered=True) + texts(2, 3)


def test_expiry_and_delivery_mode(connection: Connection, queue: Queue) -> None:
    put(connection, queue, 1, time_to_live=1)
    put(connection, queue, 1, delivery_mode=DeliveryMode.NON_PERSISTENT)
    message = connection.create_session().create_consumer(queue).receive(WAIT)
    assert message is not None
    assert message.delivery_mode is DeliveryMode.NON_PERSISTENT


def test_a_listener_gets_all_in_order(connection: Connection, queue: Queue) -> None:
    got: list[str | None] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        assert isinstance(message, TextMessage)
        got.append(message.text)
        if len(got) == 20:
            done.set()

    connection.create_session().create_consumer(queue).message_listener = listen
    put(connection, queue, 20)
    assert done.wait(WAIT / 1000)
    assert got == [str(number) for number in range(20)]


def test_a_kill_of_the_live_node_loses_nothing_and_repeats_nothing(queue: Queue) -> None:
    definition = load_definition("reference")
    adapter = make_adapter("stomp", definition.adapter_settings("stomp"))
    with Cluster(definition) as cluster:
        cluster.await_serving()
        options = ClientOptions(endpoints=cluster.endpoints("stomp"), initial_connect_attempts=3)
        with adapter.connection_factory(options).create_connection() as connection:
            connection.start()
            put(connection, queue, 5)
            session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
            consumer = session.create_consumer(queue)
            message = consumer.receive(WAIT)
            assert message is not None
            message.acknowledge()
            assert take(consumer, 1) == texts(1)
            cluster.kill_live()
            cluster.await_serving()
            put(connection, queue, 1)
            session.recover()
            after = take(consumer, 5)
            assert [text for text, _ in after] == ["1", "2", "3", "4", "0"]
            assert after[0][1]  # it had been seen (ACK-AUTO-03)
