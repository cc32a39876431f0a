"""A message producer: headers, sequence numbers, and sends that survive a failover or say that they may not have."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from reference_broker.jms import (
    Code,
    CompletionListener,
    DeliveryMode,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageProducer,
)

from .driver import Feature, SendSpec, TransportLost
from .engine import Engine, Link
from .lane import Lane
from .operations import Operation
from .session_state import SessionState

log = logging.getLogger(__name__)


class ProducerHome(Protocol):
    """What a producer needs of its session."""

    id: str
    engine: Engine
    lane: Lane
    state: SessionState

    @property
    def transacted(self) -> bool:
        """Whether sends are part of a transaction."""

    def check_open(self) -> None:
        """IllegalStateException after close()."""

    def check_destination(self, destination: Destination) -> None:
        """Refuse what no wire carries."""

    def begin_work(self, link: Link) -> str:
        """The transaction for a send over this transport."""

    def call_back(self, callback: Callable[[], None]) -> bool:
        """Call the application; whether that returned normally."""


class FailoverProducer(MessageProducer):
    """Exists at the client only: a broker needs to know a producer by the name that its messages carry."""

    def __init__(self, session: ProducerHome, id: str, destination: Destination | None) -> None:
        self.destination = destination
        self.id = id
        self._session = session
        self._messages = 0
        self._sequence = 0
        self._closed = False
        self._made_at = session.state.epoch

    # -- JMS ---------------------------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
    ) -> None:
        """Send and wait until the provider has it (SND-01)."""
        self._prepare(message, destination, delivery_mode, priority, time_to_live)
        self._session.lane.drain()
        self._transmit(message)

    def send_async(
        self,
        message: Message,
        completion: CompletionListener,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
    ) -> None:
        """Send without waiting; completions come in send order on a thread of their own (MSG-34)."""
        self._prepare(message, destination, delivery_mode, priority, time_to_live)
        frozen = message.copy()
        self._session.lane.submit(lambda: self._send_and_complete(frozen, message, completion))

    def close(self) -> None:
        """Wait for outstanding completions; later use raises IllegalStateException."""
        self._closed = True
        self._session.lane.drain()

    # -- headers -----------------------------------------------------------------------------------------

    def _prepare(
        self,
        message: Message,
        destination: Destination | None,
        delivery_mode: DeliveryMode | None,
        priority: int | None,
        time_to_live: int | None,
    ) -> None:
        """Set the headers that are the provider's, at the time of the call and not of the transmission (MSG-03)."""
        self._session.check_open()
        if self._closed:
            raise IllegalStateException("the producer is closed")
        target = self._target(destination)
        level = self.priority if priority is None else priority
        life = self.time_to_live if time_to_live is None else time_to_live
        if not 0 <= level <= 9:
            raise JMSException(f"a priority is 0 to 9, not {level}")
        if life < 0:
            raise JMSException(f"a time to live is not negative: {life}")
        if self.delivery_delay:
            raise JMSException("delivery delay is not offered in this release", Code.UNSUPPORTED)
        self._messages += 1
        now = time.time_ns() // 1_000_000
        message.destination = target
        message.delivery_mode = DeliveryMode(self.delivery_mode if delivery_mode is None else delivery_mode)
        message.priority = level
        message.timestamp = 0 if self.disable_message_timestamp else now
        message.expiration = now + life if life else 0
        message.delivery_time = now
        message.message_id = None if self.disable_message_id else f"ID:{self.id}.{self._messages}"

    def _target(self, destination: Destination | None) -> Destination:
        if destination is not None and self.destination is not None:
            reason = "the producer has a destination of its own: none can be given with a message"
            raise JMSException(reason, Code.UNSUPPORTED)
        target = destination or self.destination
        if target is None:
            raise InvalidDestinationException("neither the producer nor the call names a destination")
        self._session.check_destination(target)
        return target

    # -- transmission ------------------------------------------------------------------------------------

    def _transmit(self, message: Message) -> None:
        session, engine = self._session, self._session.engine
        if "parked-send-dropped" in engine.defects and not engine.valve.is_open:
            engine.valve.wait_until_settled()
            return
        moved = session.state.epoch != self._made_at
        restored_badly = moved and "restored-session-commits-by-itself" in engine.defects
        if session.transacted and not restored_badly:
            # Whatever becomes of the first try, its transaction is rollback-only: repeating it harms nobody (TX-14).
            engine.call(session.id, Operation.SEND, lambda link: self._in_transaction(link, message), protected=True)
        elif message.delivery_mode is DeliveryMode.NON_PERSISTENT:
            spec = SendSpec(session.id, confirm=False)
            engine.call(session.id, Operation.SEND_NON_PERSISTENT, lambda link: self._hand_over(link, message, spec))
        else:
            self._protected(message)

    def _in_transaction(self, link: Link, message: Message) -> None:
        transaction = self._session.begin_work(link)
        self._hand_over(link, message, SendSpec(self._session.id, transaction=transaction))

    def _hand_over(self, link: Link, message: Message, spec: SendSpec) -> None:
        link.driver.send(message, spec, self._session.engine.options.call_timeout)

    def _protected(self, message: Message) -> None:
        """A persistent send outside of transactions, numbered once it has its turn and repeated as that (SND-03)."""
        session, engine = self._session, self._session.engine
        protected = engine.options.producer_sequences and Feature.PRODUCER_SEQUENCE in engine.features
        resent_blindly = "interrupted-send-resent-unprotected" in engine.defects
        number = 0

        def transmit(link: Link) -> None:
            nonlocal number
            if protected and not resent_blindly and not number:
                self._sequence += 1
                number = self._sequence
            spec = SendSpec(session.id, producer=self.id if number else "", sequence=number)
            try:
                self._hand_over(link, message, spec)
            except TransportLost as cause:
                if "interrupted-send-succeeds" not in engine.defects:
                    raise
                engine.lost(link.epoch, cause)

        engine.call(session.id, Operation.SEND, transmit, protected=protected or resent_blindly)

    def _send_and_complete(self, frozen: Message, message: Message, completion: CompletionListener) -> None:
        error: JMSException | None = None
        try:
            self._transmit(frozen)
        except JMSException as refused:
            error = refused
        except Exception as unexpected:  # a wire's mistake still owes its one completion
            log.exception("an asynchronous send failed in an unexpected way")
            error = JMSException(f"the send failed: {unexpected}")
        self._session.engine.valve.wait_until_settled()  # no callback begins while the world is stopped (VLV-16)
        self._session.call_back(lambda: completion(message, error))
