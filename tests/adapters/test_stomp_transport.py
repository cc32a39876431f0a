"""Losses, refusals and late answers of the STOMP driver, against a small server that does exactly what it is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from adapters.stomp import StompDialect, StompDriver
from reference_broker.client.driver import (
    CallTimedOut,
    ConsumerSpec,
    Delivery,
    Endpoint,
    Identity,
    NotServing,
    SendSpec,
    SessionSpec,
    TransportListener,
    TransportLost,
)
from reference_broker.jms import AcknowledgeMode, JMSException, JMSSecurityException, Queue, TextMessage
from reference_broker.wire.stomp.codec import Decoder, Frame, encode

WAIT = 5.0


class Server:
    """One client's server; `expect` takes the next frame, `say` writes one."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT)
        self._decoder = Decoder(10**6, "1.2")
        self._frames: list[Frame] = []
        self.endpoint = Endpoint(*self._listener.getsockname())
        self.client: socket.socket | None = None

    def accept(self) -> None:
        self.client, _ = self._listener.accept()
        self.client.settimeout(WAIT)

    def expect(self, command: str) -> Frame:
        assert self.client is not None
        while not self._frames:
            data = self.client.recv(65536)
            assert data, f"the client went away before {command}"
            self._frames += self._decoder.feed(data)
        frame = self._frames.pop(0)
        assert frame.command == command
        return frame

    def say(self, command: str, body: bytes = b"", before: bytes = b"", **headers: str) -> None:
        assert self.client is not None
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.client.sendall(before + encode(command, fields, body, "1.2"))

    def close(self) -> None:
        self._listener.close()
        if self.client is not None:
            self.client.close()


class Ear(TransportListener):
    def __init__(self) -> None:
        self.heard: list[Delivery] = []
        self.something = threading.Condition()
        self.losses: list[TransportLost] = []

    def delivered(self, delivery: Delivery) -> None:
        with self.something:
            self.heard.append(delivery)
            self.something.notify_all()

    def restarted(self, session: str) -> None: ...

    def lost(self, cause: TransportLost) -> None:
        with self.something:
            self.losses.append(cause)
            self.something.notify_all()


class Call:
    """A call on a thread of its own."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.error: BaseException | None = None

        def run() -> None:
            try:
                function(*arguments)  # type: ignore[operator]
            except Exception as error:  # noqa: BLE001 - handed to the test
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def end(self) -> BaseException | None:
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def driver(ear: Ear) -> Iterator[StompDriver]:
    driver = StompDriver(ear, StompDialect(), heartbeat=1.0, call_timeout=WAIT)
    yield driver
    driver.abort()
    driver.close()
    assert not [thread for thread in threading.enumerate() if "stomp" in thread.name.lower()]


def shake_hands(driver: StompDriver, server: Server) -> None:
    call = Call(driver.connect, server.endpoint, Identity("c", user="u", password="p"), WAIT)
    server.accept()
    assert server.expect("STOMP").headers["login"] == "u"
    server.say("CONNECTED", version="1.2", session="x", heart_beat="1000,1000")
    assert call.end() is None


def send(driver: StompDriver, timeout: float | None = WAIT) -> Call:
    message = TextMessage("x")
    message.destination = Queue("q")
    return Call(driver.send, message, SendSpec("s"), timeout)


def test_nobody_listens_is_a_loss(driver: StompDriver, server: Server) -> None:
    server.close()
    with pytest.raises(TransportLost, match="cannot connect"):
        driver.connect(server.endpoint, Identity("c"), WAIT)


def test_a_silent_peer_is_given_up_in_time(driver: StompDriver, server: Server) -> None:
    begin = time.monotonic()
    with pytest.raises(TransportLost, match="handshake"):
        driver.connect(server.endpoint, Identity("c"), 0.2)
    assert time.monotonic() - begin < WAIT


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"message": "node does not serve", "refusal": "not-serving"}, NotServing),
        ({"message": "Bad CONNECT: Access refused for user 'x'"}, JMSSecurityException),
        ({"message": "User name [x] or password is invalid."}, JMSSecurityException),
        ({"message": "no idea"}, TransportLost),
    ],
)
def test_refusals_of_connect_are_told_apart(
    driver: StompDriver, server: Server, headers: dict[str, str], error: type[Exception]
) -> None:
    call = Call(driver.connect, server.endpoint, Identity("c"), WAIT)
    server.accept()
    server.expect("STOMP")
    server.say("ERROR", **headers)
    assert type(call.end()) is error


def test_an_error_belongs_to_the_receipt_it_names(driver: StompDriver, server: Server) -> None:
    shake_hands(driver, server)
    first = send(driver)
    one = server.expect("SEND").headers["receipt"]
    second = send(driver)
    two = server.expect("SEND").headers["receipt"]
    server.say("ERROR", message="no room", receipt_id=two)
    server.say("RECEIPT", receipt_id=one)
    assert first.end() is None
    error = second.end()
    assert isinstance(error, JMSException)
    assert "no room" in str(error)


def test_an_error_without_receipt_answers_the_oldest_call(driver: StompDriver, server: Server) -> None:
    shake_hands(driver, server)
    call = send(driver)
    server.expect("SEND")
    server.say("ERROR", message="precondition_failed")
    assert isinstance(call.end(), JMSException)


def test_an_error_that_announces_the_end_is_a_loss(driver: StompDriver, server: Server) -> None:
    shake_hands(driver, server)
    call = send(driver)
    server.expect("SEND")
    server.say("ERROR", message="Server shutdown in progress")
    server.close()
    assert type(call.end()) is TransportLost


def test_abort_ends_calls_in_flight(driver: StompDriver, server: Server, ear: Ear) -> None:
    shake_hands(driver, server)
    call = send(driver, None)
    server.expect("SEND")
    driver.abort()
    assert type(call.end()) is TransportLost
    with pytest.raises(TransportLost):
        driver.ping()
    with ear.something:
        assert ear.something.wait_for(lambda: ear.losses, WAIT)
    driver.close()
    assert len(ear.losses) == 1


def test_a_late_receipt_is_not_taken_for_another_call(driver: StompDriver, server: Server) -> None:
    shake_hands(driver, server)
    first = send(driver, 0.05)
    late = server.expect("SEND").headers["receipt"]
    assert isinstance(first.end(), CallTimedOut)
    second = send(driver)
    mine = server.expect("SEND").headers["receipt"]
    server.say("RECEIPT", receipt_id=late)
    server.say("ERROR", message="refused", receipt_id=mine)
    assert isinstance(second.end(), JMSException)


def test_heart_beats_before_a_frame_do_not_swallow_it(driver: StompDriver, server: Server, ear: Ear) -> None:
    shake_hands(driver, server)
    driver.open_session(SessionSpec("s", AcknowledgeMode.AUTO))
    call = Call(driver.open_consumer, ConsumerSpec("c", "s", Queue("q")))
    subscribe = server.expect("SUBSCRIBE").headers
    server.say("RECEIPT", receipt_id=subscribe["receipt"])
    assert call.end() is None
    common = {"subscription": subscribe["id"], "destination": "/queue/q", "jms_kind": "text"}
    for number in range(3):
        heard = driver.last_heard
        server.say("MESSAGE", b"x\n\n", before=b"\n" * number, ack=str(number), message_id=str(number), **common)
        with ear.something:
            assert ear.something.wait_for(lambda: len(ear.heard) > number, WAIT)  # noqa: B023 - called at once
        assert driver.last_heard > heard
    assert [delivery.message.text for delivery in ear.heard] == ["x\n\n"] * 3  # type: ignore[attr-defined]


def test_a_commit_waits_for_the_receipts_of_its_sends(ear: Ear, server: Server) -> None:
    driver = StompDriver(ear, StompDialect(receipts_in_transaction=False), heartbeat=1.0, call_timeout=WAIT)
    shake_hands(driver, server)
    driver.open_session(SessionSpec("s", AcknowledgeMode.SESSION_TRANSACTED))
    begun = Call(driver.begin, "s", "t")
    server.say("RECEIPT", receipt_id=server.expect("BEGIN").headers["receipt"])
    assert begun.end() is None
    message = TextMessage("x")
    message.destination = Queue("q")
    driver.send(message, SendSpec("s", transaction="t"), WAIT)
    stored = server.expect("SEND").headers["receipt"]
    commit = Call(driver.commit, "s", "t", 0.5)
    server.say("RECEIPT", receipt_id=server.expect("COMMIT").headers["receipt"])
    assert isinstance(commit.end(), CallTimedOut), "the commit returned before its message was stored"
    begun = Call(driver.begin, "s", "u")
    server.say("RECEIPT", receipt_id=server.expect("BEGIN").headers["receipt"])
    assert begun.end() is None
    driver.send(message, SendSpec("s", transaction="u"), WAIT)
    sent = server.expect("SEND").headers["receipt"]
    commit = Call(driver.commit, "s", "u", WAIT)
    server.say("RECEIPT", receipt_id=server.expect("COMMIT").headers["receipt"])
    server.say("RECEIPT", receipt_id=stored)
    server.say("RECEIPT", receipt_id=sent)
    assert commit.end() is None
    driver.abort()
    driver.close()
