"""Acknowledging, committing, rolling back and recovering: what a session says to the broker about what it received.

All of it is bound to the transport that the deliveries came over. With that transport gone it is never sent over
another one: acknowledging is reported (ACK-AUTO-04, ACK-CLIENT-12), giving back has been done by the loss itself
(VLV-11), and of a commit the broker is asked what became of it (D-03).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from reference_broker.broker.commands import Fate
from reference_broker.jms import (
    JMSException,
    StaleSessionException,
    TransactionOutcomeUnknownException,
    TransactionRolledBackException,
)

from .driver import CallTimedOut, Delivery, Feature, TransportLost
from .engine import Engine, Link
from .operations import Operation
from .session_state import Decision, SessionState, Verdict
from .valve import Passage

log = logging.getLogger(__name__)


class Settlement:
    """One session's dealings with the broker about its deliveries and transactions."""

    def __init__(self, engine: Engine, state: SessionState, start_over: Callable[[], None]) -> None:
        self.restarts = 0
        """How often the driver has reported that deliveries start over."""
        self._engine = engine
        self._start_over = start_over
        self._state = state
        self._id = state.id
        self._timeout = engine.options.call_timeout

    # -- AUTO and DUPS_OK --------------------------------------------------------------------------------

    def auto(self, link: Link, delivery: Delivery) -> None:
        """Acknowledge one message and wait for the confirmation.

        No call of the application is there to carry a failure: the ExceptionListener hears of it (ACK-AUTO-05).
        """
        try:
            self._auto(link, delivery)
        except JMSException as error:
            self._engine.notify(error)

    def _auto(self, link: Link, delivery: Delivery) -> None:
        if not self._is_mine(link, delivery):
            return
        try:
            self._engine.run(link, lambda over: self._confirm(over, (delivery,)))
        except TransportLost as cause:
            raise self._engine.unblocked(Operation.AUTO_ACKNOWLEDGE, cause) from cause
        with self._engine.lock:
            self._state.settled((delivery,))

    def auto_by_call(self, link: Link, delivery: Delivery) -> None:
        """The same on behalf of `receive`, which must not raise for a message that the broker took as consumed (D-16).

        The acknowledgement goes as a transaction of its own, so that after a loss the broker that serves next can say
        what became of it. If it was undone, this raises and the message comes again. Where nobody can say, the message
        is handed over, for a flagged repeat is allowed and a loss is not, and the ExceptionListener is told.
        """
        if not self._is_mine(link, delivery):
            return
        with self._passage() as passage:
            with self._engine.lock:
                provable = Feature.COMMIT_FATE in link.driver.features
                name = self._state.name_transaction() if provable else ""
            try:
                self._engine.run(link, lambda over: self._consume(over, name, delivery))
            except (TransportLost, CallTimedOut) as cause:
                fate = self._ask(passage, name) if name else Fate.UNKNOWN
                self._auto_interrupted(fate, cause)
        with self._engine.lock:
            self._state.settled((delivery,))

    def _auto_interrupted(self, fate: Fate, cause: Exception) -> None:
        if fate is Fate.COMMITTED:
            return
        error = self._engine.unblocked(Operation.AUTO_ACKNOWLEDGE, cause)
        if fate is Fate.ROLLED_BACK and "auto-ack-failure-swallowed" not in self._engine.defects:
            raise error from cause
        self._engine.notify(error)

    def _is_mine(self, link: Link, delivery: Delivery) -> bool:
        """Whether the session still holds it, over a transport that lives; a loss before is CALL_UNBLOCKED."""
        with self._engine.lock:
            if self._engine.is_current(link):
                return self._state.holds(delivery)  # not after the application has recovered the session in between
            cause = self._engine.machine.cause or TransportLost("the transport is gone")
        if "auto-ack-failure-swallowed" in self._engine.defects:
            return False
        raise self._engine.unblocked(Operation.AUTO_ACKNOWLEDGE, cause) from cause

    def _consume(self, over: Link, transaction: str, delivery: Delivery) -> None:
        if not transaction:
            self._confirm(over, (delivery,))
            return
        over.driver.begin(self._id, transaction)
        over.driver.acknowledge(self._id, (delivery,), transaction, False, self._timeout)
        over.driver.commit(self._id, transaction, self._timeout)

    def _confirm(self, over: Link, deliveries: tuple[Delivery, ...]) -> None:
        over.driver.acknowledge(self._id, deliveries, "", True, self._timeout)

    def lazily(self, link: Link, but: Delivery | None = None, prefetched: tuple[Delivery, ...] = ()) -> None:
        """Acknowledge what was handed out, without waiting; `prefetched` is for a defect.

        `but` is just being handed out: the application does not have it yet (ACK-DUPS-03).
        """
        with self._engine.lock:
            deliveries = tuple(held for held in self._state.held if held is not but)
            if not self._engine.is_current(link) or not deliveries:
                return
            self._state.settled(deliveries)
        try:
            self._acknowledge(link, deliveries + prefetched, "", confirm=False)
        except TransportLost:
            return  # duplicates are what this mode is for (ACK-DUPS-01)

    # -- CLIENT ------------------------------------------------------------------------------------------

    def acknowledge(self, epoch: int) -> None:
        """Acknowledge all that the session holds, on behalf of a message that was received at `epoch` (D-06)."""
        with self._passage() as passage:
            link, decision = self._decide(passage, lambda: self._state.acknowledge(epoch))
            match decision.verdict:
                case Verdict.NOTHING:
                    return
                case Verdict.FOREIGN:
                    raise StaleSessionException(
                        "the message was received before a failover and will come again: nothing was acknowledged"
                    )
                case Verdict.STALE:
                    left_out = "stale-error-recovers-nothing" in self._engine.defects
                    self._clean(link, () if left_out else decision.deliveries)
                    raise StaleSessionException(
                        "the session held unacknowledged messages at a failover: they, and all received since, will be "
                        "delivered again; the session has been recovered"
                    )
            try:
                self._acknowledge(link, decision.deliveries, "", confirm=True)
            except TransportLost as cause:
                self._reported()
                if "interrupted-acknowledge-succeeds" in self._engine.defects:
                    return
                raise self._engine.unblocked(Operation.ACKNOWLEDGE, cause) from cause
            with self._engine.lock:
                self._state.settled(decision.deliveries)

    def recover(self) -> None:
        """Start over with the oldest unacknowledged message; a failover never makes it raise (ACK-CLIENT-08)."""
        with self._passage() as passage:
            link, decision = self._decide(passage, lambda: Decision(Verdict.PROCEED, tuple(self._state.held)))
            if "recover-leaves-session-dirty" in self._engine.defects and self._state.stale:
                return
            self._clean(link, decision.deliveries)

    def give_back(self, link: Link) -> None:
        """A listener raised: what the session holds comes again at once, flagged (MSG-35)."""
        with self._engine.lock:
            if not self._engine.is_current(link):
                return
            deliveries = tuple(self._state.held)
        self._clean(link, deliveries)

    # -- transactions ------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit, or say what came of it instead."""
        with self._passage() as passage:
            link, decision = self._decide(passage, self._state.commit)
            match decision.verdict:
                case Verdict.NOTHING:
                    with self._engine.lock:
                        self._state.finished()
                case Verdict.DOOMED:
                    self._undo(link, decision)
                    raise TransactionRolledBackException(
                        "the connection failed over while the transaction was open: it has been rolled back"
                    )
                case _:
                    self._commit(passage, link, decision)

    def rollback(self) -> None:
        """Undo the transaction; a failover never makes it raise (TX-07)."""
        with self._passage() as passage:
            link, decision = self._decide(
                passage, lambda: Decision(Verdict.PROCEED, tuple(self._state.held), self._state.transaction)
            )
            if "rollback-leaves-transaction-doomed" in self._engine.defects and self._state.doomed:
                return
            self._undo(link, decision)

    def acknowledge_in_transaction(self, link: Link, transaction: str, deliveries: tuple[Delivery, ...]) -> None:
        """Send acknowledgements that take effect with the commit."""
        self._acknowledge(link, deliveries, transaction, confirm=False)
        with self._engine.lock:
            self._state.acknowledged_in_transaction(deliveries)

    def acknowledge_early(self, link: Link, delivery: Delivery) -> None:
        """The same for one message, as soon as the application receives it."""
        try:
            self._engine.run(link, lambda over: self.acknowledge_in_transaction(over, self.begin(over), (delivery,)))
        except TransportLost:
            log.debug("the receipt shares the fate of its transaction, which the loss has doomed")

    def begin(self, link: Link) -> str:
        """The transaction for work that goes over this transport, begun at the broker before it (TX-12)."""
        with self._engine.lock:
            if not self._engine.is_current(link):
                raise TransportLost("the transport was replaced")
            transaction, fresh = self._state.begin()
        if fresh:
            link.driver.begin(self._id, transaction)
        return transaction

    def _commit(self, passage: Passage[Link], link: Link, decision: Decision) -> None:
        asked = False
        transaction = decision.transaction

        def commit(over: Link) -> None:
            nonlocal asked, transaction
            transaction = self.begin(over)
            if decision.deliveries:
                self.acknowledge_in_transaction(over, transaction, decision.deliveries)
            asked = True
            over.driver.commit(self._id, transaction, self._timeout)

        try:
            self._engine.run(link, commit)
        except TransportLost as cause:
            if not asked:  # the receipts were still on their way: nothing of it can have been committed (TX-15)
                self._reported()
                raise TransactionRolledBackException(f"the connection was lost before the commit: {cause}") from cause
            self._resolve(passage, transaction, cause)
        except CallTimedOut:
            with self._engine.lock:
                self._state.finished()
            raise
        except TransactionRolledBackException:
            self._clean(link, tuple(self._state.held))
            raise
        else:
            with self._engine.lock:
                self._state.finished()

    def _resolve(self, passage: Passage[Link], transaction: str, cause: TransportLost) -> None:
        """A commit was in flight at the loss: the broker that serves next says what became of it (D-03, TX-10)."""
        claims = "interrupted-commit-called-rolled-back" in self._engine.defects
        fate = Fate.ROLLED_BACK if claims else self._ask(passage, transaction)
        self._reported()
        if fate is Fate.COMMITTED:
            return
        if fate is Fate.ROLLED_BACK:
            raise TransactionRolledBackException(
                "the connection was lost during the commit, and the broker has rolled the transaction back"
            ) from cause
        raise TransactionOutcomeUnknownException(
            f"the connection was lost during the commit ({cause}), and nobody can tell whether it took place"
        ) from cause

    def _ask(self, passage: Passage[Link], transaction: str) -> Fate:
        while True:
            try:
                link = passage.transport(in_flight=True)
                return self._engine.run(link, lambda over: over.driver.fate(transaction, self._timeout))
            except TransportLost:
                continue
            except JMSException as error:
                log.info("the fate of %s could not be asked: %s", transaction, error)
                return Fate.UNKNOWN

    def _undo(self, link: Link, decision: Decision) -> None:
        transaction, delivered = decision.transaction, decision.deliveries
        if not transaction:
            self._clean(link, delivered)
            return
        self._take_back(link, lambda over: over.driver.rollback(self._id, transaction, delivered, self._timeout))

    # -- common ------------------------------------------------------------------------------------------

    def _passage(self) -> Passage[Link]:
        return self._engine.valve.passage(self._id, self._engine.options.failover_timeout)

    def _decide(self, passage: Passage[Link], decide: Callable[[], Decision]) -> tuple[Link, Decision]:
        """Wait until a transport serves, and decide while it is the current one."""
        while True:
            link = passage.transport()
            with self._engine.lock:
                if self._engine.is_current(link):
                    return link, decide()

    def _acknowledge(self, link: Link, deliveries: tuple[Delivery, ...], transaction: str, *, confirm: bool) -> None:
        self._engine.run(
            link,
            lambda over: over.driver.acknowledge(self._id, deliveries, transaction, confirm, self._timeout),
        )

    def _clean(self, link: Link, delivered: tuple[Delivery, ...]) -> None:
        """Give everything back at the broker, if the application holds anything of this transport (ACK-CLIENT-06)."""
        if delivered:
            self._take_back(link, lambda over: over.driver.recover(self._id, delivered, self._timeout))
        else:
            self._reported()

    def _take_back(self, link: Link, action: Callable[[Link], None]) -> None:
        before = self.restarts
        try:
            self._engine.run(link, action)
        except TransportLost:
            self._reported()  # the loss itself has given everything back
            return
        if self.restarts == before:  # a driver that does not tell old copies from new ones
            self._start_over()

    def _reported(self) -> None:
        with self._engine.lock:
            self._state.reported()
