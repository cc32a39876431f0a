"""What a session owes the broker and the application, and what a failover makes of it. No I/O.

*Held* are the deliveries that the application has received and not settled, in order; prefetched messages are
not among them (ACK-CLIENT-02). All of them belong to the transport whose epoch the state is at.

When the transport is lost, and the session's state at the broker with it, everything held is void:

    CLIENT      held something -> *stale*: the next acknowledge() raises once and cleans (ACK-CLIENT-04, D-06).
                Three cases: acknowledge() before anything new was received, which only marks the session clean;
                after something new was received, which gives that back too, for the application will be told that its
                acknowledgement failed (ACK-CLIENT-05, -06); recover() instead, which never raises (ACK-CLIENT-08).
    TRANSACTED  had uncommitted work or receipts -> *doomed*: rollback-only. What is added later shares the fate, and
                commit() undoes it and raises (TX-03, TX-05). It had none -> nothing happens (TX-04).
    others      the messages come again; nothing to remember.

Work counts from the moment before it is handed to the transport: a send that was interrupted dooms its transaction
even if it never arrived (TX-14). Each transaction has a number of its own per session, so that the broker can be
asked for the fate of just this one (D-03), and none is carried over to another transport (TX-13).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reference_broker.jms import AcknowledgeMode

from .driver import Delivery


class Verdict(StrEnum):
    """What an acknowledge() or commit() has to come to."""

    NOTHING = "nothing to do"
    PROCEED = "settle at the broker"
    STALE = "raise; give back what was received since"
    FOREIGN = "raise; the message belongs to an earlier transport and the session is clean"
    DOOMED = "undo and raise"


@dataclass(frozen=True)
class Decision:
    """A verdict with the deliveries that it is about, in order."""

    verdict: Verdict
    deliveries: tuple[Delivery, ...] = ()
    transaction: str = ""


class SessionState:
    """One session; `id` prefixes the names of its transactions."""

    def __init__(self, id: str, mode: AcknowledgeMode, defects: frozenset[str] = frozenset()) -> None:
        self.id = id
        self.mode = mode
        self.epoch = 0
        self.held: list[Delivery] = []
        self.stale = False
        self.doomed = False
        self.transaction = ""
        """The transaction that is begun at the broker, empty if none."""
        self._acknowledged_in_transaction: set[int] = set()
        self._number = 0
        self._defects = defects

    @property
    def transacted(self) -> bool:
        """Whether its mode is SESSION_TRANSACTED."""
        return self.mode is AcknowledgeMode.SESSION_TRANSACTED

    @property
    def dirty(self) -> bool:
        """Whether a loss would make it stale or doomed, or has (TX-02, ACK-CLIENT-02)."""
        return bool(self.held or self.transaction or self.stale or self.doomed)

    # -- what happens ------------------------------------------------------------------------------------

    def handed_out(self, delivery: Delivery) -> None:
        """The application has it."""
        self.held.append(delivery)

    def begin(self) -> tuple[str, bool]:
        """The transaction for the next work, and whether it must be begun at the broker first (TX-12)."""
        if self.transaction:
            return self.transaction, False
        self.transaction = self.name_transaction()
        return self.transaction, True

    def name_transaction(self) -> str:
        """A name that no other transaction has; brokers bound their memory by what stands before the slash."""
        self._number += 1
        return f"{self.id}/{self._number}"

    def lost(self) -> None:
        """The transport is lost, and the session's state at the broker with it."""
        if self.transacted:
            self.doomed |= bool(self.held or self.transaction) or "clean-transaction-doomed" in self._defects
        elif self.mode is AcknowledgeMode.CLIENT:
            self.stale |= bool(self.held) or "clean-session-goes-stale" in self._defects
        self._start_over()

    def moved(self, epoch: int) -> None:
        """The session exists again, over the transport of that epoch."""
        self.epoch = epoch

    def restarted(self) -> None:
        """The broker has taken back everything (recover or rollback): the session is clean."""
        self.stale = self.doomed = False
        self._start_over()

    def settled(self, deliveries: tuple[Delivery, ...]) -> None:
        """These are acknowledged."""
        if len(deliveries) == len(self.held):
            self.held.clear()
        else:
            self.held = [delivery for delivery in self.held if delivery not in deliveries]

    def reported(self) -> None:
        """The application was told that the outcome of its acknowledge() or commit() is what it is: clean again."""
        if "error-of-failover-raised-again" not in self._defects:
            self.stale = self.doomed = False

    def finished(self) -> None:
        """The transaction ended with a commit; the next one starts by itself (TX-01)."""
        self.doomed = False
        self._start_over()

    def holds(self, delivery: Delivery) -> bool:
        """Whether the application still holds this very delivery, so that settling it means something."""
        return any(delivery is held for held in self.held)

    # -- decisions ---------------------------------------------------------------------------------------

    def acknowledge(self, epoch: int) -> Decision:
        """acknowledge() of a CLIENT session, called on a message that was received at `epoch`."""
        if self.stale:
            if "stale-acknowledge-succeeds" not in self._defects:
                return Decision(Verdict.STALE, tuple(self.held))
            self.stale = False
        elif epoch != self.epoch and "old-message-acknowledges-new" not in self._defects:
            return Decision(Verdict.FOREIGN)
        return Decision(Verdict.PROCEED, tuple(self.held)) if self.held else Decision(Verdict.NOTHING)

    def commit(self) -> Decision:
        """commit() of a transacted session."""
        if self.doomed:
            if "commit-succeeds-after-failover" in self._defects:
                return Decision(Verdict.NOTHING)
            added = self.held or self.transaction
            if not added or "half-stale-transaction-commits" not in self._defects:
                return Decision(Verdict.DOOMED, tuple(self.held), self.transaction)
        if self.held or self.transaction:
            return Decision(Verdict.PROCEED, self.unacknowledged(), self.transaction)
        return Decision(Verdict.NOTHING)

    def unacknowledged(self) -> tuple[Delivery, ...]:
        """Receipts that the transaction does not hold at the broker yet."""
        return tuple(held for held in self.held if id(held) not in self._acknowledged_in_transaction)

    def acknowledged_in_transaction(self, deliveries: tuple[Delivery, ...]) -> None:
        """These acknowledgements have been sent as part of the transaction."""
        self._acknowledged_in_transaction.update(id(delivery) for delivery in deliveries)

    def _start_over(self) -> None:
        self.held.clear()
        self.transaction = ""
        self._acknowledged_in_transaction.clear()
