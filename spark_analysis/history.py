"""A delivery log read as JMS: what was sent and with what certainty, what was delivered and what became of it.

*Sends.* Expectations come from here only. A send is CONFIRMED (its call returned and, in a transaction, the commit
did), REFUSED (it surely had no effect: the call failed definitely, the transaction was rolled back, or nobody ever
tried to commit it) or UNKNOWN (everything else; an attempt without an end, too). One uid may be sent several times
(an application that retries): then at most as many copies may exist as sends were not REFUSED, or one, if the scenario
promises duplicate detection.

*Deliveries.* Every hand-over of a message to the application has a state:

    OPEN       handed over, not acknowledged: CLIENT before acknowledge(), a transaction not yet ended
    RETURNED   OPEN, and then given back: recover(), rollback(), a commit that rolled back, a listener that raised
    CONSUMED   AUTO and DUPS_OK: the call or listener returned; the provider owes the acknowledgement
    UNSURE     acknowledge() or commit() with an unknown outcome covered it
    SETTLED    acknowledge() or commit() returned, so it must never come again

    from \\ event       acknowledge OK   unknown   failed, stale   recover    commit OK   unknown   rolled back
    OPEN               SETTLED          UNSURE    RETURNED        RETURNED   SETTLED     UNSURE    RETURNED
    UNSURE             SETTLED          UNSURE    UNSURE          UNSURE     -           -         -

A transaction's state follows from its end wherever that stands in the log, so a delivery whose transaction commits
after the message was delivered again is SETTLED and the second delivery a violation (TX-20).

*Streams.* A queue is one stream of messages; each subscription of a topic is one.
"""

from __future__ import annotations

from collections import defaultdict

from spark_analysis.deliveries import (
    Delivery,
    Fate,
    Message,
    Operation,
    Send,
    SessionKey,
    State,
    Subscription,
    Transaction,
    operations,
    placed,
)
from spark_analysis.failures import Failures
from spark_analysis.log import Log
from spark_analysis.schema import Event, Kind, Outcome

_FATE = {
    Outcome.OK: Fate.CONFIRMED,
    Outcome.FAILED: Fate.REFUSED,
    Outcome.INDETERMINATE: Fate.UNKNOWN,
}


class History:
    """One log, digested for the rules."""

    def __init__(self, log: Log) -> None:
        self.header = log.header
        self.problems = log.problems
        self.events = log.events
        self.end = len(log.events)
        options = log.header.options
        self.duplicate_detection = options.get("duplicate-detection", "") == "on"
        self.failures = Failures(log.events, self.end, transparent=options.get("transparent", "") == "on")
        self.operations = operations(log.events)
        self.messages: dict[tuple[str, str], Message] = {}  # by destination and uid
        self.sent: dict[str, list[Send]] = defaultdict(list)  # by uid
        self.transactions: dict[str, Transaction] = {}
        self.subscriptions: dict[str, list[Subscription]] = defaultdict(list)  # by topic
        self.drained: dict[str, int] = {}  # stream or destination -> the last drain's position
        self.modes: dict[SessionKey, str] = {}
        self.deliveries: list[Delivery] = []
        self.by_message: dict[tuple[str, str], list[Delivery]] = defaultdict(list)  # by stream and uid
        self.session_closed: dict[SessionKey, list[int]] = defaultdict(list)
        self.recovered: dict[SessionKey, list[int]] = defaultdict(list)
        self._held: dict[SessionKey, dict[str, Delivery]] = defaultdict(dict)
        self._subscriber: dict[str, Subscription] = {}
        self._learn_modes()
        for operation in self.operations:
            if operation.event.kind in (Kind.COMMIT, Kind.ROLLBACK) and operation.event.transaction:
                self._end_transaction(operation)
        for operation in self.operations:
            self._take_in(operation)

    def copies(self, destination: str, uid: str) -> int:
        """How many copies of a message may legitimately exist, at least one (a phantom is another rule's matter)."""
        message = self.messages.get((destination, uid))
        if message is None or self.duplicate_detection:
            return 1
        return max(1, message.stored_at_most)

    def volatile(self, destination: str) -> bool:
        """Whether the scenario declares that a failure may empty this destination."""
        return f"volatile:{destination}" in self.header.options

    def streams(self, destination: str) -> tuple[str, ...]:
        """The streams that a destination feeds: itself, or the subscriptions of a topic."""
        subscriptions = self.subscriptions.get(destination)
        if subscriptions is None:
            return (destination,)
        return tuple(dict.fromkeys(subscription.stream for subscription in subscriptions))

    def may_return(self, delivery: Delivery, until: int) -> bool:
        """Whether an OPEN delivery may have gone back to the broker before ``until``."""
        closes = list(self.session_closed.get(delivery.session, ()))
        connection = self.failures.connections.get(delivery.session[0])
        closes += connection.closed if connection else []
        closes += self.recovered.get(delivery.session, ())
        if any(delivery.position < position < until for position in closes):
            return True
        return self.failures.severed(delivery.session[0], delivery.position, until)

    def exposed_modes(self) -> tuple[str, ...]:
        """The acknowledge modes of the sessions that consumed before the last fault, or at all without one."""
        last = max((fault.position for fault in self.failures.faults), default=-1)
        if last < 0:
            last = self.failures.last
        before = [d.mode for d in self.deliveries if last < 0 or d.position < last]
        return tuple(sorted(set(before or [d.mode for d in self.deliveries])))

    def _learn_modes(self) -> None:
        for event in self.events:
            if event.session and event.mode:
                self.modes.setdefault((event.connection, event.session), event.mode)

    def _mode(self, event: Event) -> str:
        known = event.mode or self.modes.get((event.connection, event.session), "")
        return known or ("TRANSACTED" if event.transaction else "AUTO")

    def _transaction(self, ident: str) -> Transaction:
        if ident not in self.transactions:
            self.transactions[ident] = Transaction(ident, Fate.REFUSED)  # nobody tried to commit it so far
        return self.transactions[ident]

    def _end_transaction(self, operation: Operation) -> None:
        """Fold one commit or rollback into its transaction's fate; a definite commit outweighs all else."""
        transaction = self._transaction(operation.event.transaction)
        before = transaction.fate if transaction.attempted else None
        if operation.event.kind is Kind.ROLLBACK:
            if before is None:
                transaction.ended = operation.ended_at
            return
        transaction.attempted = True
        if before is not Fate.CONFIRMED:
            transaction.ended = operation.ended_at
            if operation.outcome is Outcome.OK:
                transaction.fate = Fate.CONFIRMED
            elif operation.outcome is not Outcome.FAILED:
                transaction.fate = Fate.UNKNOWN
            elif before is None:
                transaction.fate = Fate.REFUSED

    def _take_in(self, operation: Operation) -> None:
        event = operation.event
        match event.kind:
            case Kind.SEND:
                self._send(operation)
            case Kind.RECEIVE:
                self._receive(operation)
            case Kind.ACKNOWLEDGE:
                self._acknowledge(operation)
            case Kind.RECOVER:
                self.recovered[event.connection, event.session].append(event.position)
                self._give_back((event.connection, event.session))
            case Kind.SUBSCRIBE if operation.outcome is not Outcome.FAILED:
                self._subscribe(operation)
            case Kind.DRAINED:
                self._drain(event)
            case Kind.CLOSE:
                self._close(event)
            case _:
                pass

    def _send(self, operation: Operation) -> None:
        event, fate, ended = operation.event, _FATE[operation.outcome], operation.ended_at
        transaction = self._transaction(event.transaction) if event.transaction else None
        if transaction is not None and fate is not Fate.REFUSED:
            ended = max(ended, transaction.ended)
            if transaction.fate is not Fate.CONFIRMED:
                fate = transaction.fate
        send = Send(
            event.position,
            ended,
            event.message,
            event.destination,
            (event.connection, event.session),
            self._mode(event),
            event.sequence,
            event.digest,
            event.persistent,
            event.priority,
            event.expires_at_ms or (operation.end.expires_at_ms if operation.end else 0),
            event.transaction,
            _FATE[operation.outcome],
            fate,
        )
        key = (event.destination, event.message)
        if key not in self.messages:
            self.messages[key] = Message(event.message, event.destination)
        self.messages[key].sends.append(send)
        self.sent[event.message].append(send)
        if transaction is not None:
            transaction.sends.append(send)

    def _receive(self, operation: Operation) -> None:
        event = operation.event
        if not event.message:
            if operation.end is None or not operation.end.message:
                return  # nothing was handed over
            event = placed(operation.end, event)
        stream = self.stream_of(event)
        session = (event.connection, event.session)
        delivery = Delivery(
            event.position,
            event.message,
            event.destination,
            stream,
            event.endpoint,
            session,
            self._mode(event),
            event.redelivered,
            event.delivery_count,
            event.digest,
            event.wall_ms,
            event.transaction,
            State.OPEN,
        )
        self._initial_state(delivery, operation.outcome)
        self.deliveries.append(delivery)
        self.by_message[stream, event.message].append(delivery)

    def _initial_state(self, delivery: Delivery, outcome: Outcome) -> None:
        if delivery.transaction:
            transaction = self._transaction(delivery.transaction)
            transaction.deliveries.append(delivery)
            if transaction.fate is Fate.CONFIRMED:
                delivery.state, delivery.settled_at = State.SETTLED, transaction.ended
            elif transaction.fate is Fate.UNKNOWN:
                delivery.state = State.UNSURE
            elif transaction.ended >= 0:
                delivery.state = State.RETURNED
            return
        if delivery.mode in ("AUTO", "DUPS_OK"):
            delivery.state = State.CONSUMED if outcome is Outcome.OK else State.RETURNED
        self._held[delivery.session][delivery.message] = delivery

    def _acknowledge(self, operation: Operation) -> None:
        event = operation.event
        held = self._held[event.connection, event.session]
        covered = [held[uid] for uid in event.messages if uid in held] if event.messages else list(held.values())
        stale = "stale" in f"{operation.end.error} {operation.end.code}".lower() if operation.end else False
        if operation.outcome is Outcome.FAILED:
            if stale:
                self._give_back((event.connection, event.session))
            return
        for delivery in covered:
            if operation.outcome is Outcome.OK:
                delivery.state, delivery.settled_at = State.SETTLED, operation.ended_at
                held.pop(delivery.message, None)
            elif delivery.state is State.OPEN:
                delivery.state = State.UNSURE

    def _give_back(self, session: SessionKey) -> None:
        for delivery in self._held.pop(session, {}).values():
            if delivery.state is State.OPEN:
                delivery.state = State.RETURNED

    def _subscribe(self, operation: Operation) -> None:
        event = operation.event
        stream = f"{event.destination} [{event.detail or event.endpoint}]"
        durable = bool(event.detail) and event.persistent
        known = next((s for s in self.subscriptions[event.destination] if s.stream == stream), None)
        if known is None:
            consumer = (event.connection, event.session)
            known = Subscription(stream, event.destination, event.detail, durable, consumer, operation.ended_at)
            self.subscriptions[event.destination].append(known)
        self._subscriber[event.endpoint] = known

    def stream_of(self, event: Event) -> str:
        """The stream that a consumer's event belongs to: its subscription, or the queue."""
        subscription = self._subscriber.get(event.endpoint)
        return subscription.stream if subscription and subscription.topic == event.destination else event.destination

    def _drain(self, event: Event) -> None:
        if event.endpoint in self._subscriber:
            self.drained[self._subscriber[event.endpoint].stream] = event.position
        elif event.detail and event.destination in self.subscriptions:
            self.drained[f"{event.destination} [{event.detail}]"] = event.position
        else:
            for stream in {event.destination, *self.streams(event.destination)}:
                self.drained[stream] = event.position

    def _close(self, event: Event) -> None:
        session = (event.connection, event.session)
        if event.session and not event.endpoint:
            self.session_closed[session].append(event.position)
        for endpoint, subscription in self._subscriber.items():
            closed = event.endpoint == endpoint if event.endpoint else _inside(subscription.consumer, session)
            if closed and not subscription.name and subscription.until < 0:
                subscription.until = event.position


def _inside(consumer: SessionKey, closed: SessionKey) -> bool:
    """Whether a consumer's session is the closed one, or belongs to the closed connection."""
    return consumer[0] == closed[0] and closed[1] in ("", consumer[1])
