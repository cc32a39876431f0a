"""Each client defect, armed, does what its sentence says; what must catch it is the suite's business."""

from __future__ import annotations

import threading

import pytest

from reference_broker.broker.commands import Acknowledge, Commit, Send
from reference_broker.client.connection import FailoverConnection
from reference_broker.client.events import FailoverEventKind
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    JMSException,
    JMSSecurityException,
    Message,
    Queue,
    StaleSessionException,
    TextMessage,
    TransactionRolledBackException,
)
from tests.reference_broker.client.background import Background
from tests.reference_broker.client.events import Told
from tests.reference_broker.client.memory_wire import Network
from tests.reference_broker.client.test_producer import texts
from tests.reference_broker.client.test_session import fill, take

QUEUE = Queue("q")


def wrong(network: Network, defect: str, **options: object) -> FailoverConnection:
    connection = network.connect(defects=frozenset({defect}), **options)
    connection.start()
    return connection


def fail_over(network: Network, connection: FailoverConnection) -> None:
    told = Told(connection)
    network.cut()
    told.restored()


def test_commit_succeeds_after_failover(network: Network) -> None:
    with wrong(network, "commit-succeeds-after-failover") as connection:
        session = connection.create_session(True)
        session.create_producer(QUEUE).send(TextMessage("x"))
        fail_over(network, connection)
        session.commit()
    assert texts(network) == []


def test_half_stale_transaction_commits(network: Network) -> None:
    with wrong(network, "half-stale-transaction-commits") as connection:
        session = connection.create_session(True)
        producer = session.create_producer(QUEUE)
        producer.send(TextMessage("old"))
        fail_over(network, connection)
        producer.send(TextMessage("new"))
        session.commit()
    assert texts(network) == ["new"]


def test_interrupted_commit_called_rolled_back(network: Network) -> None:
    with wrong(network, "interrupted-commit-called-rolled-back") as connection:
        session = connection.create_session(True)
        session.create_producer(QUEUE).send(TextMessage("x"))
        network.arm(Commit, "drop-reply")
        with pytest.raises(TransactionRolledBackException):
            session.commit()
    assert texts(network) == ["x"]


def test_stale_acknowledge_succeeds(network: Network) -> None:
    fill(network, "a")
    with wrong(network, "stale-acknowledge-succeeds") as connection:
        message = connection.create_session(False, AcknowledgeMode.CLIENT).create_consumer(QUEUE).receive(2000)
        assert message is not None
        fail_over(network, connection)
        message.acknowledge()
    assert texts(network) == ["a"]


def test_recover_leaves_session_dirty(network: Network) -> None:
    fill(network, "a")
    with wrong(network, "recover-leaves-session-dirty") as connection:
        session = connection.create_session(False, AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(QUEUE)
        take(consumer)
        fail_over(network, connection)
        session.recover()
        message = consumer.receive(2000)
        assert message is not None
        with pytest.raises(StaleSessionException):
            message.acknowledge()


@pytest.mark.parametrize(
    ("defect", "fault", "stored"),
    [
        ("interrupted-send-resent-unprotected", "drop-reply", ["x", "x"]),
        ("interrupted-send-succeeds", "drop-req", []),
    ],
)
def test_interrupted_sends(network: Network, defect: str, fault: str, stored: list[str]) -> None:
    with wrong(network, defect) as connection:
        producer = connection.create_session().create_producer(QUEUE)
        network.arm(Send, fault)
        producer.send(TextMessage("x"))
    assert texts(network) == stored


def test_parked_send_dropped(network: Network) -> None:
    with wrong(network, "parked-send-dropped") as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        network.go_down()
        sender = Background(lambda: producer.send(TextMessage("x")))
        told.wait(lambda told: bool(told.errors))
        network.wait_for(lambda: connection._engine.valve.waiting == 1 or not sender.running)
        network.come_up()
        sender.result()
    assert texts(network) == []


def test_prefetched_survives_failover(network: Network) -> None:
    fill(network, "a", "b")
    with wrong(network, "prefetched-survives-failover") as connection:
        consumer = connection.create_session().create_consumer(QUEUE)
        assert take(consumer) == ("a", False)
        fail_over(network, connection)
        assert [take(consumer), take(consumer)[0]] == [("b", False), "b"]


@pytest.mark.parametrize(("defect", "times"), [("loss-notified-twice", 2), ("loss-not-notified", 0)])
def test_notifications(network: Network, defect: str, times: int) -> None:
    connection = wrong(network, defect)
    told = Told(connection)
    network.cut()
    told.completed()
    connection.close()
    assert [error.code for error in told.errors] == [Code.CONNECTION_LOST] * times


def test_waiters_left_in_valve(network: Network) -> None:
    connection = wrong(network, "waiters-left-in-valve")
    told = Told(connection)
    valve = connection._engine.valve
    producer = connection.create_session().create_producer(QUEUE)
    network.go_down()
    waiter = Background(lambda: producer.send(TextMessage("x")))
    network.wait_for(lambda: valve.waiting == 1)  # attempts, of which there is no end, wake this up
    network.refusal = JMSSecurityException("ends the attempts")
    told.wait(lambda told: FailoverEventKind.FAILOVER_FAILED in told.events)
    connection.close()
    assert waiter.running
    valve._forgets_waiters = False
    valve.fail(connection._engine._failure)
    with pytest.raises(JMSException):
        waiter.result()


def test_receive_raises_in_outage(network: Network) -> None:
    with wrong(network, "receive-raises-in-outage") as connection:
        consumer = connection.create_session().create_consumer(QUEUE)
        network.go_down()
        with pytest.raises(JMSException):
            consumer.receive(10)


def test_late_loss_kills_new_transport(network: Network) -> None:
    with wrong(network, "late-loss-kills-new-transport") as connection:
        told = Told(connection)
        network.cut()
        told.wait(lambda told: len(told.errors) >= 2)


def test_application_error_fails_over(network: Network) -> None:
    with wrong(network, "application-error-fails-over") as connection:
        told = Told(connection)
        with pytest.raises(JMSException):
            connection.create_session().create_consumer(QUEUE, "a = 1")
        told.restored()


def test_silence_ignored(network: Network) -> None:
    with wrong(network, "silence-ignored", heartbeat=0.01, heartbeat_ttl=0.02) as connection:
        told = Told(connection)
        assert connection._engine._detector is not None
        silent = threading.Event()
        report = connection._engine._detector._report
        connection._engine._detector._report = lambda *args: (report(*args), silent.set())  # type: ignore[assignment]
        assert silent.wait(10)
        assert not told.errors


def test_auto_ack_failure_swallowed(network: Network) -> None:
    fill(network, "a")
    with wrong(network, "auto-ack-failure-swallowed") as connection:
        consumer = connection.create_session().create_consumer(QUEUE)
        network.arm(Acknowledge, "drop-req")
        assert [take(consumer), take(consumer)] == [("a", False), ("a", True)]


def test_acknowledges_before_listener_returns(network: Network) -> None:
    fill(network, "a")
    with wrong(network, "acknowledges-before-listener-returns") as connection:
        acknowledged: list[bool] = []
        done = threading.Event()

        def listener(_message: Message) -> None:
            acknowledged.append(bool(network.of(Acknowledge)))
            done.set()

        connection.create_session().create_consumer(QUEUE).message_listener = listener
        assert done.wait(10)
        assert acknowledged == [True]


def test_dups_ok_acknowledges_prefetched(network: Network) -> None:
    fill(network, *"abcdef")
    with wrong(network, "dups-ok-acknowledges-prefetched", dups_ok_batch=2) as connection:
        consumer = connection.create_session(False, AcknowledgeMode.DUPS_OK).create_consumer(QUEUE)
        assert [take(consumer)[0] for _ in range(3)] == ["a", "b", "c"]
        covered = [number for command in network.of(Acknowledge) for number in command.deliveries]  # type: ignore[attr-defined]
        assert len(covered) > 3
