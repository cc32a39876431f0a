"""Where a log shows failures, and which deliveries a failure excuses.

A failure has two faces in a log. The *fault* is what the test injected; it is recorded before it is done, names the
connections it may hit ("" = all that existed), and some faults never sever a client (a killed backup, latency). The
*loss* is what a connection saw: from FAILOVER_BEGUN, or from its first event of a higher epoch if the adapter has no
such notification, up to FAILOVER_DONE. The two are kept apart because only the loss tells what a session consumed last:
between fault and loss an application may still be handed what its client had prefetched.

A connection that was there when a severing fault was injected and shows no loss afterwards either was not hit, or died
of it (no failover). Nobody can tell, so the fault stays *pending* on it to the end of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from spark_analysis.schema import Event, Kind, Outcome

NEVER_SEVERS = frozenset({"", "none", "kill-backup", "latency", "slow-disk"})


class Loss(msgspec.Struct):
    """One failure as one connection saw it, from ``begun`` to ``done`` (log positions)."""

    begun: int
    done: int


class ConnectionHistory(msgspec.Struct):
    """One connection's life: its first event, the losses it saw and where it was closed."""

    first: int
    epoch: int
    tells: bool  # it records FAILOVER_BEGUN, so epochs say nothing more
    losses: list[Loss] = []
    closed: list[int] = []
    in_failover: bool = False

    def see(self, event: Event, end_of_log: int) -> None:
        """Take in the connection's next event."""
        if self.tells:
            if event.kind is Kind.FAILOVER_BEGUN and not self.in_failover:
                self.losses.append(Loss(event.position, end_of_log))
                self.in_failover = True
            elif event.kind is Kind.FAILOVER_DONE and self.in_failover:
                self.losses[-1].done = event.position
                self.in_failover = False
        elif event.epoch > self.epoch:
            self.epoch = event.epoch
            self.losses.append(Loss(event.position, event.position))


class Fault(msgspec.Struct, frozen=True):
    """An injected fault that can sever a client."""

    position: int
    connection: str  # "" = any


class Failures:
    """All failures of a log, asked by connection and position."""

    def __init__(self, events: Sequence[Event], end_of_log: int, *, transparent: bool) -> None:
        self.connections: dict[str, ConnectionHistory] = {}
        self.faults: list[Fault] = []
        self._end = end_of_log
        self._transparent = transparent
        self._telling = {event.connection for event in events if event.kind is Kind.FAILOVER_BEGUN}
        for event in events:
            self._see(event)

    def _see(self, event: Event) -> None:
        if event.kind is Kind.FAULT and event.op < 0 and event.outcome is not Outcome.FAILED:
            if event.fault not in NEVER_SEVERS:
                self.faults.append(Fault(event.position, event.connection))
            return
        if not event.connection:
            return
        connection = self.connections.get(event.connection)
        if connection is None:
            tells = event.connection in self._telling
            connection = self.connections[event.connection] = ConnectionHistory(event.position, event.epoch, tells)
        connection.see(event, self._end)
        if event.kind is Kind.CLOSE and not event.session and not event.endpoint:
            connection.closed.append(event.position)

    @property
    def excusing(self) -> bool:
        """Whether the log shows a failure at all that excuses anything."""
        return self.last >= 0

    @property
    def first(self) -> int:
        """Where the first failure begins, -1 without one."""
        begins = [fault.position for fault in self.faults]
        begins += [loss.begun for connection in self.connections.values() for loss in connection.losses]
        return min(begins, default=-1)

    @property
    def last(self) -> int:
        """Where the last failure ends, -1 without one that excuses anything."""
        if self._transparent:
            return -1
        ends = [fault.position for fault in self.faults]
        ends += [loss.done for connection in self.connections.values() for loss in connection.losses]
        return max(ends, default=-1)

    def severed(self, connection: str, since: int, until: int) -> bool:
        """Whether a failure may have taken from ``connection``, before ``until``, what it held at ``since``."""
        if self._transparent:
            return False
        history = self.connections.get(connection)
        for fault in self.faults:
            if fault.position < until and self._hits(fault, connection, history, since):
                return True
        return history is not None and any(loss.done >= since and loss.begun <= until for loss in history.losses)

    def _hits(self, fault: Fault, connection: str, history: ConnectionHistory | None, since: int) -> bool:
        if fault.connection not in ("", connection):
            return False
        if fault.position > since:
            return True
        if history is None or history.first > fault.position:
            return False  # the connection is younger than the fault
        return not any(fault.position < loss.done < since for loss in history.losses)  # still pending at ``since``

    def last_consumed(self, connection: str, consumed: list[int]) -> dict[int, tuple[int, ...]]:
        """For each failure of a connection, which of a session's consumptions may be its last before the failure.

        ``consumed`` are the sorted positions of one session's consumptions. The key names the failure. Where the whole
        failover is visible this is one message, and those recorded while it ran. Where only a higher epoch shows it, a
        receipt may have been on its way: the next message, too. Where a fault is only pending, its moment is unknown:
        any message from the last before the fault on.
        """
        history = self.connections.get(connection)
        if self._transparent or history is None or not consumed:
            return {}
        ambiguous: dict[int, tuple[int, ...]] = {}
        for loss in history.losses:
            before = bisect_right(consumed, loss.begun - 1)
            during = bisect_right(consumed, loss.done) if history.tells else before + 1
            ambiguous[loss.begun] = tuple(consumed[max(before - 1, 0) : max(during, before)])
        last_loss = history.losses[-1].begun if history.losses else -1
        for fault in self.faults:
            hit = fault.connection in ("", connection) and history.first < fault.position
            if hit and fault.position > last_loss:
                before = bisect_right(consumed, fault.position)
                ambiguous[fault.position] = tuple(consumed[max(before - 1, 0) :])
        return ambiguous
