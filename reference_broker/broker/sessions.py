"""What clients have open: links, sessions, consumers, deliveries and transactions.

A *link* is one transport of a JMS connection. Everything hangs on it and ends with it (failover profile RC): the
client creates it all again on its next link, under the same names.

A delivery is, as the table `CUSTODY` has it:

- HELD: out and not acknowledged;
- PLEDGED: acknowledged in a transaction that is open;
- and after that it is no more: consumed, or given back to its queue.
"""

from __future__ import annotations

from typing import Final

from .commands import Settlement
from .envelope import Envelope
from .queues import Message, Queue

CUSTODY: Final = {
    ("held", "acknowledge"): "consumed",
    ("held", "acknowledge in transaction"): "pledged",
    ("held", "recover"): "given back",
    ("held", "rollback"): "given back",
    ("held", "session or link ends"): "given back",
    ("held", "consumer closes, not seen"): "given back",
    ("held", "consumer closes, seen"): "held",
    ("pledged", "commit"): "consumed",
    ("pledged", "rollback"): "given back",
    ("pledged", "rollback of another transaction"): "pledged",
    ("pledged", "session or link ends"): "given back",
    ("pledged", "consumer closes, not seen"): "pledged",
    ("pledged", "consumer closes, seen"): "pledged",
}
"""State and event to what becomes of the delivery; tests/reference_broker/broker walks through it."""


class Link:
    """One transport and what was opened over it."""

    def __init__(self, number: int, uid: str, client_id: str | None) -> None:
        self.number = number
        self.uid = uid
        self.client_id = client_id
        self.sessions: dict[str, Session] = {}
        self.consumers: dict[str, Consumer] = {}
        self.deliveries = 0
        """The last delivery number used."""
        self.held_up = False
        """Its reader is slow: nothing is handed out over it."""


class Session:
    """A session of a link."""

    def __init__(self, name: str, link: Link, *, transacted: bool) -> None:
        self.name = name
        self.link = link
        self.transacted = transacted
        self.consumers: dict[str, Consumer] = {}
        self.deliveries: dict[int, Delivery] = {}
        self.transactions: dict[str, Transaction] = {}


class Consumer:
    """A consumer on a queue."""

    __slots__ = ("closed", "credit", "in_line", "name", "queue", "session", "settlement", "window")

    def __init__(self, name: str, session: Session, queue: Queue, window: int, settlement: Settlement) -> None:
        self.name = name
        self.session = session
        self.queue = queue
        self.window = window
        """Credit it started with and gets back by recover and rollback."""
        self.credit = window
        self.settlement = settlement
        self.in_line = False
        self.closed = False

    @property
    def wants(self) -> bool:
        """It may be given a message now."""
        return self.credit > 0 and not self.closed and not self.session.link.held_up


class Delivery:
    """A message that is out."""

    __slots__ = ("consumer", "message", "pledge")

    def __init__(self, message: Message, consumer: Consumer) -> None:
        self.message = message
        self.consumer = consumer
        self.pledge = ""
        """The open transaction that has acknowledged it."""


class Transaction:
    """Work that waits for its commit."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sends: list[Envelope] = []
        self.pledged: list[int] = []
        self.sequences: dict[str, int] = {}
        """Of each producer the last sequence sent in it; counts once committed (D-05)."""
