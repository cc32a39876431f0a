"""The core wire below the failover engine: one blocking socket, one reader thread, answers matched by number."""

from __future__ import annotations

import itertools
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence

from reference_broker.broker.commands import (
    Acknowledge,
    Answer,
    AskFate,
    ClientCommand,
    CloseConsumer,
    CloseSession,
    Commit,
    Connect,
    Connected,
    Deliver,
    Disconnect,
    Fate,
    FateIs,
    Grant,
    OpenConsumer,
    OpenSession,
    Ping,
    Recover,
    Refusal,
    Refused,
    Rollback,
    Send,
)
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    JMSSecurityException,
    Message,
    ResourceAllocationException,
    TransactionRolledBackException,
)
from reference_broker.wire.core.packets import BrokerPacket, ClientPacket, PacketReader, ProtocolError, encode

from .core_messages import to_address, to_envelope, to_message
from .driver import (
    CallTimedOut,
    ConsumerSpec,
    Delivery,
    Endpoint,
    Feature,
    Identity,
    NotServing,
    SendSpec,
    SessionSpec,
    TransportListener,
    TransportLost,
    WireDriver,
)

log = logging.getLogger(__name__)

CHUNK = 256 * 1024
FAREWELL = 1.0
"""Seconds that close() waits for the broker to confirm."""

REFUSALS: dict[Refusal, Callable[[str], Exception]] = {
    Refusal.NOT_SERVING: NotServing,
    Refusal.SECURITY: JMSSecurityException,
    Refusal.CLIENT_ID_IN_USE: InvalidClientIDException,
    Refusal.INVALID_DESTINATION: InvalidDestinationException,
    Refusal.INVALID_SELECTOR: InvalidSelectorException,
    Refusal.ILLEGAL_STATE: IllegalStateException,
    Refusal.ROLLED_BACK: TransactionRolledBackException,
    Refusal.RESOURCE: ResourceAllocationException,
    Refusal.UNSUPPORTED: lambda reason: JMSException(reason, Code.UNSUPPORTED),
    Refusal.PROTOCOL: JMSException,
}
"""Only NOT_SERVING concerns the transport; all others are answers to one operation (DET-07)."""


class _Request:
    """A command that waits for its answer; `at_answer` runs on the reader thread, in the place of the answer."""

    def __init__(self, at_answer: Callable[[], None] | None) -> None:
        self.answered = threading.Event()
        self.answer: Answer | None = None
        self.at_answer = at_answer


class CoreDriver(WireDriver):
    """One transport to a broker over the core wire; `heartbeat` is the period that the broker is promised, seconds."""

    features = frozenset({Feature.PRODUCER_SEQUENCE, Feature.COMMIT_FATE, Feature.CREDIT, Feature.DELIVERY_COUNT})

    def __init__(self, listener: TransportListener, heartbeat: float = 0.0, call_timeout: float | None = None) -> None:
        self._listener = listener
        self._heartbeat = heartbeat
        self._call_timeout = call_timeout
        self._socket: socket.socket | None = None
        self._reader: threading.Thread | None = None
        self._writing = threading.Lock()
        self._state = threading.Lock()
        self._requests: dict[int, _Request] = {}
        self._numbers = itertools.count(1)
        self._packets = 0
        self._processed = 0
        self._cause: TransportLost | None = None
        self._heard = time.monotonic()

    # -- life --------------------------------------------------------------------------------------------

    def connect(self, endpoint: Endpoint, identity: Identity, timeout: float) -> None:
        """Open the socket and shake hands, both within `timeout` seconds (DET-14)."""
        until = time.monotonic() + timeout
        try:
            transport = self._open(endpoint, until)
        except OSError as error:
            raise TransportLost(f"cannot connect to {endpoint}: {error}") from error
        self._heard = time.monotonic()
        self._reader = threading.Thread(
            target=self._read, args=(transport,), name=f"{identity.connection} core reader", daemon=True
        )
        self._reader.start()
        hello = Connect(
            connection=identity.connection,
            client_id=identity.client_id,
            user=identity.user,
            password=identity.password,
            heartbeat_ms=round(self._heartbeat * 1000),
        )
        try:
            answer = self._ask(hello, max(0.0, until - time.monotonic()))
        except CallTimedOut as error:
            self._lose(TransportLost(f"{endpoint} did not complete the handshake within {timeout:g} s"))
            raise self._cause or TransportLost(str(error)) from error
        except JMSException:
            self.abort()
            raise
        if not isinstance(answer, Connected):
            self._lose(TransportLost(f"{endpoint} answered the handshake with {type(answer).__name__}"))
            self._check_alive()

    def _open(self, endpoint: Endpoint, until: float) -> socket.socket:
        transport = socket.create_connection(endpoint, max(0.001, until - time.monotonic()))
        transport.settimeout(None)
        transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._state:
            if self._cause is not None:
                transport.close()
                raise OSError("the attempt was abandoned")
            self._socket = transport
        return transport

    def abort(self) -> None:
        """Destroy the transport at once (VLV-05)."""
        self._lose(TransportLost("the transport was destroyed"))

    def close(self) -> None:
        """Say farewell, and release everything."""
        if self._cause is None and self._socket is not None and self._can_write(self._socket):
            try:
                self._ask(Disconnect(), FAREWELL)
            except (TransportLost, JMSException) as error:
                log.debug("the broker did not confirm the end of the connection: %s", error)
        self._lose(TransportLost("the connection was closed"))
        reader = self._reader
        if reader is not None and reader is not threading.current_thread():
            reader.join()

    # -- commands ----------------------------------------------------------------------------------------

    def open_session(self, spec: SessionSpec) -> None:
        """Create a session; creating it twice is harmless."""
        transacted = spec.mode is AcknowledgeMode.SESSION_TRANSACTED
        self._ask(OpenSession(session=spec.id, transacted=transacted), self._call_timeout)

    def close_session(self, session: str, delivered: Sequence[Delivery]) -> None:
        """End a session."""
        self._ask(CloseSession(session=session, delivered=_tokens(delivered)), self._call_timeout)

    def open_consumer(self, spec: ConsumerSpec) -> None:
        """Create a consumer; messages may arrive before this returns."""
        self._ask(
            OpenConsumer(
                session=spec.session,
                consumer=spec.id,
                source=to_address(spec.destination),
                selector=spec.selector,
                no_local=spec.no_local,
                credit=spec.prefetch,
            ),
            self._call_timeout,
        )

    def close_consumer(self, consumer: str, delivered: Sequence[Delivery]) -> None:
        """End a consumer."""
        self._ask(CloseConsumer(consumer=consumer, delivered=_tokens(delivered)), self._call_timeout)

    def grant(self, consumer: str, credit: int) -> None:
        """As many more messages may come."""
        self._write(Grant(consumer=consumer, credit=credit))

    def send(self, message: Message, spec: SendSpec, timeout: float | None) -> None:
        """Send; waits for the broker if asked to confirm."""
        command = Send(
            session=spec.session,
            envelope=to_envelope(message),
            transaction=spec.transaction,
            producer=spec.producer,
            sequence=spec.sequence,
        )
        self._do(command, spec.confirm, timeout)

    def acknowledge(
        self,
        session: str,
        deliveries: Sequence[Delivery],
        transaction: str,
        confirm: bool,
        timeout: float | None,
    ) -> None:
        """Acknowledge, at once or with the transaction."""
        command = Acknowledge(session=session, deliveries=_tokens(deliveries), transaction=transaction)
        self._do(command, confirm, timeout)

    def begin(self, session: str, transaction: str) -> None:
        """Nothing: the first command that names a transaction begins it."""
        self._check_alive()

    def commit(self, session: str, transaction: str, timeout: float | None) -> None:
        """Commit and wait for the confirmation."""
        self._ask(Commit(session=session, transaction=transaction), timeout)

    def rollback(self, session: str, transaction: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        """Undo the transaction and start deliveries over."""
        command = Rollback(session=session, transaction=transaction, delivered=_tokens(delivered))
        self._ask(command, timeout, lambda: self._listener.restarted(session))

    def recover(self, session: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        """Start deliveries over."""
        command = Recover(session=session, delivered=_tokens(delivered))
        self._ask(command, timeout, lambda: self._listener.restarted(session))

    def fate(self, transaction: str, timeout: float | None) -> Fate:
        """What became of a transaction."""
        answer = self._ask(AskFate(transaction=transaction), timeout)
        return answer.fate if isinstance(answer, FateIs) else Fate.UNKNOWN

    def ping(self) -> None:
        """Ask for a sign of life, unless a writer waits for the peer already: the detector must never wait."""
        self._check_alive()
        if not self._writing.acquire(blocking=False):
            return
        try:
            transport = self._socket
            if transport is not None and select.select((), (transport,), (), 0)[1]:
                self._write_locked(transport, Ping(request=next(self._numbers)))
        except (OSError, ValueError) as error:
            self._lose(TransportLost(f"the transport broke: {error}"))
            self._check_alive()
        finally:
            self._writing.release()

    @property
    def last_heard(self) -> float:
        """When the last byte came."""
        return self._heard

    # -- writing -----------------------------------------------------------------------------------------

    def _do(self, command: ClientCommand, confirm: bool, timeout: float | None) -> None:
        if confirm:
            self._ask(command, timeout)
        else:
            self._write(command)

    def _ask(
        self, command: ClientCommand, timeout: float | None, at_answer: Callable[[], None] | None = None
    ) -> Answer:
        request = _Request(at_answer)
        command.request = number = next(self._numbers)
        with self._state:
            if self._cause is not None:
                raise _again(self._cause)
            self._requests[number] = request
        self._write(command)
        if not request.answered.wait(timeout):
            # The entry stays, so that the late answer finds its own request and no other (DET-13).
            raise CallTimedOut(f"{type(command).__name__} was not answered within {timeout:g} s")
        answer = request.answer
        if answer is None:
            assert self._cause is not None
            raise _again(self._cause)
        if isinstance(answer, Refused):
            raise REFUSALS[answer.why](answer.reason)
        return answer

    def _write(self, command: ClientCommand) -> None:
        with self._writing:
            self._check_alive()
            assert self._socket is not None
            try:
                self._write_locked(self._socket, command)
            except OSError as error:
                self._lose(TransportLost(f"the transport broke: {error}"))
        self._check_alive()

    def _write_locked(self, transport: socket.socket, command: ClientCommand) -> None:
        numbered = not isinstance(command, Ping)
        self._packets += numbered
        transport.sendall(encode(ClientPacket(self._packets if numbered else 0, self._processed, command)))

    def _can_write(self, transport: socket.socket) -> bool:
        """Whether a farewell can be said without waiting for a peer that does not read any more."""
        if not self._writing.acquire(timeout=FAREWELL):
            return False
        try:
            return bool(select.select((), (transport,), (), FAREWELL)[1])
        except (OSError, ValueError) as error:
            log.debug("the socket was gone already: %s", error)
            return False
        finally:
            self._writing.release()

    def _check_alive(self) -> None:
        if self._cause is not None:
            raise _again(self._cause)

    # -- reading -----------------------------------------------------------------------------------------

    def _read(self, transport: socket.socket) -> None:
        reader: PacketReader[BrokerPacket] = PacketReader(BrokerPacket)
        try:
            while data := transport.recv(CHUNK):
                self._heard = time.monotonic()
                for packet in reader.feed(data):
                    self._arrived(packet)
            self._lose(TransportLost("the broker closed the transport"))
        except (OSError, ProtocolError) as error:
            self._lose(TransportLost(f"the transport broke: {error}"))
        except Exception as error:
            log.exception("the reader failed in an unexpected way")
            self._lose(TransportLost(f"the reader failed: {error}"))
        finally:
            transport.close()
            assert self._cause is not None
            self._listener.lost(self._cause)

    def _arrived(self, packet: BrokerPacket) -> None:
        body = packet.body
        if isinstance(body, Deliver):
            self._listener.delivered(Delivery(body.consumer, body.delivery, to_message(body)))
        elif body.request:
            with self._state:
                request = self._requests.pop(body.request, None)
            if request is not None:
                request.answer = body
                if request.at_answer is not None and not isinstance(body, Refused):
                    request.at_answer()
                request.answered.set()
        elif isinstance(body, Refused):
            log.info("the broker complained: %s: %s", body.why, body.reason)
        if packet.id:
            self._processed = packet.id

    def _lose(self, cause: TransportLost) -> None:
        """The transport is of no further use: wake the reader and all who wait for answers; the first cause stays."""
        with self._state:
            if self._cause is not None:
                return
            self._cause = cause
            requests, self._requests = self._requests, {}
            transport = self._socket
        if transport is not None:
            try:
                transport.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                log.debug("the socket was gone already: %s", error)
        for request in requests.values():
            request.answered.set()


def _tokens(deliveries: Sequence[Delivery]) -> tuple[int, ...]:
    return tuple(delivery.token for delivery in deliveries if isinstance(delivery.token, int))


def _again(cause: TransportLost) -> TransportLost:
    """The same loss for one more caller: exceptions are not shared between threads."""
    return TransportLost(*cause.args)
