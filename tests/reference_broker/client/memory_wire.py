"""A wire without sockets: drivers that talk to the broker's state machine in this process, and break on request.

Everything happens in the caller's thread, so a test decides what has happened when a fault strikes: a request is
lost before the broker saw it, or its reply after, or a call stays in the air until the transport is destroyed.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence

from reference_broker.broker.commands import (
    Acknowledge,
    Answer,
    AskFate,
    ClientCommand,
    CloseConsumer,
    CloseSession,
    Commit,
    Connect,
    Deliver,
    Disconnect,
    Done,
    Fate,
    FateIs,
    Grant,
    OpenConsumer,
    OpenSession,
    Recover,
    Refused,
    Rollback,
    Send,
)
from reference_broker.broker.effects import Terms
from reference_broker.broker.engine import Broker
from reference_broker.client.connection import FailoverConnection, FailoverConnectionFactory
from reference_broker.client.core_driver import REFUSALS
from reference_broker.client.core_messages import to_address, to_envelope, to_message
from reference_broker.client.driver import (
    CallTimedOut,
    ConsumerSpec,
    Delivery,
    Endpoint,
    Feature,
    Identity,
    SendSpec,
    SessionSpec,
    TransportListener,
    TransportLost,
    WireDriver,
)
from reference_broker.client.options import ClientOptions
from reference_broker.jms import AcknowledgeMode, Message

LIMIT = 10.0
"""Seconds after which a test counts as hung."""

ONE = Endpoint("one", 1)
TWO = Endpoint("two", 2)


class Network:
    """One broker, the transports to it, and the faults that are waiting for their command."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.broker = Broker(Terms())
        self.links: dict[int, MemoryDriver] = {}
        self.attempts: list[Endpoint] = []
        self.commands: list[ClientCommand] = []
        self.down = False
        self.refusal: Exception | None = None
        self.features = frozenset({Feature.PRODUCER_SEQUENCE, Feature.COMMIT_FATE, Feature.CREDIT})
        self._faults: dict[type[ClientCommand], str] = {}
        self._numbers = itertools.count(1)
        self.held = 0

    # -- faults ------------------------------------------------------------------------------------------

    def arm(self, kind: type[ClientCommand], fault: str) -> None:
        """Once, at the next command of that kind: drop-req, drop-reply, hold, or time-out."""
        self._faults[kind] = fault

    def cut(self) -> None:
        """All transports break; the broker lives and serves."""
        with self.changed:
            for link in list(self.links.values()):
                link.break_down("the link was cut")

    def go_down(self) -> None:
        """All transports break and no attempt succeeds any more."""
        with self.changed:
            self.down = True
        self.cut()

    def come_up(self) -> None:
        """Attempts succeed again."""
        with self.changed:
            self.down = False
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until something has happened at the broker's side."""
        with self.changed:
            assert self.changed.wait_for(condition, LIMIT)

    def of(self, *kinds: type[ClientCommand]) -> list[ClientCommand]:
        """What the broker was sent, of these kinds."""
        return [command for command in self.commands if type(command) in kinds]

    # -- clients -----------------------------------------------------------------------------------------

    def connect(self, **options: object) -> FailoverConnection:
        """A connection whose attempts come quickly and without heartbeats."""
        settings: dict[str, object] = {"endpoints": (ONE, TWO), "heartbeat": 0.0, "retry_interval": 0.001}
        chosen = ClientOptions(**{**settings, **options})  # type: ignore[arg-type]
        return FailoverConnectionFactory(self.driver, chosen).create_connection()

    def driver(self, listener: TransportListener) -> MemoryDriver:
        """One more transport."""
        return MemoryDriver(self, next(self._numbers), listener)

    # -- exchange ----------------------------------------------------------------------------------------

    def exchange(self, link: MemoryDriver, command: ClientCommand) -> None:
        """Let the broker take a command in and tell everybody what it says."""
        fault = self._faults.pop(type(command), "")
        if fault == "drop-req":
            link.break_down("cut before the request")
            return
        self.commands.append(command)
        self.broker.handle(link.number, command, 0)
        if fault == "drop-reply":
            # What the broker says gets lost with the link, also to others on it; they share nothing here.
            link.deaf = True
        for output in self.broker.take().outputs:
            target = self.links.get(output.link)
            if target is not None and isinstance(output.what, Answer):
                target.arrived(output.what)
        if fault == "drop-reply":
            link.break_down("cut before the reply")
        elif fault == "hold":
            self.held += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: link.lost_by is not None, LIMIT)
        elif fault == "time-out":
            raise CallTimedOut("the answer did not come in time")
        self.changed.notify_all()


class MemoryDriver(WireDriver):
    """One transport; every call waits for the broker's answer, which is there at once."""

    def __init__(self, network: Network, number: int, listener: TransportListener) -> None:
        self.number = number
        self.features = network.features  # type: ignore[misc]
        self.lost_by: TransportLost | None = None
        self.deaf = False
        self.heard = time.monotonic()
        self._network = network
        self._listener = listener
        self._answers: dict[int, Answer] = {}
        self._restarts: dict[int, str] = {}
        self._requests = itertools.count(1)

    def connect(self, endpoint: Endpoint, identity: Identity, timeout: float) -> None:
        with self._network.changed:
            self._network.attempts.append(endpoint)
            self._network.changed.notify_all()
            if self._network.refusal is not None:
                raise self._network.refusal
            if self._network.down:
                raise TransportLost("connection refused")
            self._network.links[self.number] = self
        self._ask(Connect(connection=identity.connection, client_id=identity.client_id))

    def _ask(self, command: ClientCommand, restarts: str = "") -> Answer:
        with self._network.changed:
            if self.lost_by is not None:
                raise TransportLost(*self.lost_by.args)
            command.request = number = next(self._requests)
            if restarts:
                self._restarts[number] = restarts
            self._network.exchange(self, command)
            if self.lost_by is not None:
                raise TransportLost(*self.lost_by.args)
            answer = self._answers.pop(number)
        if isinstance(answer, Refused):
            raise REFUSALS[answer.why](answer.reason)
        return answer

    def arrived(self, answer: Answer) -> None:
        """What the broker says, in its order."""
        if self.deaf:
            return
        if isinstance(answer, Deliver):
            self._listener.delivered(Delivery(answer.consumer, answer.delivery, to_message(answer)))
            return
        if answer.request in self._restarts and isinstance(answer, Done):
            self._listener.restarted(self._restarts.pop(answer.request))
        self._answers[answer.request] = answer

    def break_down(self, why: str) -> None:
        """The transport is gone, for both sides."""
        if self.lost_by is not None:
            return
        self.lost_by = TransportLost(why)
        self._network.links.pop(self.number, None)
        self._network.broker.lost(self.number, 0)
        for output in self._network.broker.take().outputs:
            target = self._network.links.get(output.link)
            if target is not None and isinstance(output.what, Answer):
                target.arrived(output.what)
        self._network.changed.notify_all()
        self._listener.lost(self.lost_by)

    def open_session(self, spec: SessionSpec) -> None:
        self._ask(OpenSession(session=spec.id, transacted=spec.mode is AcknowledgeMode.SESSION_TRANSACTED))

    def close_session(self, session: str, delivered: Sequence[Delivery]) -> None:
        self._ask(CloseSession(session=session, delivered=_tokens(delivered)))

    def open_consumer(self, spec: ConsumerSpec) -> None:
        source = to_address(spec.destination)
        self._ask(
            OpenConsumer(
                session=spec.session, consumer=spec.id, source=source, selector=spec.selector, credit=spec.prefetch
            )
        )

    def close_consumer(self, consumer: str, delivered: Sequence[Delivery]) -> None:
        self._ask(CloseConsumer(consumer=consumer, delivered=_tokens(delivered)))

    def grant(self, consumer: str, credit: int) -> None:
        self._ask(Grant(consumer=consumer, credit=credit))

    def send(self, message: Message, spec: SendSpec, timeout: float | None) -> None:
        self._ask(
            Send(
                session=spec.session,
                envelope=to_envelope(message),
                transaction=spec.transaction,
                producer=spec.producer,
                sequence=spec.sequence,
            )
        )

    def acknowledge(
        self, session: str, deliveries: Sequence[Delivery], transaction: str, confirm: bool, timeout: float | None
    ) -> None:
        self._ask(Acknowledge(session=session, deliveries=_tokens(deliveries), transaction=transaction))

    def begin(self, session: str, transaction: str) -> None:
        if self.lost_by is not None:
            raise TransportLost(*self.lost_by.args)

    def commit(self, session: str, transaction: str, timeout: float | None) -> None:
        self._ask(Commit(session=session, transaction=transaction))

    def rollback(self, session: str, transaction: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        self._ask(Rollback(session=session, transaction=transaction, delivered=_tokens(delivered)), session)

    def recover(self, session: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        self._ask(Recover(session=session, delivered=_tokens(delivered)), session)

    def fate(self, transaction: str, timeout: float | None) -> Fate:
        answer = self._ask(AskFate(transaction=transaction))
        return answer.fate if isinstance(answer, FateIs) else Fate.UNKNOWN

    def ping(self) -> None:
        if self.lost_by is not None:
            raise TransportLost(*self.lost_by.args)

    @property
    def last_heard(self) -> float:
        return self.heard

    def abort(self) -> None:
        with self._network.changed:
            self.break_down("aborted")

    def close(self) -> None:
        with self._network.changed:
            if self.lost_by is None:
                self._ask(Disconnect())
                self.break_down("closed")


def _tokens(deliveries: Sequence[Delivery]) -> tuple[int, ...]:
    return tuple(int(str(delivery.token)) for delivery in deliveries)
