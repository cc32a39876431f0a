"""A JMS connection that outlives its transports, and the factory that makes it."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

from reference_broker.defects import CLIENT_DEFECTS, arm
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    Connection,
    ConnectionFactory,
    ExceptionListener,
    IllegalStateException,
    JMSException,
    XAConnection,
)

from .driver import CallTimedOut, Delivery, DriverFactory, Identity, SessionSpec, TransportLost, WireDriver
from .engine import Engine, Link
from .events import FailoverListener
from .operations import Operation
from .options import ClientOptions
from .session import FailoverSession, unsupported

log = logging.getLogger(__name__)


class FailoverConnectionFactory(ConnectionFactory):
    """Makes connections over any wire; all configuration is in the options (REP-13)."""

    def __init__(self, drivers: DriverFactory, options: ClientOptions) -> None:
        arm(options.defects, CLIENT_DEFECTS)
        self._drivers = drivers
        self._options = options

    def create_connection(self, user: str | None = None, password: str | None = None) -> FailoverConnection:
        """A connection in stopped mode; raises when the attempts of the first connect are used up (RCN-09)."""
        identity = Identity(
            f"c-{uuid.uuid4().hex}",
            self._options.client_id,
            self._options.user if user is None else user,
            self._options.password if password is None else password,
        )
        return FailoverConnection(self._drivers, self._options, identity)

    def create_xa_connection(self, user: str | None = None, password: str | None = None) -> XAConnection:
        """Not in this release."""
        raise unsupported("XA transactions")


class FailoverConnection(Connection):
    """See the module's text. `add_failover_listener` is the provider's event interface (LSN-13)."""

    def __init__(self, drivers: DriverFactory, options: ClientOptions, identity: Identity) -> None:
        self.started = False
        self._options = options
        self._sessions: dict[str, FailoverSession] = {}
        self._left_over: list[Callable[[WireDriver], None]] = []
        self._numbers = itertools.count(1)
        self._used = False
        self._closing = False
        self._engine = Engine(options, drivers, identity, self)
        self._engine.connect()

    # -- JMS ---------------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str | None:
        """The client identifier."""
        return self._engine.identity.client_id

    @client_id.setter
    def client_id(self, value: str) -> None:
        """Settable once and before any other use (MSG-33); the broker learns it by a new handshake."""
        self._check_open()
        if self._engine.identity.client_id is not None or self._used:
            raise IllegalStateException("the client id is set already, or the connection has been used")
        if not value:
            raise JMSException("a client id is not empty")
        self._engine.identity = replace(self._engine.identity, client_id=value)
        self._engine.connect()

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Who hears of losses."""
        return self._engine.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._check_open()
        if "local-calls-wait" in self._options.defects:
            self._engine.valve.wait_until_settled()
        self._engine.exception_listener = listener

    def add_failover_listener(self, listener: FailoverListener) -> None:
        """Tell this one of every failover event, on a thread of its own (LSN-13)."""
        self._engine.add_failover_listener(listener)

    def create_session(
        self, transacted: bool = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> FailoverSession:
        """A session; waits while the connection fails over (VLV-02)."""
        self._check_open()
        self._used = True
        mode = AcknowledgeMode.SESSION_TRANSACTED if transacted else AcknowledgeMode(acknowledge_mode)
        if mode is AcknowledgeMode.SESSION_TRANSACTED and not transacted:
            raise JMSException("SESSION_TRANSACTED needs transacted=True")
        if mode is AcknowledgeMode.NO_ACKNOWLEDGE:
            raise JMSException("sessions without acknowledgement are not offered in this release", Code.UNSUPPORTED)
        spec = SessionSpec(f"{self._engine.identity.connection}.s{next(self._numbers)}", mode)
        session = FailoverSession(self, self._engine, spec)
        with self._engine.lock:
            self._sessions[spec.id] = session
        try:
            self._engine.call(spec.id, Operation.CREATE_SESSION, lambda link: self._make_session(link, session))
        except BaseException:
            with self._engine.lock:
                self.forget(session)
            raise
        return session

    def _make_session(self, link: Link, session: FailoverSession) -> None:
        link.driver.open_session(session.spec)
        with self._engine.lock:
            if not self._engine.is_current(link):
                raise TransportLost("the transport was replaced")
            session.made, session.established = link.epoch, True
            session.state.moved(link.epoch)

    def start(self) -> None:
        """Let messages be delivered; local, so that it works during an outage as well."""
        self._check_open()
        self._used = True
        with self._engine.lock:
            self.started = True
            self._wake()

    def stop(self) -> None:
        """Hold delivery; returns when no message is on its way to the application any more (MSG-27)."""
        self._check_open()
        self._check_outside_callbacks("stopped")
        with self._engine.lock:
            self.started = False
            for session in list(self._sessions.values()):
                session.wait_until_quiet()

    def close(self) -> None:
        """End everything; not held by the valve, and ends a failover that is under way (VLV-08, LSN-08)."""
        self._check_outside_callbacks("closed")
        with self._engine.lock:
            if self._closing:
                return
            self._closing = True
        if "close-waits-for-failover" in self._options.defects:
            self._engine.valve.wait_until_settled()
        self._engine.begin_close()
        with self._engine.lock:
            sessions = list(self._sessions.values())
            for session in sessions:
                session.ends_receiving()
        for session in sessions:
            session.shut()
        self._engine.finish_close()

    def _check_open(self) -> None:
        if self._closing:
            raise IllegalStateException("the connection is closed")

    def _check_outside_callbacks(self, what: str) -> None:
        with self._engine.lock:
            sessions = list(self._sessions.values())
        if any(session.in_callback() for session in sessions):
            raise IllegalStateException(f"a connection cannot be {what} from a listener of its own (MSG-30)")

    def _wake(self) -> None:
        for session in self._sessions.values():
            session.wake()

    # -- what sessions need, with the lock held ----------------------------------------------------------

    def forget(self, session: FailoverSession) -> None:
        """It is closed, or was never made."""
        self._sessions.pop(session.id, None)

    def leave_over(self, errand: Callable[[WireDriver], None]) -> None:
        """Something that was closed while it was being made again: to be undone before the valve opens (RCN-18)."""
        self._left_over.append(errand)

    # -- what the engine needs ---------------------------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """Route a message to the session whose consumer it is for."""
        session = self._sessions.get(delivery.consumer.rpartition(".")[0])
        if session is not None:
            session.delivered(delivery)

    def restarted(self, session: str) -> None:
        """Deliveries of that session start over."""
        known = self._sessions.get(session)
        if known is not None:
            known.restarted()

    def transport_lost(self) -> None:
        """Mark and empty all sessions, in the same step in which the valve closes."""
        self._left_over.clear()
        for session in self._sessions.values():
            session.transport_lost()

    def transport_opened(self, epoch: int) -> None:
        """All sessions exist over the new transport."""
        for session in self._sessions.values():
            session.state.moved(epoch)
            session.wake()

    def valve_failed(self) -> None:
        """Receivers that wait shall see it."""
        self._wake()

    def restore(self, link: Link) -> None:
        """Sessions first, each with its consumers; what the application closed meanwhile is closed again (VLV-06)."""
        with self._engine.lock:
            sessions = [session for session in self._sessions.values() if session.established]
        for session in sessions:
            if session.made != link.epoch and not self._restore_session(link, session):
                continue
            for consumer, refusal in session.restore_consumers(link):
                if refusal is not None:
                    self._retry_or_report(refusal, f"a consumer on {consumer.spec.destination}")
                    session.abandon_consumer(consumer)
        with self._engine.lock:
            errands, self._left_over = self._left_over, []
        for errand in errands:
            try:
                errand(link.driver)
            except JMSException as error:
                log.warning("something that was closed during the failover could not be closed again: %s", error)

    def all_restored(self) -> bool:
        """Whether nothing is left to be made again or undone."""
        return not self._left_over

    def _restore_session(self, link: Link, session: FailoverSession) -> bool:
        refusal: JMSException | None = None
        try:
            link.driver.open_session(session.spec)
        except JMSException as error:
            refusal = error
        with self._engine.lock:
            session.made = link.epoch
            if session.closed and refusal is None:
                self.leave_over(lambda driver: driver.close_session(session.id, ()))
        if refusal is not None:
            self._retry_or_report(refusal, f"session {session.id}")
            session.abandon()
        return refusal is None

    def _retry_or_report(self, refusal: JMSException, what: str) -> None:
        """An answer that is overdue fails the attempt; a refusal costs the object alone, and is told (RCN-15)."""
        if isinstance(refusal, CallTimedOut):
            raise TransportLost(f"{what} was not made again in time") from refusal
        error = JMSException(f"{what} could not be made again after failover: {refusal}", Code.OBJECT_NOT_RESTORED)
        error.__cause__ = refusal
        log.warning("%s", error)
        self._engine.notify(error)
