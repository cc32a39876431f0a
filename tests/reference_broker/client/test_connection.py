from __future__ import annotations

import threading
import time

import pytest

from reference_broker.broker.commands import Acknowledge, CloseSession, OpenConsumer, OpenSession, Send
from reference_broker.client.driver import TransportLost
from reference_broker.client.events import FailoverEventKind
from reference_broker.defects import UnknownDefect
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    ConnectionFailedException,
    ConnectionLostException,
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    JMSSecurityException,
    Message,
    Queue,
    TextMessage,
)
from tests.reference_broker.client.background import Background
from tests.reference_broker.client.events import Told
from tests.reference_broker.client.memory_wire import ONE, TWO, Network

QUEUE = Queue("q")


# -- connecting ----------------------------------------------------------------------------------------------


def test_the_first_connect_tries_what_is_listed_as_often_as_allowed(network: Network) -> None:
    network.down = True
    with pytest.raises(ConnectionFailedException):
        network.connect(initial_connect_attempts=2)
    assert network.attempts == [ONE, TWO] * 2


def test_refused_credentials_end_the_first_connect(network: Network) -> None:
    network.refusal = JMSSecurityException("wrong password")
    with pytest.raises(JMSSecurityException):
        network.connect(initial_connect_attempts=-1)
    assert network.attempts == [ONE]


def test_a_client_id_is_set_once_before_any_use_and_by_one_connection(network: Network) -> None:
    with network.connect() as first, network.connect(client_id="admin") as second:
        first.client_id = "me"
        assert first.client_id == "me"
        with pytest.raises(IllegalStateException):
            first.client_id = "again"
        with pytest.raises(IllegalStateException):
            second.client_id = "mine"
        with pytest.raises(InvalidClientIDException):
            network.connect(client_id="me")
        used = network.connect()
        used.start()
        with pytest.raises(IllegalStateException):
            used.client_id = "late"
        used.close()
        first.create_session().create_producer(QUEUE).send(TextMessage("x"))


def test_an_unknown_defect_is_refused(network: Network) -> None:
    with pytest.raises(UnknownDefect):
        network.connect(defects=frozenset({"no such thing"}))


# -- a loss --------------------------------------------------------------------------------------------------


def test_one_loss_one_notification_and_all_threads_finish(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        producers = [connection.create_session().create_producer(QUEUE) for _ in range(16)]
        network.arm(Send, "drop-req")
        senders = [Background(lambda p=producer: p.send(TextMessage("x"))) for producer in producers]  # type: ignore[misc]
        for sender in senders:
            sender.result()
        told.restored()
        assert told.events == [
            FailoverEventKind.FAILURE_DETECTED,
            FailoverEventKind.FAILOVER_STARTED,
            FailoverEventKind.FAILOVER_COMPLETED,
        ]
        assert [type(error) for error in told.errors] == [ConnectionLostException]
        assert told.errors[0].code is Code.CONNECTION_LOST
        assert isinstance(told.errors[0], ConnectionLostException)
        assert told.errors[0].recovering


def test_everything_is_made_again_and_the_started_flag_is_kept(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        pairs = []
        for number in range(3):
            session = connection.create_session()
            queue = Queue(f"q{number}")
            pairs.append((session.create_producer(queue), session.create_consumer(queue)))
        network.cut()
        told.restored()
        for producer, consumer in pairs:
            producer.send(TextMessage("x"))
            assert consumer.receive(20) is None  # stopped before, stopped now
        connection.start()
        for _, consumer in pairs:
            assert consumer.receive(2000) is not None
        assert len(network.of(OpenSession)) == 6
        assert len(network.of(OpenConsumer)) == 6


def test_a_loss_while_restoring_lets_nobody_through_and_is_not_told_twice(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(OpenSession, "drop-reply")
        network.cut()
        producer.send(TextMessage("x"))
        told.restored()
        assert len(network.attempts) == 3
        assert [error.code for error in told.errors] == [Code.CONNECTION_LOST]
        first_after = [type(command) for command in network.commands].index(Send)
        assert len(network.of(OpenSession)) == 3
        assert isinstance(network.commands[first_after - 1], OpenSession)


def test_an_overdue_answer_while_restoring_fails_the_attempt(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        session = connection.create_session()
        network.arm(OpenSession, "time-out")
        network.cut()
        told.restored()
        session.create_producer(QUEUE).send(TextMessage("x"))
        assert len(network.attempts) == 3


def test_a_call_on_a_silent_transport_is_released_when_it_is_given_up(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(Send, "hold")
        sender = Background(lambda: producer.send(TextMessage("x")))
        network.wait_for(lambda: network.held == 1)
        connection._engine.lost(connection._engine.machine.epoch, TransportLost("silence"))
        sender.result()
        told.restored()
        assert connection._engine.valve.waiting == 0


def test_silence_is_detected_by_heartbeats(network: Network) -> None:
    with network.connect(heartbeat=0.02, heartbeat_ttl=0.1) as connection:
        told = Told(connection)
        told.wait(lambda told: bool(told.errors))
        assert "nothing was heard" in str(told.errors[0])


def test_a_call_that_timed_out_raises_and_the_connection_lives(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(Send, "time-out")
        with pytest.raises(JMSException) as raised:
            producer.send(TextMessage("x"))
        assert raised.value.code is Code.CALL_TIMED_OUT
        producer.send(TextMessage("y"))
        assert not told.events


# -- the end of failover -------------------------------------------------------------------------------------


def test_exhaustion_is_told_and_raised_everywhere(network: Network) -> None:
    with network.connect(reconnect_attempts=3) as connection:
        told = Told(connection)
        connection.start()
        session = connection.create_session(True)
        producer = session.create_producer(QUEUE)
        consumer = connection.create_session().create_consumer(QUEUE)
        waiting = Background(consumer.receive)
        network.arm(Send, "hold")
        other = connection.create_session().create_producer(Queue("other"))
        in_flight = Background(lambda: other.send(TextMessage("x")))
        network.wait_for(lambda: network.held == 1)
        network.go_down()
        told.wait(lambda told: FailoverEventKind.FAILOVER_FAILED in told.events and len(told.errors) == 2)
        assert len(network.attempts) == 1 + 6
        assert [error.code for error in told.errors] == [Code.CONNECTION_LOST, Code.FAILOVER_EXHAUSTED]
        with pytest.raises(ConnectionFailedException) as raised:
            in_flight.result()
        assert raised.value.outcome_unknown
        with pytest.raises(ConnectionFailedException):
            waiting.result()
        for call in (
            lambda: producer.send(TextMessage("x")),
            session.commit,
            session.rollback,
            connection.create_session,
            lambda: consumer.receive(1),
            consumer.receive_no_wait,
        ):
            begun = time.monotonic()
            with pytest.raises(ConnectionFailedException) as raised:
                call()
            assert raised.value.code is Code.CONNECTION_FAILED
            assert raised.value not in told.errors
            assert time.monotonic() - begun < 1


def test_nofailover_makes_a_loss_final(network: Network) -> None:
    with network.connect(failover=False) as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(Send, "drop-reply")
        with pytest.raises(JMSException) as raised:
            producer.send(TextMessage("x"))
        assert raised.value.outcome_unknown
        told.wait(lambda told: FailoverEventKind.FAILOVER_FAILED in told.events and bool(told.errors))
        assert told.events == [FailoverEventKind.FAILURE_DETECTED, FailoverEventKind.FAILOVER_FAILED]
        assert [error.code for error in told.errors] == [Code.NO_FAILOVER]
        assert len(network.attempts) == 1


def test_refused_credentials_end_the_failover(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        network.refusal = JMSSecurityException("not here")
        network.cut()
        told.wait(lambda told: len(told.errors) == 2)
        assert isinstance(told.errors[1], JMSSecurityException)
        assert len(network.attempts) == 2


def test_a_client_id_held_by_the_own_ghost_is_tried_again(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        network.refusal = InvalidClientIDException("in use")
        network.cut()
        network.wait_for(lambda: len(network.attempts) > 4)
        network.refusal = None
        told.restored()


def test_waiting_is_bounded_by_the_failover_timeout(network: Network) -> None:
    with network.connect(failover_timeout=0.05) as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        network.go_down()
        with pytest.raises(JMSException) as raised:
            producer.send(TextMessage("x"))
        assert not raised.value.outcome_unknown
        network.come_up()
        told.restored()
        producer.send(TextMessage("y"))


# -- close, stop, listeners ----------------------------------------------------------------------------------


def test_close_ends_an_endless_failover_and_releases_waiters(network: Network) -> None:
    connection = network.connect()
    told = Told(connection)
    producer = connection.create_session().create_producer(QUEUE)
    network.go_down()
    waiter = Background(lambda: producer.send(TextMessage("x")))
    told.wait(lambda told: bool(told.errors))
    begun = time.monotonic()
    connection.close()
    connection.close()
    assert time.monotonic() - begun < 2
    with pytest.raises(IllegalStateException):
        waiter.result()
    attempts = len(network.attempts)
    with pytest.raises(IllegalStateException):
        connection.create_session()
    assert len(network.attempts) == attempts


def test_the_exception_listener_may_close_the_connection(network: Network) -> None:
    connection = network.connect()
    closed = threading.Event()

    def listener(_error: JMSException) -> None:
        connection.close()
        closed.set()

    connection.exception_listener = listener
    network.go_down()
    assert closed.wait(5)


def test_the_exception_listener_may_make_calls(network: Network) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        sent = threading.Event()

        def listener(_error: JMSException) -> None:
            producer.send(TextMessage("from the listener"))
            sent.set()

        connection.exception_listener = listener
        network.cut()
        assert sent.wait(10)


def test_stop_waits_for_the_listener_and_holds_delivery(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session()
        producer = connection.create_session().create_producer(QUEUE)
        entered, leave, seen = threading.Event(), threading.Event(), []

        def listener(message: Message) -> None:
            seen.append(message)
            entered.set()
            leave.wait(10)

        session.create_consumer(QUEUE).message_listener = listener
        connection.start()
        producer.send(TextMessage("1"))
        producer.send(TextMessage("2"))
        assert entered.wait(10)
        stopping = Background(connection.stop)
        assert stopping.running
        leave.set()
        stopping.result()
        assert len(seen) == 1
        connection.start()
        network.wait_for(lambda: len(network.of(Acknowledge)) == 2)


@pytest.mark.parametrize("what", ["connection", "session", "stop"])
def test_ending_things_from_their_own_listener_raises(network: Network, what: str) -> None:
    with network.connect() as connection:
        session = connection.create_session()
        errors: list[Exception] = []
        done = threading.Event()

        def listener(_message: Message) -> None:
            try:
                {"connection": connection.close, "session": session.close, "stop": connection.stop}[what]()
            except IllegalStateException as error:
                errors.append(error)
            done.set()

        consumer = session.create_consumer(QUEUE)
        consumer.message_listener = listener
        connection.start()
        connection.create_session().create_producer(QUEUE).send(TextMessage("x"))
        assert done.wait(10)
        assert errors


def test_a_listener_may_close_its_consumer(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session()
        consumer = session.create_consumer(QUEUE)
        done = threading.Event()

        def listener(_message: Message) -> None:
            consumer.close()
            done.set()

        consumer.message_listener = listener
        connection.start()
        connection.create_session().create_producer(QUEUE).send(TextMessage("x"))
        assert done.wait(10)


def test_listeners_of_a_session_never_overlap_over_many_failovers(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session(False, AcknowledgeMode.DUPS_OK)
        running, overlaps, seen = threading.Lock(), [], set()
        complete = threading.Event()

        def listener(message: Message) -> None:
            if not running.acquire(blocking=False):
                overlaps.append(message)
                return
            assert isinstance(message, TextMessage)
            seen.add(message.text)
            if len(seen) == 60:
                complete.set()
            running.release()

        for number in range(2):
            session.create_consumer(Queue(f"q{number}")).message_listener = listener
        connection.start()
        producers = [connection.create_session().create_producer(Queue(f"q{number}")) for number in range(2)]
        for number in range(60):
            if number % 6 == 0:
                network.cut()
            producers[number % 2].send(TextMessage(str(number)))
        assert complete.wait(10)
        assert not overlaps


def test_a_listener_that_commits_during_the_outage_completes(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        session = connection.create_session(True)
        outcomes: list[object] = []
        done = threading.Semaphore(0)

        def listener(message: Message) -> None:
            if not message.redelivered:
                network.cut()
            try:
                session.commit()
                outcomes.append("committed")
            except JMSException as error:
                outcomes.append(error.code)
            done.release()

        session.create_consumer(QUEUE).message_listener = listener
        connection.start()
        connection.create_session().create_producer(QUEUE).send(TextMessage("x"))
        assert done.acquire(timeout=10)
        assert done.acquire(timeout=10)
        assert outcomes == [Code.TX_ROLLED_BACK, "committed"]
        told.restored()


def test_closing_a_connection_tells_the_broker_what_was_received(network: Network) -> None:
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(False, AcknowledgeMode.CLIENT)
        session.create_producer(QUEUE).send(TextMessage("x"))
        assert session.create_consumer(QUEUE).receive(2000) is not None
    (closed,) = network.of(CloseSession)
    assert isinstance(closed, CloseSession)
    assert len(closed.delivered) == 1


def test_local_methods_do_not_wait_during_an_outage(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        session = connection.create_session()
        consumer = session.create_consumer(QUEUE)
        network.go_down()
        told.wait(lambda told: bool(told.errors))
        session.create_text_message("x")
        session.create_producer(session.create_queue("other"))
        consumer.message_listener = lambda _message: None
        connection.stop()
        connection.start()
        assert consumer.message_selector is None
