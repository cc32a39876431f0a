"""The failover state machine: what a connection does about the life and death of its transports. No I/O, no clock.

A connection uses one transport after the other. Each attempt to connect gets the next *epoch*, so every report
about a transport names which one it means. A report about any other than the current one is ignored: this
is what keeps the pinger's late word on the old transport from killing the new one (DET-08), and what makes one
failover out of sixteen threads that fail together (DET-05) and one notification out of it (LSN-01).

    NEW           nothing done yet
    CONNECTING    first connect; its failures are the caller's business, no listener hears of them
    CONNECTED     a transport serves; the valve is open
    RECONNECTING  the transport was lost; the valve is closed and attempts are made
    RESTORING     a new transport is up, sessions and consumers are made again; the valve is still closed (VLV-06)
    CLOSING       the application closes; the transport still serves listeners that are ending, a loss is final
    FAILED        nothing more will be tried; the valve is open with an error for everybody (VLV-07)
    CLOSED        the application has closed

A transport that is lost while RESTORING counts as one more failed attempt of the same episode: waiters stay
parked, the counters go on, nobody is notified a second time (VLV-09, RCN-13).

The machine answers each event with the actions to be carried out, in their order. CLOSE_VALVE comes before anything
else of a loss (VLV-01), ABORT destroys the dead transport so that no call hangs on it (VLV-05, D-04).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from .driver import Endpoint
from .policy import Attempt


class State(StrEnum):
    """Where a connection stands."""

    NEW = "new"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    RESTORING = "restoring"
    CLOSING = "closing"
    FAILED = "failed"
    CLOSED = "closed"


class Event(StrEnum):
    """What can happen; reports about transports have been checked for their epoch before."""

    OPEN = "open"
    UP = "attempt succeeded"
    DOWN = "attempt failed, another follows"
    EXHAUSTED = "attempt failed, none is left"
    REFUSED = "credentials refused for good"
    LOST = "transport lost"
    LOST_FOR_GOOD = "transport lost, no failover"
    RESTORED = "all objects made again"
    CLOSE = "close begun"
    CLOSED = "close finished"


class Action(StrEnum):
    """What the shell is told to do."""

    CLOSE_VALVE = "close the valve and forget what the lost transport delivered"
    ABORT = "abort the transport"
    TELL_DETECTED = "event FAILURE_DETECTED"
    TELL_STARTED = "event FAILOVER_STARTED"
    TELL_COMPLETED = "event FAILOVER_COMPLETED"
    TELL_FAILED = "event FAILOVER_FAILED"
    NOTIFY_LOST = "listener: connection lost, recovering"
    NOTIFY_FINAL = "listener: connection lost for good"
    NOTIFY_EXHAUSTED = "listener: failover in vain"
    ATTEMPT = "make the next attempt"
    RESTORE = "make sessions and consumers again"
    OPEN_VALVE = "open the valve"
    FAIL_VALVE = "release all waiters with an error"
    RETIRE = "close the transport in an orderly way"


S, E, A = State, Event, Action

TRANSITIONS: dict[tuple[State, Event], tuple[State, tuple[Action, ...]]] = {
    (S.NEW, E.OPEN): (S.CONNECTING, (A.ATTEMPT,)),
    (S.NEW, E.EXHAUSTED): (S.FAILED, (A.FAIL_VALVE,)),
    (S.NEW, E.CLOSE): (S.CLOSED, (A.FAIL_VALVE,)),
    (S.CONNECTING, E.UP): (S.CONNECTED, (A.OPEN_VALVE,)),
    (S.CONNECTING, E.DOWN): (S.CONNECTING, (A.ABORT, A.ATTEMPT)),
    (S.CONNECTING, E.EXHAUSTED): (S.FAILED, (A.ABORT, A.FAIL_VALVE)),
    (S.CONNECTING, E.REFUSED): (S.FAILED, (A.ABORT, A.FAIL_VALVE)),
    (S.CONNECTING, E.CLOSE): (S.CLOSED, (A.ABORT, A.FAIL_VALVE)),
    # A client id set after the connect, and before any use, needs a new handshake (MSG-33).
    (S.CONNECTED, E.OPEN): (S.CONNECTING, (A.CLOSE_VALVE, A.RETIRE, A.ATTEMPT)),
    (S.CONNECTED, E.LOST): (
        S.RECONNECTING,
        (A.CLOSE_VALVE, A.TELL_DETECTED, A.NOTIFY_LOST, A.ABORT, A.TELL_STARTED, A.ATTEMPT),
    ),
    (S.CONNECTED, E.LOST_FOR_GOOD): (
        S.FAILED,
        (A.CLOSE_VALVE, A.TELL_DETECTED, A.NOTIFY_FINAL, A.ABORT, A.TELL_FAILED, A.FAIL_VALVE),
    ),
    (S.CONNECTED, E.CLOSE): (S.CLOSING, ()),
    (S.RECONNECTING, E.UP): (S.RESTORING, (A.RESTORE,)),
    (S.RECONNECTING, E.DOWN): (S.RECONNECTING, (A.ABORT, A.ATTEMPT)),
    (S.RECONNECTING, E.EXHAUSTED): (S.FAILED, (A.ABORT, A.NOTIFY_EXHAUSTED, A.TELL_FAILED, A.FAIL_VALVE)),
    (S.RECONNECTING, E.REFUSED): (S.FAILED, (A.ABORT, A.NOTIFY_EXHAUSTED, A.TELL_FAILED, A.FAIL_VALVE)),
    (S.RECONNECTING, E.CLOSE): (S.CLOSED, (A.ABORT, A.TELL_FAILED, A.FAIL_VALVE)),
    (S.RESTORING, E.RESTORED): (S.CONNECTED, (A.OPEN_VALVE, A.TELL_COMPLETED)),
    (S.RESTORING, E.DOWN): (S.RECONNECTING, (A.CLOSE_VALVE, A.ABORT, A.ATTEMPT)),
    (S.RESTORING, E.EXHAUSTED): (
        S.FAILED,
        (A.CLOSE_VALVE, A.ABORT, A.NOTIFY_EXHAUSTED, A.TELL_FAILED, A.FAIL_VALVE),
    ),
    (S.RESTORING, E.CLOSE): (S.CLOSED, (A.ABORT, A.TELL_FAILED, A.FAIL_VALVE)),
    (S.CLOSING, E.LOST): (S.CLOSED, (A.CLOSE_VALVE, A.ABORT, A.FAIL_VALVE)),
    (S.CLOSING, E.CLOSED): (S.CLOSED, (A.RETIRE, A.FAIL_VALVE)),
    (S.FAILED, E.CLOSE): (S.CLOSED, (A.FAIL_VALVE,)),
}
"""Every pair that is not listed is ignored: the state stays, nothing is done."""

SERVING = frozenset({State.CONNECTED, State.CLOSING})
"""The states in which the valve is open for calls."""

ENDED = frozenset({State.FAILED, State.CLOSED})


class FailoverMachine:
    """The state, the current epoch, and the attempts that are left.

    `first` and `again` give the attempts of the first connect and those after the loss of an address; `again`
    gives none if the policy forbids to fail over.
    """

    def __init__(
        self,
        first: Callable[[], Iterator[Attempt]],
        again: Callable[[Endpoint], Iterator[Attempt]],
        *,
        ignores_epochs: bool = False,
    ) -> None:
        self.state = State.NEW
        self.epoch = 0
        """Of the current transport, or of the attempt that is being made."""
        self.attempt: Attempt | None = None
        """What ATTEMPT means."""
        self.cause: Exception | None = None
        """Why the last transport or attempt failed."""
        self.losses = 0
        """Episodes so far: losses of a transport that served."""
        self._first = first
        self._again = again
        self._left: Iterator[Attempt] = iter(())
        self._lost_early = 0
        self._ignores_epochs = ignores_epochs

    def open(self) -> tuple[Action, ...]:
        """Connect for the first time, or once more because the identity changed."""
        self._left = self._first()
        return self._step(Event.OPEN if self._take() else Event.EXHAUSTED)

    def succeeded(self, epoch: int) -> tuple[Action, ...]:
        """The attempt of that epoch has a transport; it may be lost already, which makes it a failed one."""
        if epoch != self.epoch:
            return ()
        if epoch == self._lost_early:
            return self._failed(Event.DOWN)
        return self._step(Event.UP)

    def failed(self, epoch: int, cause: Exception, *, refused: bool = False) -> tuple[Action, ...]:
        """The attempt of that epoch, or its restore, came to nothing; `refused` ends the episode (RCN-14)."""
        if epoch != self.epoch or self.state not in {State.CONNECTING, State.RECONNECTING, State.RESTORING}:
            return ()
        self.cause = cause
        return self._step(Event.REFUSED) if refused else self._failed(Event.DOWN)

    def lost(self, epoch: int, cause: Exception) -> tuple[Action, ...]:
        """The transport of that epoch is gone; only the first report about the current one counts (DET-05)."""
        if epoch != self.epoch and not self._ignores_epochs:
            return ()
        if self.state in {State.CONNECTING, State.RECONNECTING}:
            self._lost_early = epoch
            return ()
        if self.state is State.RESTORING:
            return self.failed(epoch, cause)
        if self.state not in SERVING:
            return ()
        self.cause = cause
        if self.state is State.CLOSING:
            return self._step(Event.LOST)
        self.losses += 1
        assert self.attempt is not None
        self._left = self._again(self.attempt.endpoint)
        return self._step(Event.LOST if self._take() else Event.LOST_FOR_GOOD)

    def restored(self, epoch: int) -> tuple[Action, ...]:
        """Everything has been made again over the transport of that epoch."""
        return self._step(Event.RESTORED) if epoch == self.epoch else ()

    def close(self) -> tuple[Action, ...]:
        """The application closes: attempts end, a serving transport serves on until `closed`."""
        return self._step(Event.CLOSE)

    def closed(self) -> tuple[Action, ...]:
        """Nothing needs the transport any more."""
        return self._step(Event.CLOSED)

    def _failed(self, event: Event) -> tuple[Action, ...]:
        return self._step(event if self._take() else Event.EXHAUSTED)

    def _take(self) -> bool:
        following = next(self._left, None)
        if following is None:
            return False
        self.attempt = following
        return True

    def _step(self, event: Event) -> tuple[Action, ...]:
        self.state, actions = TRANSITIONS.get((self.state, event), (self.state, ()))
        if Action.ATTEMPT in actions:
            self.epoch += 1
        return actions
