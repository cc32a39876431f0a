"""The failover engine: threads and transports around the failover machine, the valve and the detector.

Who does what. A loss is reported by whoever meets it: the transport's own thread, the detector, or a call. The
reporting thread closes the valve, queues the notification and destroys the transport, all of which takes no time;
connecting and restoring is the *pursuer's* business, a thread that lives for one episode. Listeners run on notifier
threads. All state is guarded by one lock per connection, under which nothing ever waits for the network.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from reference_broker.jms import (
    Code,
    ConnectionFailedException,
    ConnectionLostException,
    ExceptionListener,
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    JMSSecurityException,
)

from .detector import Detector
from .driver import CallTimedOut, Delivery, DriverFactory, Endpoint, Feature, Identity, TransportLost, WireDriver
from .events import FailoverEvent, FailoverEventKind, FailoverListener
from .failover import ENDED, Action, FailoverMachine, State
from .notifier import Notifier
from .operations import OnLoss, Operation, on_loss
from .options import ClientOptions
from .policy import Attempt, initial_attempts, reconnect_attempts
from .valve import Valve

log = logging.getLogger(__name__)

Result = TypeVar("Result")

ISSUE_LIMIT = 0.25
"""Seconds that an interrupted call waits for its loss to be told to the ExceptionListener first (LSN-10)."""
LISTENER_LIMIT = 2.0
"""Seconds that close() waits for an ExceptionListener that does not return."""


@dataclass(frozen=True, eq=False)
class Link:
    """One transport that was connected, with the epoch that tells it from all others."""

    epoch: int
    driver: WireDriver
    endpoint: Endpoint


class Objects(Protocol):
    """The JMS objects above the engine; all but `restore` are called with the engine's lock held."""

    def delivered(self, delivery: Delivery) -> None:
        """A message of the current transport."""

    def restarted(self, session: str) -> None:
        """Deliveries of that session start over."""

    def transport_lost(self) -> None:
        """Forget what the transport delivered, and mark what became stale by it."""

    def transport_opened(self, epoch: int) -> None:
        """Calls go over the transport of that epoch now."""

    def valve_failed(self) -> None:
        """Nothing will be delivered any more."""

    def restore(self, link: Link) -> None:
        """Make sessions and consumers again; raises TransportLost if the attempt has failed."""

    def all_restored(self) -> bool:
        """Whether nothing that the application did meanwhile is left to be done before the valve opens."""


class _Ear:
    """What a driver reports to: knows which transport it listens to."""

    def __init__(self, engine: Engine, epoch: int) -> None:
        self._engine = engine
        self._epoch = epoch

    def delivered(self, delivery: Delivery) -> None:
        with self._engine.lock:
            if self._epoch == self._engine.machine.epoch:
                self._engine.objects.delivered(delivery)

    def restarted(self, session: str) -> None:
        with self._engine.lock:
            if self._epoch == self._engine.machine.epoch:
                self._engine.objects.restarted(session)

    def lost(self, cause: TransportLost) -> None:
        if "closed-transport-not-noticed" not in self._engine.defects:
            self._engine.lost(self._epoch, cause)


class Engine:
    """Keeps one JMS connection going over as many transports as it takes."""

    def __init__(self, options: ClientOptions, drivers: DriverFactory, identity: Identity, objects: Objects) -> None:
        self.options = options
        self.defects = options.defects
        self.identity = identity
        self.objects = objects
        self.lock = threading.RLock()
        self.machine = FailoverMachine(
            lambda: initial_attempts(options),
            lambda lost: reconnect_attempts(options, lost),
            ignores_epochs="late-loss-kills-new-transport" in self.defects,
        )
        self.valve: Valve[Link] = Valve(self.lock, forgets_waiters="waiters-left-in-valve" in self.defects)
        self.exception_listener: ExceptionListener | None = None
        self._drivers = drivers
        overlapping = "notifications-overlap" in self.defects
        self._notifier = Notifier(f"{identity.connection} notifier", overlapping=overlapping)
        self._events = Notifier(f"{identity.connection} events")
        self._failover_listeners: list[FailoverListener] = []
        self._detector: Detector | None = None
        self._moved = threading.Condition(self.lock)
        self._pending: tuple[int, Attempt] | None = None
        self._pursuer: threading.Thread | None = None
        self._driver: WireDriver | None = None
        self._link: Link | None = None
        self._features: frozenset[Feature] = frozenset()
        self._late_report: tuple[int, Exception] | None = None
        self._shared_failure: JMSException | None = None

    # -- life --------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect in this thread; raises when the attempts that the policy allows are used up (RCN-09, RCN-10)."""
        with self.lock:
            self._pursuer = threading.current_thread()
            errands = self._perform(self.machine.open())
        self._run(errands)
        self._pursue()
        if self.machine.state is State.FAILED:
            self._stop_threads()
            raise self._connect_failure()
        if self.options.heartbeat > 0 and self._detector is None:
            ttl = self.options.heartbeat_ttl / (2 if "silence-declared-early" in self.defects else 1)
            self._detector = Detector(self.options.heartbeat, ttl, self._silent, self.identity.connection)
            with self.lock:
                self._detector.watch(self._driver)

    def begin_close(self) -> None:
        """No more attempts from now on; a transport that serves goes on serving until `finish_close`."""
        self._do(self.machine.close)

    def finish_close(self) -> None:
        """Close the transport and end all threads."""
        self._do(self.machine.closed)
        self._stop_threads()

    def _stop_threads(self) -> None:
        with self.lock:
            pursuer = self._pursuer
            self._moved.notify_all()
        if pursuer is not None and pursuer is not threading.current_thread():
            pursuer.join()
        if self._detector is not None:
            self._detector.close()
        self._notifier.close(LISTENER_LIMIT)
        self._events.close(LISTENER_LIMIT)

    def _connect_failure(self) -> JMSException:
        cause = self.machine.cause
        if isinstance(cause, JMSException) and not isinstance(cause, CallTimedOut):
            return cause
        tried = ", ".join(map(str, self.options.endpoints)) or "no address"
        failure = ConnectionFailedException(f"no broker serves at {tried}: {cause}")
        failure.__cause__ = cause
        return failure

    @property
    def features(self) -> frozenset[Feature]:
        """What the present transport can do; that of the last one while there is none."""
        return self._features

    # -- calls -------------------------------------------------------------------------------------------

    def call(
        self,
        key: Hashable,
        operation: Operation,
        action: Callable[[Link], Result],
        *,
        protected: bool = False,
    ) -> Result | None:
        """Do something over whichever transport serves, and keep D-05 if it is lost meanwhile.

        None if the operation is one that a loss makes pointless; raises CALL_UNBLOCKED if its outcome is unknown.
        """
        if "calls-refused-in-outage" in self.defects and not self.valve.is_open:
            raise JMSException("there is no connection now", Code.CONNECTION_LOST)
        in_flight = False
        with self.valve.passage(key, self.options.failover_timeout) as passage:
            while True:
                link = passage.transport(in_flight=in_flight)
                try:
                    return self.run(link, action)
                except TransportLost as cause:
                    rule = on_loss(operation, protected=protected)
                    if rule is OnLoss.DONE:
                        return None
                    if rule is not OnLoss.RETRY or "interrupted-call-not-repeated" in self.defects:
                        raise self.unblocked(operation, cause) from cause
                    in_flight = True

    def run(self, link: Link, action: Callable[[Link], Result]) -> Result:
        """Do something over this transport; a TransportLost is reported before it is raised (DET-04)."""
        try:
            return action(link)
        except TransportLost as cause:
            self.lost(link.epoch, cause)
            raise
        except JMSException:
            if "application-error-fails-over" in self.defects:
                self.lost(link.epoch, TransportLost("an operation was refused"))
            raise

    def is_current(self, link: Link) -> bool:
        """Whether calls go over this transport now."""
        return self.valve.transport is link

    def unblocked(self, operation: Operation, cause: Exception) -> JMSException:
        """The error of a call that was in flight at the loss, which the ExceptionListener hears of first (LSN-10)."""
        self._notifier.wait_until_issued(ISSUE_LIMIT)
        return JMSException(
            f"{operation} was in flight when the connection was lost ({cause}): it may have been done or not",
            Code.CALL_UNBLOCKED,
        )

    # -- listeners ---------------------------------------------------------------------------------------

    def notify(self, error: JMSException) -> None:
        """Queue an error for the ExceptionListener."""
        self._notifier.post(lambda: self._call_listener(error))

    def add_failover_listener(self, listener: FailoverListener) -> None:
        """Tell this one of every failover event from now on (LSN-13)."""
        with self.lock:
            self._failover_listeners.append(listener)

    def _call_listener(self, error: JMSException) -> None:
        if self.exception_listener is not None:
            self.exception_listener(error)

    def _tell(self, kind: FailoverEventKind) -> None:
        serving = self.machine.losses + (kind is FailoverEventKind.FAILOVER_COMPLETED)  # transports that served, from 1
        if "events-misnamed" in self.defects and kind is FailoverEventKind.FAILOVER_FAILED:
            kind = FailoverEventKind.FAILOVER_COMPLETED
        event = FailoverEvent(kind, serving, time.monotonic_ns(), str(self.machine.cause or ""))
        log.info("%s: %s (epoch %d) %s", self.identity.connection, event.kind, event.epoch, event.detail)
        for listener in self._failover_listeners:
            self._events.post(lambda listener=listener: listener(event))  # type: ignore[misc]

    # -- reports -----------------------------------------------------------------------------------------

    def lost(self, epoch: int, cause: Exception) -> None:
        """The transport of that epoch is gone; any thread may say so, and any number of them."""
        self._do(lambda: self.machine.lost(epoch, cause))

    def _silent(self, driver: WireDriver, cause: TransportLost) -> None:
        if "silence-ignored" in self.defects:
            return
        with self.lock:
            epoch = self.machine.epoch if driver is self._driver else 0
        self.lost(epoch, cause)

    # -- carrying out what the machine says --------------------------------------------------------------

    def _do(self, event: Callable[[], tuple[Action, ...]]) -> None:
        with self.lock:
            errands = self._perform(event())
        self._run(errands)

    @staticmethod
    def _run(errands: list[Callable[[], None]]) -> None:
        for errand in errands:
            errand()

    def _perform(self, actions: tuple[Action, ...]) -> list[Callable[[], None]]:
        """Carry out the actions under the lock; what touches the network is returned, to be run without it."""
        errands: list[Callable[[], None]] = []
        for action in actions:
            match action:
                case Action.CLOSE_VALVE:
                    self.valve.close()
                    self._watch(None)
                    self.objects.transport_lost()
                case Action.OPEN_VALVE:
                    self._open_valve(errands)
                case Action.FAIL_VALVE:
                    self.valve.fail(self._failure)
                    self.objects.valve_failed()
                    self._moved.notify_all()
                case Action.ATTEMPT:
                    assert self.machine.attempt is not None
                    self._pending = (self.machine.epoch, self.machine.attempt)
                    self._start_pursuer()
                    self._moved.notify_all()
                case Action.ABORT:
                    if self._driver is not None:
                        errands.append(self._driver.abort)
                    self._driver = self._link = None
                case Action.RETIRE:
                    if self._driver is not None:
                        errands.append(self._driver.close)
                    self._watch(None)
                    self._driver = self._link = None
                case Action.RESTORE:  # the pursuer, which is the one that gets this action, goes on with it
                    if "valve-opens-before-restore" in self.defects:
                        self._open_valve(errands)
                case _:
                    self._announce(action)
        return errands

    def _announce(self, action: Action) -> None:
        match action:
            case Action.TELL_DETECTED:
                self._tell(FailoverEventKind.FAILURE_DETECTED)
            case Action.TELL_STARTED:
                self._late_report = (self.machine.epoch, self.machine.cause or TransportLost("late"))
                self._tell(FailoverEventKind.FAILOVER_STARTED)
            case Action.TELL_COMPLETED:
                self._tell(FailoverEventKind.FAILOVER_COMPLETED)
                if "loss-told-after-failover" in self.defects:
                    self._notify_lost()
            case Action.TELL_FAILED:
                self._tell(FailoverEventKind.FAILOVER_FAILED)
            case Action.NOTIFY_LOST:
                if "loss-told-after-failover" not in self.defects:
                    self._notify_lost()
            case Action.NOTIFY_FINAL:
                reason = f"the connection was lost and failover is switched off: {self.machine.cause}"
                self.notify(ConnectionLostException(reason, Code.NO_FAILOVER))
            case Action.NOTIFY_EXHAUSTED:
                if "end-of-failover-not-told" not in self.defects:
                    self.notify(self._exhausted())

    def _notify_lost(self) -> None:
        if "loss-not-notified" in self.defects:
            return
        reason = f"the connection was lost and is being established again: {self.machine.cause}"
        for _ in range(2 if "loss-notified-twice" in self.defects else 1):
            code = Code.NO_FAILOVER if "hope-not-told" in self.defects else None
            self.notify(ConnectionLostException(reason, code, recovering=True))

    def _exhausted(self) -> JMSException:
        cause = self.machine.cause
        if isinstance(cause, JMSSecurityException):
            return JMSSecurityException(f"failover ended because the broker refused the credentials: {cause}")
        return ConnectionFailedException(
            f"failover was given up after the attempts that are allowed: {cause}", Code.FAILOVER_EXHAUSTED
        )

    def _failure(self, in_flight: bool) -> JMSException:
        """A new exception for one caller of a connection that has ended (D-02, RCN-17)."""
        if "one-error-for-all" in self.defects:
            self._shared_failure = self._shared_failure or self._exhausted()
            return self._shared_failure
        unknown = "; the call was in flight and may have been done or not" if in_flight else ""
        code = Code.CALL_UNBLOCKED if in_flight else None
        error: JMSException
        if self.machine.state is State.FAILED:
            error = ConnectionFailedException(f"the connection has failed: {self.machine.cause}{unknown}", code)
        elif in_flight:
            error = JMSException(f"the connection was closed{unknown}", code)
        else:
            error = IllegalStateException("the connection is closed")
        error.__cause__ = self.machine.cause
        return error

    def _open_valve(self, errands: list[Callable[[], None]]) -> None:
        assert self._link is not None
        self.objects.transport_opened(self._link.epoch)
        self.valve.open(self._link)
        late, self._late_report = self._late_report, None
        if late is not None and "late-loss-kills-new-transport" in self.defects:
            errands.append(lambda: self.lost(*late))

    def _watch(self, driver: WireDriver | None) -> None:
        if self._detector is not None:
            self._detector.watch(driver)

    # -- the pursuer -------------------------------------------------------------------------------------

    def _start_pursuer(self) -> None:
        if self._pursuer is None:
            name = f"{self.identity.connection} failover"
            self._pursuer = threading.Thread(target=self._pursue, name=name, daemon=True)
            self._pursuer.start()

    def _pursue(self) -> None:
        """Make attempts until there is a transport that serves, or nothing more to be tried."""
        while True:
            with self.lock:
                pending, self._pending = self._pending, None
                if pending is None:
                    self._pursuer = None
                    return
            self._make(*pending)

    def _make(self, epoch: int, attempt: Attempt) -> None:
        driver = self._drivers(_Ear(self, epoch))
        with self.lock:
            if self._moved.wait_for(lambda: self._is_past(epoch), attempt.delay):
                return
            self._driver = driver
        try:
            limit = self.options.connect_timeout * (20 if "handshake-waited-for" in self.defects else 1)
            driver.connect(attempt.endpoint, self.identity, limit)
        except (TransportLost, JMSException) as error:
            self._attempt_failed(epoch, error)
            return
        except Exception as error:  # a driver's mistake must not leave everybody in the valve for ever
            log.exception("connecting to %s failed in an unexpected way", attempt.endpoint)
            self._attempt_failed(epoch, error)
            return
        with self.lock:
            abandoned = self._is_past(epoch)
        if abandoned:
            driver.abort()
            return
        with self.lock:
            link = self._link = Link(epoch, driver, attempt.endpoint)
            self._features = driver.features
            self._watch(driver)
            errands = self._perform(self.machine.succeeded(epoch))
            restoring = self.machine.state is State.RESTORING and self.machine.epoch == epoch
        self._run(errands)
        if restoring:
            self._restore(link)

    def _restore(self, link: Link) -> None:
        while True:
            try:
                self.run(link, self.objects.restore)
            except TransportLost:
                return
            except Exception as error:  # as above: whatever happens, waiters get another attempt or an error
                log.exception("restoring over %s failed in an unexpected way", link.endpoint)
                self._attempt_failed(link.epoch, error)
                return
            with self.lock:
                if not self.objects.all_restored():
                    continue
                errands = self._perform(self.machine.restored(link.epoch))
            self._run(errands)
            return

    def _attempt_failed(self, epoch: int, error: Exception) -> None:
        log.info("%s: attempt %d failed: %s", self.identity.connection, epoch, error)
        with self.lock:
            first = self.machine.state is State.CONNECTING
            # While reconnecting the client id may be held by the own ghost: try again (RCN-14).
            refused = isinstance(error, JMSSecurityException) or (first and isinstance(error, InvalidClientIDException))
            errands = self._perform(self.machine.failed(epoch, error, refused=refused))
        self._run(errands)

    def _is_past(self, epoch: int) -> bool:
        return self.machine.epoch != epoch or self.machine.state in ENDED
