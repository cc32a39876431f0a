"""The seam between the failover engine and a wire.

A `WireDriver` is one transport, once connected, until it is lost or closed; it never reconnects, retries or
hides a loss. The engine makes a new driver for each attempt and decides everything that has to do with failure
(D-04, D-05). So a wire plugs in below the engine by implementing this class and nothing else.

Two kinds of error leave a driver and must never be confused (DET-07): `TransportLost` means that the transport
failed and starts failover; a JMSException is the provider's answer to one operation and goes to the caller.

Calls may come from several threads at once. A call that waits for an answer ends in one of: return (the provider
has confirmed), JMSException (the provider has refused), TransportLost (unknown), CallTimedOut (unknown; the late
answer must not be taken for that of a later call, DET-13).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from reference_broker.broker.commands import Fate
from reference_broker.jms import AcknowledgeMode, Code, Destination, JMSException, Message


class Endpoint(NamedTuple):
    """One address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class TransportLost(Exception):
    """The transport is gone; whatever was in flight may have been done or not."""


class NotServing(TransportLost):
    """The peer answered that it does not serve (now): a failed attempt, try the next address (HA-SS-12, RCN-14)."""


class CallTimedOut(JMSException):
    """No answer within the call time-out over a transport that lives (DET-13)."""

    default_code = Code.CALL_TIMED_OUT


class Feature(StrEnum):
    """What a wire or its broker can do beyond the minimum; the engine adapts to what is missing."""

    PRODUCER_SEQUENCE = "producer-sequence"
    """The broker suppresses a repeated send by producer and sequence: interrupted sends may be retried."""
    COMMIT_FATE = "commit-fate"
    """The fate of a transaction can be asked after a reconnect (TX-10)."""
    CREDIT = "credit"
    """Delivery obeys grant(); without it the wire's own prefetch rules."""
    DELIVERY_COUNT = "delivery-count"


@dataclass(frozen=True)
class Identity:
    """Who connects; the uid names the JMS connection and stays the same over all its transports."""

    connection: str
    client_id: str | None = None
    user: str | None = None
    password: str | None = None


@dataclass(frozen=True)
class SessionSpec:
    """What is needed to create a session, again and again."""

    id: str
    mode: AcknowledgeMode


@dataclass(frozen=True)
class ConsumerSpec:
    """What is needed to create a consumer, again and again."""

    id: str
    session: str
    destination: Destination
    selector: str | None = None
    no_local: bool = False
    prefetch: int = 100
    mode: AcknowledgeMode = AcknowledgeMode.AUTO


@dataclass(frozen=True)
class SendSpec:
    """How a message is sent; `transaction` is empty outside of one."""

    session: str
    transaction: str = ""
    producer: str = ""
    sequence: int = 0
    confirm: bool = True
    """Wait until the provider has it; without, the call returns when it is written."""


@dataclass(frozen=True)
class Delivery:
    """A message as it came; `token` is what this transport acknowledges it by and means nothing elsewhere."""

    consumer: str
    token: object
    message: Message = field(compare=False)


class TransportListener(Protocol):
    """What a driver reports from its own thread; the engine's side never blocks in it."""

    def delivered(self, delivery: Delivery) -> None:
        """A message arrived."""

    def restarted(self, session: str) -> None:
        """Deliveries of this session start over: whatever it was delivered before this moment is void.

        Reported by `recover()` and `rollback()` between the last old copy and the first new one, from the
        thread that reports deliveries: only the driver sees where in the stream the one ends and the other begins.
        """

    def lost(self, cause: TransportLost) -> None:
        """The transport is gone; reported once, also if a call has raised it already."""


class WireDriver(ABC):
    """One transport to one broker; see the module's text for the contract."""

    features: frozenset[Feature] = frozenset()

    @abstractmethod
    def connect(self, endpoint: Endpoint, identity: Identity, timeout: float) -> None:
        """Open the transport and complete the handshake within `timeout` seconds (DET-14).

        Raises TransportLost, NotServing, or JMSSecurityException if the credentials were refused for good.
        """

    @abstractmethod
    def open_session(self, spec: SessionSpec) -> None:
        """Create a session; creating it twice is harmless."""

    @abstractmethod
    def close_session(self, session: str, delivered: Sequence[Delivery]) -> None:
        """End a session; what it held goes back to the broker, `delivered` ones flagged redelivered."""

    @abstractmethod
    def open_consumer(self, spec: ConsumerSpec) -> None:
        """Create a consumer; messages may arrive before this returns."""

    @abstractmethod
    def close_consumer(self, consumer: str, delivered: Sequence[Delivery]) -> None:
        """End a consumer; `delivered` ones stay with the session, others go back."""

    @abstractmethod
    def grant(self, consumer: str, credit: int) -> None:
        """The application has taken `credit` messages: as many more may come."""

    @abstractmethod
    def send(self, message: Message, spec: SendSpec, timeout: float | None) -> None:
        """Send; headers that belong to the provider are already set on the message (MSG-01)."""

    @abstractmethod
    def acknowledge(
        self,
        session: str,
        deliveries: Sequence[Delivery],
        transaction: str,
        confirm: bool,
        timeout: float | None,
    ) -> None:
        """Acknowledge; in a transaction it takes effect with the commit."""

    @abstractmethod
    def begin(self, session: str, transaction: str) -> None:
        """Start a transaction before its first work is sent (TX-12)."""

    @abstractmethod
    def commit(self, session: str, transaction: str, timeout: float | None) -> None:
        """Commit and wait for the confirmation."""

    @abstractmethod
    def rollback(self, session: str, transaction: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        """Undo the transaction; afterwards the session's deliveries start over as after recover()."""

    @abstractmethod
    def recover(self, session: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        """Give back all deliveries of a session; delivery starts over with the oldest, `delivered` flagged.

        When this returns, no copy that was sent before will reach the listener any more; the point from which on
        copies are new is reported by `TransportListener.restarted`.
        """

    @abstractmethod
    def fate(self, transaction: str, timeout: float | None) -> Fate:
        """What became of a transaction begun over an earlier transport; UNKNOWN without COMMIT_FATE."""

    @abstractmethod
    def ping(self) -> None:
        """Write a sign of life that makes the peer answer; does not wait."""

    @property
    @abstractmethod
    def last_heard(self) -> float:
        """`time.monotonic()` of the last byte from the peer (DET-02)."""

    @abstractmethod
    def abort(self) -> None:
        """Destroy the transport at once: every call in flight raises TransportLost (VLV-05, D-04)."""

    @abstractmethod
    def close(self) -> None:
        """End the JMS connection in an orderly way and release everything; never raises."""


DriverFactory = Callable[[TransportListener], WireDriver]
