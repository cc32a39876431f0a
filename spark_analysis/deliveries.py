"""The nouns of a digested log: sends, deliveries, transactions, subscriptions; ``history`` tells what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from spark_analysis.schema import Event, Kind, Outcome

SessionKey = tuple[str, str]  # connection, session


class Fate(Enum):
    """What is known of a send's or a transaction's effect."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class State(Enum):
    """What became of a delivery."""

    OPEN = "open"
    RETURNED = "returned"
    CONSUMED = "consumed"
    UNSURE = "unsure"
    SETTLED = "settled"


class Send(msgspec.Struct):
    """One call of send; ``end`` is where its fate was sealed (its own end or that of its transaction)."""

    position: int
    end: int
    message: str
    destination: str
    producer: SessionKey
    mode: str
    sequence: int
    digest: str
    persistent: bool
    priority: int
    expires_at_ms: int
    transaction: str
    call: Fate  # of the call of send alone
    fate: Fate  # of the message


class Delivery(msgspec.Struct):
    """One hand-over of a message to the application."""

    position: int
    message: str
    destination: str
    stream: str
    endpoint: str
    session: SessionKey
    mode: str
    redelivered: bool
    delivery_count: int
    digest: str
    wall_ms: int
    transaction: str
    state: State
    settled_at: int = -1  # where the acknowledgement or commit that covers it ended


class Transaction(msgspec.Struct):
    """A local or distributed transaction, by the uid that the test gave it."""

    ident: str
    fate: Fate = Fate.UNKNOWN
    attempted: bool = False  # commit was called at least once
    ended: int = -1
    sends: list[Send] = []
    deliveries: list[Delivery] = []


class Subscription(msgspec.Struct):
    """One subscription of a topic; ``until`` is where an unnamed one ended with its consumer, -1 if it did not."""

    stream: str
    topic: str
    name: str
    durable: bool
    consumer: SessionKey
    since: int
    until: int = -1


class Message(msgspec.Struct):
    """All sends of one uid to one destination."""

    uid: str
    destination: str
    sends: list[Send] = []

    @property
    def confirmed(self) -> Send | None:
        """The first send whose effect is certain."""
        return next((send for send in self.sends if send.fate is Fate.CONFIRMED), None)

    @property
    def stored_at_most(self) -> int:
        """How many copies the sends can explain without duplicate detection."""
        return sum(send.fate is not Fate.REFUSED for send in self.sends)


class Operation(msgspec.Struct):
    """An attempt and its end taken together, or an event that stands alone."""

    event: Event  # the attempt, or the event alone
    end: Event | None  # None: no end in the log
    outcome: Outcome  # never ATTEMPT

    @property
    def ended_at(self) -> int:
        """The position of the end, or of the attempt if there is none."""
        return self.event.position if self.end is None else self.end.position


def operations(events: Iterable[Event]) -> list[Operation]:
    """Join every attempt with its end, in the order in which they had their effect."""
    joined: list[Operation] = []
    open_attempts: dict[int, Operation] = {}
    for event in events:
        if event.outcome is Outcome.ATTEMPT:
            operation = Operation(event, None, Outcome.INDETERMINATE)
            open_attempts[event.position] = operation
            joined.append(operation)
        elif event.op >= 0 and (attempt := open_attempts.pop(event.op, None)) is not None:
            attempt.end, attempt.outcome = event, event.outcome
        else:
            joined.append(Operation(event, None, event.outcome))
    return sorted(joined, key=_happened_at)


def _happened_at(operation: Operation) -> int:
    """A receive happens when it returns its message, everything else when it is called."""
    late = operation.event.kind is Kind.RECEIVE and not operation.event.message
    return operation.ended_at if late else operation.event.position


_WHERE = ("connection", "session", "mode", "endpoint", "destination", "transaction")


def placed(end: Event, attempt: Event) -> Event:
    """The end of an operation, with what it leaves out about its place taken from the attempt."""
    missing = {name: getattr(attempt, name) for name in _WHERE if not getattr(end, name)}
    return msgspec.structs.replace(end, **missing)
