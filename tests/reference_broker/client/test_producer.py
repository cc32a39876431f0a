from __future__ import annotations

import threading
import time

import pytest

from reference_broker.broker.commands import Send
from reference_broker.client.driver import Feature
from reference_broker.jms import (
    Code,
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    Queue,
    TextMessage,
    Topic,
)
from tests.reference_broker.client.background import Background
from tests.reference_broker.client.events import Told
from tests.reference_broker.client.memory_wire import Network

QUEUE = Queue("q")


def texts(network: Network) -> list[str]:
    """All that is on the queue, taken by a client of its own."""
    with network.connect() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        found = []
        while (message := consumer.receive_no_wait()) is not None:
            assert isinstance(message, TextMessage)
            found.append(message.text or "")
        return found


def test_the_provider_sets_its_headers_at_the_time_of_the_call(network: Network) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        message = TextMessage("x")
        message.message_id, message.priority, message.expiration, message.destination = "junk", 9, 1, Queue("junk")
        before = time.time_ns() // 1_000_000
        producer.send(message, priority=3, time_to_live=60_000, delivery_mode=DeliveryMode.NON_PERSISTENT)
        after = time.time_ns() // 1_000_000
    assert message.message_id is not None
    assert message.message_id.startswith("ID:")
    assert before <= message.timestamp <= after
    assert message.expiration == message.timestamp + 60_000
    assert (message.priority, message.destination) == (3, QUEUE)
    assert message.delivery_mode is DeliveryMode.NON_PERSISTENT


def test_message_ids_are_unique(network: Network) -> None:
    ids = set()
    for _ in range(2):
        with network.connect() as connection:
            for _ in range(2):
                session = connection.create_session()
                for _ in range(2):
                    producer = session.create_producer(QUEUE)
                    for _ in range(2):
                        producer.send(message := Message())
                        ids.add(message.message_id)
    assert len(ids) == 16


def test_what_was_sent_is_independent_of_the_message(network: Network) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        message = TextMessage("one")
        producer.send(message)
        message.text = "two"
        producer.send(message)
    assert texts(network) == ["one", "two"]


def test_destinations_are_checked(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session()
        with pytest.raises(InvalidDestinationException):
            session.create_producer(None).send(Message())
        with pytest.raises(JMSException) as raised:
            session.create_producer(QUEUE).send(Message(), destination=Queue("other"))
        assert raised.value.code is Code.UNSUPPORTED
        with pytest.raises(JMSException) as raised:
            session.create_producer(Topic("t"))
        assert raised.value.code is Code.UNSUPPORTED


@pytest.mark.parametrize("fault", ["drop-req", "drop-reply"])
def test_a_protected_send_is_repeated_and_stored_once(network: Network, fault: str) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        producer.send(TextMessage("1"))
        network.arm(Send, fault)
        producer.send(TextMessage("2"))
        producer.send(TextMessage("3"))
    assert texts(network) == ["1", "2", "3"]


@pytest.mark.parametrize(("fault", "copies"), [("drop-req", 0), ("drop-reply", 1)])
@pytest.mark.parametrize("how", ["option", "wire"])
def test_an_unprotected_send_is_reported_and_not_repeated(network: Network, fault: str, copies: int, how: str) -> None:
    if how == "wire":
        network.features -= {Feature.PRODUCER_SEQUENCE}
    with network.connect(producer_sequences=how == "wire") as connection:
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(Send, fault)
        with pytest.raises(JMSException) as raised:
            producer.send(TextMessage("x"))
        assert raised.value.code is Code.CALL_UNBLOCKED
    assert texts(network) == ["x"] * copies


@pytest.mark.parametrize(("fault", "copies"), [("drop-req", 0), ("drop-reply", 1)])
def test_a_non_persistent_send_is_lost_silently_and_never_twice(network: Network, fault: str, copies: int) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(Send, fault)
        producer.send(TextMessage("x"), delivery_mode=DeliveryMode.NON_PERSISTENT)
    assert texts(network) == ["x"] * copies


def test_sends_of_an_outage_wait_and_keep_their_order(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        producer.send(TextMessage("0"))
        network.go_down()

        def send_three() -> None:
            for number in "123":
                producer.send(TextMessage(number))

        sender = Background(send_three)
        told.wait(lambda told: len(told.errors) == 1)
        assert sender.running
        network.come_up()
        sender.result()
    assert texts(network) == ["0", "1", "2", "3"]


def test_a_refused_send_goes_to_the_caller_and_leaves_the_connection_alone(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        session = connection.create_session()
        with pytest.raises(JMSException) as raised:
            session.create_consumer(QUEUE, "a = 1")
        assert raised.value.code is Code.UNSUPPORTED
        session.create_producer(QUEUE).send(TextMessage("x"))
        assert len(network.attempts) == 1
        assert not told.events


def test_asynchronous_sends_complete_in_order_on_another_thread_over_a_failover(network: Network) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        completed: list[tuple[str, JMSException | None]] = []
        threads = set()

        def completion(message: Message, error: JMSException | None) -> None:
            assert isinstance(message, TextMessage)
            completed.append((message.text or "", error))
            threads.add(threading.current_thread())

        for number in range(100):
            if number == 50:
                network.arm(Send, "drop-reply")
            producer.send_async(TextMessage(str(number)), completion)
        producer.send(TextMessage("last"))
        producer.close()
        assert completed == [(str(number), None) for number in range(100)]
        assert threading.current_thread() not in threads
        with pytest.raises(IllegalStateException):
            producer.send(TextMessage("late"))
    assert texts(network) == [*map(str, range(100)), "last"]
