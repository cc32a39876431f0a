"""What has come for a session, and how it goes to the application: by a call of receive, or to a listener's dispatcher.

A message is *taken* out of its consumer's inbox in one step with the look at the valve, *prepared* (credit, and what
the mode has to settle before it), and then counts as on its way until its receiver has it: stop() and close() wait for
that (MSG-27).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from reference_broker.jms import AcknowledgeMode, Code, JMSException, Message

from .consumer import FailoverConsumer
from .driver import Delivery, Feature, SessionSpec, TransportLost
from .engine import Engine, Link
from .inbox import Arrived
from .lane import Lane
from .operations import Operation
from .session_state import SessionState
from .settlement import Settlement

log = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A message that is on its way to the application: whose, over what, and the credit to grant for it."""

    consumer: FailoverConsumer
    link: Link
    arrived: Arrived
    credit: int


class Reception:
    """The receiving half of one session; guarded by the engine's lock."""

    def __init__(
        self,
        engine: Engine,
        spec: SessionSpec,
        state: SessionState,
        settlement: Settlement,
        lane: Lane,
        *,
        is_started: Callable[[], bool],
        acknowledge: Callable[[int], None],
    ) -> None:
        self.engine = engine
        self.spec = spec
        self.settlement = settlement
        self.consumers: dict[str, FailoverConsumer] = {}
        self.ending = False
        """The session's close() has begun: nothing is handed out any more."""
        self.on_the_way = 0
        """Messages on their way to the application, listeners that run included (MSG-27)."""
        self.changed = threading.Condition(engine.lock)
        self._state = state
        self._lane = lane
        self._is_started = is_started
        self._acknowledge = acknowledge
        self._arrivals = itertools.count()
        self._acknowledging = False

    # -- messages that come, with the lock held ----------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """A message of the current transport for one of the consumers."""
        consumer = self.consumers.get(delivery.consumer)
        if consumer is not None:
            consumer.inbox.put(Arrived(next(self._arrivals), self.engine.machine.epoch, delivery))
            self.changed.notify_all()

    def start_over(self) -> None:
        """Forget what is held ready."""
        for consumer in self.consumers.values():
            consumer.inbox.start_over()

    def transport_lost(self) -> None:
        """What was prefetched is dropped (ACK-AUTO-09, ACK-CLIENT-03)."""
        for consumer in self.consumers.values():
            if "prefetched-survives-failover" in self.engine.defects:
                consumer.inbox.reset_credit()
            else:
                consumer.inbox.start_over()
        self.changed.notify_all()

    def end(self) -> None:
        """Blocked receives return None, and no listener is called any more."""
        self.ending = True
        self.changed.notify_all()

    # -- receive -----------------------------------------------------------------------------------------

    def receive(self, consumer: FailoverConsumer, timeout: float | None) -> Message | None:
        """Wait for the next message of a consumer, and settle it as the mode demands."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._before_waiting(consumer)
            with self.engine.lock:
                taken = self.take(consumer)
                if taken is None:
                    if consumer.closed or self.ending:
                        return None
                    if (failure := self.engine.valve.failure()) is not None:
                        raise failure
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0:
                        self._nothing_came()
                        return None
                    if not self.lacks_credit(consumer):
                        self.changed.wait(left)
                    continue
            return self._hand_out(taken)

    def receive_now(self, consumer: FailoverConsumer) -> Message | None:
        """What is there; if nothing, one exchange with the broker makes sure that nothing is on its way (MSG-32)."""
        taken = self._take_now(consumer)
        if taken is None and self._is_started() and self.engine.valve.is_open:
            self.engine.call(self.spec.id, Operation.PULL, lambda link: link.driver.open_session(self.spec))
            taken = self._take_now(consumer)
        return None if taken is None else self._hand_out(taken)

    def _take_now(self, consumer: FailoverConsumer) -> Taken | None:
        self._before_waiting(consumer)
        with self.engine.lock:
            if (failure := self.engine.valve.failure()) is not None:
                raise failure
            return self.take(consumer)

    def _nothing_came(self) -> None:
        if "receive-raises-in-outage" in self.engine.defects and not self.engine.valve.is_open:
            raise JMSException("there was no connection while waiting for a message", Code.CONNECTION_LOST)

    def _before_waiting(self, consumer: FailoverConsumer) -> None:
        if not len(consumer.inbox):
            self.flush()
        self.pull(consumer)

    def _hand_out(self, taken: Taken) -> Message:
        with self.handing_out():
            self.prepare(taken)
            link, arrived = taken.link, taken.arrived
            if self.spec.mode is AcknowledgeMode.AUTO:
                if self.engine.options.async_ack:
                    self._acknowledge_later(link, arrived.delivery)
                elif arrived.epoch == link.epoch:
                    self.settlement.auto_by_call(link, arrived.delivery)
            return arrived.delivery.message

    def _acknowledge_later(self, link: Link, delivery: Delivery) -> None:
        """async_ack: the next message is handed out only after this one is settled (ACK-AUTO-02, ACK-AUTO-06)."""
        with self.engine.lock:
            self._acknowledging = True

        def acknowledge() -> None:
            self.settlement.auto(link, delivery)
            with self.engine.lock:
                self._acknowledging = False
                self.changed.notify_all()

        self._lane.submit(acknowledge)

    # -- for receive and for listeners -------------------------------------------------------------------

    def take(self, consumer: FailoverConsumer) -> Taken | None:
        """The next message if it may be handed out now; with the lock held, and `handing_out` has to follow."""
        link = self.engine.valve.transport
        if link is None or self.ending or not self._is_started() or not len(consumer.inbox) or self._acknowledging:
            return None
        arrived, credit = consumer.inbox.take()
        if arrived.epoch == link.epoch:
            self._state.handed_out(arrived.delivery)
        self.on_the_way += 1
        return Taken(consumer, link, arrived, credit)

    @contextmanager
    def handing_out(self) -> Iterator[None]:
        """Until the end of this a message that was taken is on its way."""
        try:
            yield
        finally:
            with self.engine.lock:
                self.on_the_way -= 1
                self.changed.notify_all()

    def prepare(self, taken: Taken) -> None:
        """What is due before the application sees the message."""
        consumer, link, arrived, credit = taken
        epoch, delivery = arrived.epoch, arrived.delivery
        client = self.spec.mode is AcknowledgeMode.CLIENT
        delivery.message.delivered_by((lambda: self._acknowledge(epoch)) if client else None)
        if credit:
            self._grant(link, consumer, credit)
        if self._state.transacted and Feature.CREDIT not in link.driver.features:
            # Without credit the wire counts what is unacknowledged: a long transaction would run dry.
            self.settlement.acknowledge_early(link, delivery)
        if self.spec.mode is AcknowledgeMode.DUPS_OK and len(self._state.held) > self.engine.options.dups_ok_batch:
            self.settlement.lazily(link, but=delivery, prefetched=self._prefetched())

    def pull(self, consumer: FailoverConsumer) -> None:
        """Somebody waits for this consumer's next message: grant credit for it where nothing is prefetched."""
        with self.engine.lock:
            link = self.engine.valve.transport
            credit = consumer.inbox.pull() if link is not None else 0
        if link is not None and credit:
            self._grant(link, consumer, credit)

    def lacks_credit(self, consumer: FailoverConsumer) -> bool:
        """Whether `pull` has something to grant: a transport may open between it and the wait; with the lock held."""
        return self.engine.valve.transport is not None and consumer.inbox.is_dry

    def flush(self) -> None:
        """Nothing is left to hand out: acknowledge what is held back lazily."""
        link = self.engine.valve.transport
        if link is not None and self.spec.mode is AcknowledgeMode.DUPS_OK:
            self.settlement.lazily(link, prefetched=self._prefetched())

    def _prefetched(self) -> tuple[Delivery, ...]:
        if "dups-ok-acknowledges-prefetched" not in self.engine.defects:
            return ()
        with self.engine.lock:
            return tuple(arrived.delivery for consumer in self.consumers.values() for arrived in consumer.inbox)

    def _grant(self, link: Link, consumer: FailoverConsumer, credit: int) -> None:
        try:
            self.engine.run(link, lambda over: over.driver.grant(consumer.spec.id, credit))
        except TransportLost:
            log.debug("credit of %s starts over with the next transport", consumer.spec.id)
