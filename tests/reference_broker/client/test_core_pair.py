"""The client against a real pair of nodes: processes, sockets, SIGKILL and SIGSTOP."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reference_broker.client import ClientOptions, CoreConnectionFactory, Endpoint, FailoverConnection
from reference_broker.client.driver import TransportLost
from reference_broker.client.events import FailoverEventKind
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    JMSException,
    Message,
    Queue,
    StaleSessionException,
    TextMessage,
    TransactionRolledBackException,
)
from tests.reference_broker.client.background import Background
from tests.reference_broker.client.events import Told
from tests.reference_broker.node_process import NodeProcess

QUEUE = Queue("q")
SOON = 10_000


class Pair:
    def __init__(self, live: NodeProcess, backup: NodeProcess) -> None:
        self.live, self.backup = live, backup

    def connect(self, **options: object) -> FailoverConnection:
        endpoints = tuple(Endpoint(*node.address) for node in (self.live, self.backup))
        settings: dict[str, object] = {"endpoints": endpoints, "heartbeat": 0.5, "heartbeat_ttl": 10.0}
        chosen = ClientOptions(**{**settings, **options})  # type: ignore[arg-type]
        return CoreConnectionFactory(chosen).create_connection()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with NodeProcess(tmp_path, "a", "--ha", "shared-store") as live:
        live.event("serving")
        with NodeProcess(tmp_path, "b", "--ha", "shared-store") as backup:
            yield Pair(live, backup)


def text_of(message: Message | None) -> str:
    assert isinstance(message, TextMessage)
    return message.text or ""


def test_a_stream_of_sends_and_receives_over_a_kill(pair: Pair) -> None:
    with pair.connect() as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        consumer = connection.create_session().create_consumer(QUEUE)
        connection.start()

        def send() -> None:
            for number in range(600):
                if number == 200:
                    pair.live.kill()
                producer.send(TextMessage(str(number)))

        sender = Background(send)
        received: list[tuple[int, bool]] = []
        raised: list[JMSException] = []
        while len({number for number, _ in received}) < 600:
            try:
                message = consumer.receive(SOON)
            except JMSException as error:
                raised.append(error)
                continue
            assert message is not None
            received.append((int(text_of(message)), message.redelivered))
        sender.result()
        assert [error.code for error in raised] in ([], [Code.CALL_UNBLOCKED])
        numbers = [number for number, _ in received]
        assert numbers == list(range(600))
        told.restored()
        assert [error.code for error in told.errors][:1] == [Code.CONNECTION_LOST]


def test_transactions_and_client_sessions_over_a_kill(pair: Pair) -> None:
    with pair.connect() as connection:
        connection.start()
        transacted = connection.create_session(True)
        out = transacted.create_producer(Queue("out"))
        client = connection.create_session(False, AcknowledgeMode.CLIENT)
        client.create_producer(QUEUE).send(TextMessage("x"))
        consumer = client.create_consumer(QUEUE)
        old = consumer.receive(SOON)
        assert old is not None
        out.send(TextMessage("old"))
        pair.live.kill()
        out.send(TextMessage("new"))
        with pytest.raises(TransactionRolledBackException):
            transacted.commit()
        out.send(TextMessage("replayed"))
        transacted.commit()
        with pytest.raises(StaleSessionException):
            old.acknowledge()
        again = consumer.receive(SOON)
        assert again is not None
        assert again.redelivered
        assert again.delivery_count >= 2
        again.acknowledge()
        check = client.create_consumer(Queue("out"))
        assert text_of(check.receive(SOON)) == "replayed"
        assert check.receive_no_wait() is None


def test_a_call_on_a_frozen_node_is_released_by_the_heartbeats(pair: Pair) -> None:
    with pair.connect(heartbeat=0.2, heartbeat_ttl=1.0, connect_timeout=0.5) as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        producer.send(TextMessage("1"))
        begun = time.monotonic()
        pair.live.signal(signal.SIGSTOP)
        sender = Background(lambda: producer.send(TextMessage("2")))
        told.wait(lambda told: bool(told.errors))
        noticed = time.monotonic() - begun
        assert noticed >= 0.5
        pair.live.kill()
        sender.result(20)
        told.restored()


def test_a_closed_socket_is_noticed_without_heartbeats(pair: Pair) -> None:
    with pair.connect(heartbeat=30.0, heartbeat_ttl=60.0) as connection:
        told = Told(connection)
        begun = time.monotonic()
        pair.live.kill()
        told.wait(lambda told: bool(told.events))
        assert time.monotonic() - begun < 2
        told.restored()


def test_both_gone_and_one_comes_back(pair: Pair, tmp_path: Path) -> None:
    with pair.connect() as connection:
        told = Told(connection)
        producer = connection.create_session().create_producer(QUEUE)
        pair.backup.kill()
        pair.live.kill()
        told.wait(lambda told: bool(told.errors))
        waiting = Background(lambda: producer.send(TextMessage("x")))
        host, port = pair.live.address
        with NodeProcess(tmp_path, "c", "--core", f"{host}:{port}", "--ha", "shared-store"):
            waiting.result(20)
            told.restored()


def test_nobody_comes_back(pair: Pair) -> None:
    connection = pair.connect(reconnect_attempts=2, retry_interval=0.01)
    told = Told(connection)
    producer = connection.create_session().create_producer(QUEUE)
    pair.backup.kill()
    pair.live.kill()
    told.wait(lambda told: FailoverEventKind.FAILOVER_FAILED in told.events)
    with pytest.raises(JMSException) as raised:
        producer.send(TextMessage("x"))
    assert raised.value.code is Code.CONNECTION_FAILED
    connection.close()


def test_many_sessions_fail_over_many_times(pair: Pair) -> None:
    """Transports destroyed under load again and again: nothing is lost, sends are in order, repeats are flagged."""
    with pair.connect() as connection, pair.connect() as steady:
        told = Told(connection)
        queues = [Queue(f"q{number}") for number in range(4)]
        connection.start()
        steady.start()
        seen: dict[Queue, list[tuple[int, bool]]] = {queue: [] for queue in queues}
        complete = threading.Semaphore(0)

        def listen(queue: Queue) -> None:
            def listener(message: Message) -> None:
                number = int(text_of(message))
                seen[queue].append((number, message.redelivered))
                if number == 149:
                    complete.release()

            connection.create_session().create_consumer(queue).message_listener = listener

        def send(queue: Queue) -> None:
            producer = connection.create_session().create_producer(queue)
            for number in range(150):
                producer.send(TextMessage(str(number)))

        for queue in queues:
            listen(queue)
        senders = [Background(lambda queue=queue: send(queue)) for queue in queues]  # type: ignore[misc]
        cuts = 0
        while any(sender.running for sender in senders) and cuts < 8:
            connection._engine.lost(connection._engine.machine.epoch, TransportLost("cut by the test"))
            cuts += 1
            told.restored(cuts)
        for sender in senders:
            sender.result(60)
        for _ in queues:
            assert complete.acquire(timeout=30)
        for queue in queues:
            first = [number for number, redelivered in seen[queue] if not redelivered]
            assert first == sorted(set(first)), "an unflagged repeat, or out of order"
            assert {number for number, _ in seen[queue]} == set(range(150))
