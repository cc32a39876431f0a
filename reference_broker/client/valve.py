"""The stop-the-world valve: network calls pass while it is open and are parked while it is closed.

A call asks for a *passage* under a key, which is its session. Passages of one key are taken in the order in which
they were asked for, one at a time, and a call that is repeated after a failover keeps its place: so a parked send
goes before any later one of its session (VLV-18, ORD-03). Passages of different keys do not wait for each other.

Closing is one assignment. It never waits for calls inside: they fail with the transport that is destroyed next, and
park themselves when they ask their passage for a transport again (VLV-05, D-04). The valve ends in one of two
ways, open with the next transport or failed with an error for each who waits (VLV-07).

All state is guarded by the lock that is given, which is the connection's: so that closing the valve and marking
sessions stale are one step to everybody else.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Generic, Self, TypeVar

from reference_broker.jms import Code, JMSException

Transport = TypeVar("Transport")
ErrorFactory = Callable[[bool], JMSException]
"""Makes a new exception for one caller; the argument tells whether its call was in flight."""


class Valve(Generic[Transport]):
    """Closed at first; opened with a transport, closed, opened with the next, and failed at the end."""

    def __init__(self, lock: threading.RLock, *, forgets_waiters: bool = False) -> None:
        self._changed = threading.Condition(lock)
        self._queues: dict[Hashable, deque[Passage[Transport]]] = {}
        self._failure: ErrorFactory | None = None
        self._forgets_waiters = forgets_waiters
        self.transport: Transport | None = None
        """What calls go over; None while closed."""
        self.waiting = 0
        """Calls that are parked (VLV-07: none at the end)."""

    @property
    def is_open(self) -> bool:
        """Whether calls pass."""
        return self.transport is not None

    @property
    def has_failed(self) -> bool:
        """Whether no call will ever pass again."""
        return self._failure is not None

    def open(self, transport: Transport) -> None:
        """Let calls pass, over this transport."""
        with self._changed:
            self.transport = transport
            self._changed.notify_all()

    def close(self) -> None:
        """Hold calls back; takes no time, whoever is inside (VLV-04, VLV-05)."""
        with self._changed:
            self.transport = None

    def fail(self, error: ErrorFactory) -> None:
        """Release everybody, now and in future, each with an exception of his own (D-02)."""
        with self._changed:
            self.transport = None
            self._failure = error
            if not self._forgets_waiters:
                self._changed.notify_all()

    def failure(self, *, in_flight: bool = False) -> JMSException | None:
        """A new error if the valve has failed."""
        return None if self._failure is None else self._failure(in_flight)

    def passage(self, key: Hashable, timeout: float | None = None) -> Passage[Transport]:
        """A place in the queue of that key; `timeout` bounds, in seconds, how long a wait may last (VLV-13)."""
        return Passage(self, key, timeout)

    def wait_until_settled(self) -> None:
        """Wait until the valve is open or has failed, without asking for a passage."""
        with self._changed:
            self._park(lambda: self.transport is not None or self._failure is not None, None)

    def _park(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        if ready():
            return True
        self.waiting += 1
        try:
            return self._changed.wait_for(ready, timeout)
        finally:
            self.waiting -= 1

    # -- for passages, with the lock held ----------------------------------------------------------------

    def _enqueue(self, passage: Passage[Transport]) -> None:
        self._queues.setdefault(passage.key, deque()).append(passage)

    def _leave(self, passage: Passage[Transport]) -> None:
        queue = self._queues[passage.key]
        queue.remove(passage)
        if queue:
            self._changed.notify_all()
        else:
            del self._queues[passage.key]

    def _transport_for(self, passage: Passage[Transport], in_flight: bool) -> Transport:
        queue = self._queues[passage.key]

        def ready() -> bool:
            return self._failure is not None or (self.transport is not None and queue[0] is passage)

        if not self._park(ready, passage.timeout):
            raise _overdue(in_flight)
        if self._failure is not None:
            raise self._failure(in_flight)
        assert self.transport is not None
        return self.transport


class Passage(Generic[Transport]):
    """One call's way through; a context manager, so that a cancelled caller leaves its queue too (VLV-17)."""

    def __init__(self, valve: Valve[Transport], key: Hashable, timeout: float | None) -> None:
        self.key = key
        self.timeout = timeout
        self._valve = valve

    def __enter__(self) -> Self:
        with self._valve._changed:
            self._valve._enqueue(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._valve._changed:
            self._valve._leave(self)

    def transport(self, *, in_flight: bool = False) -> Transport:
        """Wait for the turn and for an open valve; `in_flight` if the call was interrupted on an earlier one.

        Raises what the valve failed with, or a JMSException when the time is over: CALL_UNBLOCKED if the call
        may have been done, CONNECTION_LOST if it has not.
        """
        with self._valve._changed:
            return self._valve._transport_for(self, in_flight)


def _overdue(in_flight: bool) -> JMSException:
    code = Code.CALL_UNBLOCKED if in_flight else Code.CONNECTION_LOST
    what = "whether it was done is unknown" if in_flight else "it was not done"
    return JMSException(f"the call waited longer than failover_timeout for a new transport; {what}", code)
