"""Commands that drive the broker and the answers it gives: the vocabulary of every wire and of replication.

A wire codec translates frames to these and back; the core wire carries them as they are. Ids of connections,
sessions, consumers, producers and transactions are chosen by the client, which makes every creation idempotent:
a command that creates what already exists with the same attributes is answered Done (D-05, VLV-12).

`request` correlates an answer with its command; 0 asks for no answer. Commands of one connection are
processed in the order in which they arrive, and answers leave in that order.

Deliveries: a consumer holds *credit*, granted by its client; each Deliver uses one up. The client grants again
as the application takes messages, so that a transaction may hold more messages than the prefetch window.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .envelope import Address, Envelope


class Settlement(StrEnum):
    """When the broker may forget a delivered message."""

    EXPLICIT = "explicit"
    """On Acknowledge."""
    ON_SEND = "on-send"
    """When it was sent (STOMP `ack:auto`, NO_ACKNOWLEDGE)."""


class Fate(StrEnum):
    """What became of a transaction (D-03)."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    UNKNOWN = "unknown"


class Command(msgspec.Struct, kw_only=True, tag=True, omit_defaults=True):
    """Root of all commands."""

    request: int = 0


class Connect(Command):
    """First packet of a transport. The uid stands for the JMS connection and outlives transports."""

    connection: str
    client_id: str | None = None
    user: str | None = None
    password: str | None = None
    version: int = 1
    heartbeat_ms: int = 0
    """The interval at which the client promises to send something; silence of twice that ends it (DET-09)."""


class Disconnect(Command):
    """Orderly end of the JMS connection: all its objects go at once; the broker closes the transport after Done."""


class OpenSession(Command):
    """A session; unacknowledged deliveries and transactions belong to it."""

    session: str
    transacted: bool = False


class CloseSession(Command):
    """Everything it held returns to the queues; its open transaction is rolled back (MSG-28)."""

    session: str
    delivered: tuple[int, ...] = ()
    """Deliveries that the application has seen: they return flagged redelivered, others unflagged."""


class OpenConsumer(Command):
    """A consumer on a queue. `credit` is the prefetch window it starts with."""

    session: str
    consumer: str
    source: Address
    selector: str | None = None
    no_local: bool = False
    credit: int = 0
    settlement: Settlement = Settlement.EXPLICIT


class CloseConsumer(Command):
    """Prefetched messages go back; what the application has seen stays with the session (MSG-29)."""

    consumer: str
    delivered: tuple[int, ...] = ()


class Grant(Command):
    """More credit for a consumer."""

    consumer: str
    credit: int


class Send(Command):
    """A message, stored at once or with the transaction.

    `producer` and `sequence` (from 1, consecutive per producer) protect a repeated send: a sequence not above
    the producer's last stored one is accepted and not stored again (SND-03, D-05).
    """

    session: str
    envelope: Envelope
    transaction: str = ""
    producer: str = ""
    sequence: int = 0


class Acknowledge(Command):
    """Deliveries are consumed, at once or with the transaction.

    Refused as a whole, ILLEGAL_STATE, if one of them is not the session's to acknowledge (any more).
    """

    session: str
    deliveries: tuple[int, ...]
    transaction: str = ""


class Recover(Command):
    """Take back all deliveries of the session and start over with the oldest; only `delivered` get flagged.

    Done leaves before the first new delivery; credit is back at each consumer's starting window.
    """

    session: str
    delivered: tuple[int, ...] = ()


class Begin(Command):
    """Open a transaction before it has work; Send and Acknowledge open one that is not open yet."""

    session: str
    transaction: str


class Return(Command):
    """Give these deliveries back, flagged redelivered: STOMP's NACK, and what its UNSUBSCRIBE leaves unacknowledged."""

    session: str
    deliveries: tuple[int, ...]


class Commit(Command):
    """Make a transaction's work durable and visible, all of it or nothing (TX-01, TX-16).

    One that is not open in this session is refused as ROLLED_BACK unless it is known to be committed: whatever
    was done in it went down with an earlier transport or node (TX-03). A client does not commit what has no work.
    """

    session: str
    transaction: str


class Rollback(Command):
    """Undo the transaction and take back the session's deliveries as Recover does."""

    session: str
    transaction: str
    delivered: tuple[int, ...] = ()


class AskFate(Command):
    """What became of a transaction that may have been committed over an earlier transport (TX-10)."""

    transaction: str


class Ping(Command):
    """A sign of life; answered by Done only if `request` is set."""


ClientCommand = (
    Connect
    | Disconnect
    | OpenSession
    | CloseSession
    | OpenConsumer
    | CloseConsumer
    | Grant
    | Send
    | Acknowledge
    | Recover
    | Return
    | Begin
    | Commit
    | Rollback
    | AskFate
    | Ping
)


class Refusal(StrEnum):
    """Why a command was refused; clients map it to an exception class."""

    NOT_SERVING = "not-serving"
    """A passive node; try another address (HA-SS-12)."""
    SECURITY = "security"
    CLIENT_ID_IN_USE = "client-id-in-use"
    INVALID_DESTINATION = "invalid-destination"
    INVALID_SELECTOR = "invalid-selector"
    ILLEGAL_STATE = "illegal-state"
    ROLLED_BACK = "rolled-back"
    RESOURCE = "resource"
    PROTOCOL = "protocol"
    UNSUPPORTED = "unsupported"


class Answer(msgspec.Struct, kw_only=True, tag=True, omit_defaults=True):
    """Root of all that a broker says."""

    request: int = 0


class Connected(Answer):
    """Answer to Connect."""

    node: str
    epoch: int
    """Activation epoch of the serving node (D-10)."""
    heartbeat_ms: int = 0
    """The interval at which the broker promises to send something."""


class Done(Answer):
    """The command's effect is as safe as it will be: durable for persistent work."""


class Refused(Answer):
    """The command had no effect; said also of commands that asked for no answer, with `request` 0."""

    why: Refusal
    reason: str


class FateIs(Answer):
    """Answer to AskFate."""

    fate: Fate


class Deliver(Answer):
    """A message for a consumer; `delivery` is unique in the connection's transport and increasing."""

    consumer: str
    delivery: int
    envelope: Envelope
    redelivered: bool = False
    delivery_count: int = 1


class Pong(Answer):
    """A sign of life."""


BrokerAnswer = Connected | Done | Refused | FateIs | Deliver | Pong
