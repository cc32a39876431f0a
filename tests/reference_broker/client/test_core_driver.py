from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from reference_broker.broker.commands import (
    BrokerAnswer,
    ClientCommand,
    Connect,
    Connected,
    Deliver,
    Disconnect,
    Done,
    OpenSession,
    Ping,
    Recover,
    Refusal,
    Refused,
    Send,
)
from reference_broker.broker.envelope import Address, Envelope
from reference_broker.client.core_driver import CoreDriver
from reference_broker.client.driver import (
    CallTimedOut,
    Delivery,
    Endpoint,
    Identity,
    NotServing,
    SendSpec,
    SessionSpec,
    TransportLost,
)
from reference_broker.jms import AcknowledgeMode, InvalidDestinationException, JMSSecurityException, Queue, TextMessage
from reference_broker.wire.core.packets import BrokerPacket, ClientPacket, PacketReader, encode
from tests.reference_broker.client.background import Background

Reply = Callable[["Peer", ClientCommand], None]


class Peer:
    """One accepted socket that does with each command what the test says."""

    def __init__(self, reply: Reply) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._listener.getsockname()[:2])
        self.packets: list[ClientPacket] = []
        self.socket: socket.socket | None = None
        self.changed = threading.Condition()
        self._reply = reply
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.socket, _ = self._listener.accept()
            reader: PacketReader[ClientPacket] = PacketReader(ClientPacket)
            while data := self.socket.recv(65536):
                for packet in reader.feed(data):
                    with self.changed:
                        self.packets.append(packet)
                        self.changed.notify_all()
                    self._reply(self, packet.body)
        except OSError:
            return

    def say(self, *answers: BrokerAnswer) -> None:
        assert self.socket is not None
        self.socket.sendall(b"".join(encode(BrokerPacket(1, 0, answer)) for answer in answers))

    def wait_for(self, kind: type[ClientCommand]) -> ClientCommand:
        def found() -> ClientCommand | None:
            return next((packet.body for packet in self.packets if isinstance(packet.body, kind)), None)

        with self.changed:
            assert self.changed.wait_for(lambda: found() is not None, 10)
        command = found()
        assert command is not None
        return command

    def close(self) -> None:
        if self.socket is not None:
            with suppress(OSError):  # the client was first
                self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
        self._listener.close()
        self._thread.join(10)


class Ear:
    def __init__(self) -> None:
        self.heard: list[object] = []
        self.losses: list[TransportLost] = []
        self.lost_event = threading.Event()

    def delivered(self, delivery: Delivery) -> None:
        self.heard.append(delivery.token)

    def restarted(self, session: str) -> None:
        self.heard.append(f"restarted {session}")

    def lost(self, cause: TransportLost) -> None:
        self.losses.append(cause)
        self.lost_event.set()


def obliging(peer: Peer, command: ClientCommand) -> None:
    if isinstance(command, Connect):
        peer.say(Connected(request=command.request, node="n", epoch=1))
    elif command.request:
        peer.say(Done(request=command.request))


@contextmanager
def driving(reply: Reply) -> Iterator[tuple[Peer, CoreDriver, Ear]]:
    peer, ear = Peer(reply), Ear()
    driver = CoreDriver(ear, heartbeat=1.0, call_timeout=10.0)
    try:
        yield peer, driver, ear
    finally:
        driver.abort()
        driver.close()
        peer.close()


def connect(peer: Peer, driver: CoreDriver, timeout: float = 10.0) -> None:
    driver.connect(peer.endpoint, Identity("c"), timeout)


def envelope() -> Envelope:
    return Envelope(destination=Address("q"))


def test_packets_are_numbered_but_for_pings() -> None:
    with driving(obliging) as (peer, driver, _):
        connect(peer, driver)
        driver.ping()
        driver.grant("c", 1)
        driver.open_session(SessionSpec("s", AcknowledgeMode.AUTO))
        assert [packet.id for packet in peer.packets if not isinstance(packet.body, Ping)] == [1, 2, 3]
        assert [packet.id for packet in peer.packets if isinstance(packet.body, Ping)] == [0]
        hello = peer.packets[0].body
        assert isinstance(hello, Connect)
        assert hello.heartbeat_ms == 1000


def test_a_peer_that_never_shakes_hands_is_a_failed_attempt() -> None:
    with driving(lambda _peer, _command: None) as (peer, driver, _):
        begun = time.monotonic()
        with pytest.raises(TransportLost):
            connect(peer, driver, 0.1)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("why", "error"), [(Refusal.NOT_SERVING, NotServing), (Refusal.SECURITY, JMSSecurityException)]
)
def test_refused_handshakes(why: Refusal, error: type[Exception]) -> None:
    def refuse(peer: Peer, command: ClientCommand) -> None:
        peer.say(Refused(request=command.request, why=why, reason="no"))

    with driving(refuse) as (peer, driver, _), pytest.raises(error):
        connect(peer, driver)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = Endpoint(*taken.getsockname()[:2])
    with pytest.raises(TransportLost):
        CoreDriver(Ear()).connect(endpoint, Identity("c"), 5.0)


def test_a_refused_operation_is_no_loss() -> None:
    def reply(peer: Peer, command: ClientCommand) -> None:
        if isinstance(command, Send):
            peer.say(Refused(request=command.request, why=Refusal.INVALID_DESTINATION, reason="no"))
        else:
            obliging(peer, command)

    with driving(reply) as (peer, driver, ear):
        connect(peer, driver)
        message = TextMessage("x")
        message.destination = Queue("q")
        with pytest.raises(InvalidDestinationException):
            driver.send(message, SendSpec("s"), 5.0)
        driver.open_session(SessionSpec("s", AcknowledgeMode.AUTO))
        assert not ear.losses


def test_a_late_answer_is_not_taken_for_another() -> None:
    late: list[int] = []

    def reply(peer: Peer, command: ClientCommand) -> None:
        if isinstance(command, Send) and not late:
            late.append(command.request)
        elif isinstance(command, Send):
            peer.say(
                Refused(request=late[0], why=Refusal.RESOURCE, reason="late"),
                Done(request=command.request),
            )
        else:
            obliging(peer, command)

    with driving(reply) as (peer, driver, _):
        connect(peer, driver)
        message = TextMessage("x")
        message.destination = Queue("q")
        with pytest.raises(CallTimedOut):
            driver.send(message, SendSpec("s"), 0.05)
        driver.send(message, SendSpec("s"), 5.0)


@pytest.mark.parametrize("how", ["abort", "close", "cut in a frame", "garbage"])
def test_a_call_in_flight_is_released_by_the_loss(how: str) -> None:
    def reply(peer: Peer, command: ClientCommand) -> None:
        if isinstance(command, Connect):
            obliging(peer, command)

    with driving(reply) as (peer, driver, ear):
        connect(peer, driver)
        call = Background(lambda: driver.open_session(SessionSpec("s", AcknowledgeMode.AUTO)))
        command = peer.wait_for(OpenSession)
        assert peer.socket is not None
        if how == "abort":
            driver.abort()
        elif how == "garbage":
            peer.socket.sendall(b"\x00\x00\x00\x01\xc1")
        else:
            if how == "cut in a frame":
                peer.socket.sendall(encode(BrokerPacket(1, 0, Done(request=command.request)))[:-1])
            peer.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(TransportLost):
            call.result()
        assert ear.lost_event.wait(10)
        assert len(ear.losses) == 1
        with pytest.raises(TransportLost):
            driver.ping()


def test_a_restart_is_reported_between_old_copies_and_new_ones() -> None:
    def reply(peer: Peer, command: ClientCommand) -> None:
        if isinstance(command, Recover):
            old = Deliver(consumer="c", delivery=1, envelope=envelope())
            new = Deliver(consumer="c", delivery=2, envelope=envelope())
            peer.say(old, Done(request=command.request), new)
        else:
            obliging(peer, command)

    with driving(reply) as (peer, driver, ear):
        connect(peer, driver)
        driver.recover("s", (), 5.0)
        driver.open_session(SessionSpec("s", AcknowledgeMode.AUTO))
        assert ear.heard == [1, "restarted s", 2]


def test_pings_do_not_wait_for_a_peer_that_does_not_read() -> None:
    stalled, leave = threading.Event(), threading.Event()

    def reply(peer: Peer, command: ClientCommand) -> None:
        obliging(peer, command)
        stalled.set()
        leave.wait(20)

    with driving(reply) as (peer, driver, _):
        connect(peer, driver)
        assert stalled.wait(10)
        message = TextMessage("x" * 30_000_000)
        message.destination = Queue("q")
        sender = Background(lambda: driver.send(message, SendSpec("s", confirm=False), 5.0))
        begun = time.monotonic()
        for _ in range(1000):
            driver.ping()
        assert time.monotonic() - begun < 5
        driver.abort()
        leave.set()
        with pytest.raises(TransportLost):
            sender.result()


def test_close_says_farewell_and_leaves_no_thread() -> None:
    with driving(obliging) as (peer, driver, _):
        connect(peer, driver)
        driver.close()
        peer.wait_for(Disconnect)
        assert "c core reader" not in {thread.name for thread in threading.enumerate()}
