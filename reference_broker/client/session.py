"""A session: the same object over all transports, its consumers' messages, and the order in which they go out."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageConsumer,
    MessageListener,
    Queue,
    QueueBrowser,
    Session,
    Topic,
)

from .consumer import FailoverConsumer
from .dispatch import Dispatcher
from .driver import ConsumerSpec, Delivery, Feature, SessionSpec, TransportLost
from .engine import Engine, Link
from .inbox import Arrived
from .lane import Lane
from .operations import Operation
from .producer import FailoverProducer
from .session_state import SessionState
from .settlement import Settlement

if TYPE_CHECKING:
    from .connection import FailoverConnection

log = logging.getLogger(__name__)


def unsupported(what: str) -> JMSException:
    """The error for a feature of JMS that this release has on no wire."""
    return JMSException(f"{what} are not offered in this release", Code.UNSUPPORTED)


class FailoverSession(Session):
    """See the module's text; guarded by the engine's lock, like everything of its connection."""

    def __init__(self, connection: FailoverConnection, engine: Engine, spec: SessionSpec) -> None:
        self.connection = connection
        self.engine = engine
        self.spec = spec
        self.id = spec.id
        self.call_timeout = engine.options.call_timeout
        self.consumers: dict[str, FailoverConsumer] = {}
        self.made = 0
        """The epoch of the transport on which the broker has it, 0 for none."""
        self.established = False
        self.closed = False
        self.ending = False
        """close() has begun: nothing is handed out any more."""
        self._shut = False
        self.handing_out = 0
        """Messages on their way to the application, listeners that run included (MSG-27)."""
        self.changed = threading.Condition(engine.lock)
        self.state = SessionState(spec.id, spec.mode, engine.defects)
        self.settlement = Settlement(engine, self.state, self.start_over)
        self.lane = Lane(f"{spec.id} lane")
        self._dispatcher: Dispatcher | None = None
        self._running: FailoverConsumer | None = None
        self._callbacks = threading.RLock()
        self._numbers = itertools.count(1)
        self._arrivals = itertools.count()
        self._acknowledging = False

    # -- JMS: objects ------------------------------------------------------------------------------------

    @property
    def transacted(self) -> bool:
        """Whether work is grouped by commit() and rollback()."""
        return self.state.transacted

    @property
    def acknowledge_mode(self) -> AcknowledgeMode:
        """SESSION_TRANSACTED if transacted."""
        return self.spec.mode

    def create_producer(self, destination: Destination | None) -> FailoverProducer:
        """A producer; known to the client only."""
        self.check_open()
        if destination is not None:
            self.check_destination(destination)
        return FailoverProducer(self, f"{self.id}.p{next(self._numbers)}", destination)

    def create_consumer(
        self, destination: Destination, selector: str | None = None, no_local: bool = False
    ) -> FailoverConsumer:
        """A consumer of a queue."""
        self.check_open()
        self.check_destination(destination)
        spec = ConsumerSpec(
            f"{self.id}.c{next(self._numbers)}",
            self.id,
            destination,
            selector or None,
            no_local,
            self.engine.options.prefetch,
            self.spec.mode,
        )
        consumer = FailoverConsumer(self, spec)
        with self.engine.lock:
            self.consumers[spec.id] = consumer
        try:
            self.engine.call(self.id, Operation.CREATE_CONSUMER, lambda link: self._make_consumer(link, consumer))
        except BaseException:
            with self.engine.lock:
                consumer.closed = True
                self.consumers.pop(spec.id, None)
            raise
        return consumer

    def _make_consumer(self, link: Link, consumer: FailoverConsumer) -> None:
        link.driver.open_consumer(consumer.spec)
        with self.engine.lock:
            if not self.engine.is_current(link):
                raise TransportLost("the transport was replaced")
            consumer.made, consumer.established = link.epoch, True

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Not in this release."""
        raise unsupported("durable subscriptions")

    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """Not in this release."""
        raise unsupported("shared subscriptions")

    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """Not in this release."""
        raise unsupported("shared durable subscriptions")

    def unsubscribe(self, name: str) -> None:
        """Not in this release."""
        raise unsupported("durable subscriptions")

    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Not in this release."""
        raise unsupported("queue browsers")

    def create_temporary_queue(self) -> Queue:
        """Not in this release."""
        raise unsupported("temporary queues")

    def create_temporary_topic(self) -> Topic:
        """Not in this release."""
        raise unsupported("temporary topics")

    def check_open(self) -> None:
        """IllegalStateException after close()."""
        if self.closed or (self.ending and not self._in_own_thread()):
            raise IllegalStateException("the session is closed")

    @staticmethod
    def check_destination(destination: Destination) -> None:
        """Refuse what no wire carries in this release."""
        if isinstance(destination, Topic):
            raise unsupported("topics")
        if not isinstance(destination, Destination) or not destination.name:
            raise InvalidDestinationException(f"{destination!r} is no destination")

    # -- JMS: settling -----------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit what was sent and received since the last one, or raise (TX-01, D-03)."""
        self._check_transacted("commit")
        self.lane.drain()
        self.settlement.commit()

    def rollback(self) -> None:
        """Undo what was sent and received since the last commit (TX-07)."""
        self._check_transacted("rollback")
        self.lane.drain()
        self.settlement.rollback()

    def recover(self) -> None:
        """Deliver everything unacknowledged again (ACK-CLIENT-14)."""
        self.check_open()
        if self.transacted:
            raise IllegalStateException("a transacted session has rollback() and no recover()")
        self.lane.drain()
        self.settlement.recover()

    def begin_work(self, link: Link) -> str:
        """The transaction for a send over this transport."""
        return self.settlement.begin(link)

    def _check_transacted(self, what: str) -> None:
        self.check_open()
        if not self.transacted:
            raise IllegalStateException(f"{what}() needs a transacted session")

    def _acknowledge(self, epoch: int) -> None:
        self.check_open()
        self.settlement.acknowledge(epoch)

    # -- messages that come, with the lock held ----------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """A message of the current transport for one of its consumers."""
        consumer = self.consumers.get(delivery.consumer)
        if consumer is not None:
            consumer.inbox.put(Arrived(next(self._arrivals), self.engine.machine.epoch, delivery))
            self.changed.notify_all()

    def restarted(self) -> None:
        """The broker starts over: reported at the point between the last old copy and the first new one."""
        self.settlement.restarts += 1
        self.start_over()

    def start_over(self) -> None:
        """Forget all deliveries, taken and held ready."""
        with self.engine.lock:
            self.state.restarted()
            for consumer in self.consumers.values():
                consumer.inbox.start_over()

    def transport_lost(self) -> None:
        """What was held is stale, what was prefetched is dropped (ACK-AUTO-09, ACK-CLIENT-03)."""
        self.state.lost()
        if "prefetched-makes-session-dirty" in self.engine.defects:
            self.state.stale |= any(len(consumer.inbox) for consumer in self.consumers.values())
        for consumer in self.consumers.values():
            if "prefetched-survives-failover" in self.engine.defects:
                consumer.inbox.reset_credit()
            else:
                consumer.inbox.start_over()
        self.changed.notify_all()

    def wake(self) -> None:
        """Something changed that waiting receivers and the dispatcher look at."""
        self.changed.notify_all()

    # -- messages that go to the application -------------------------------------------------------------

    def receive(self, consumer: FailoverConsumer, timeout: float | None) -> Message | None:
        """Wait for the next message of a consumer, and settle it as the mode demands."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._before_waiting(consumer)
            with self.engine.lock:
                taken = self._take(consumer)
                if taken is None:
                    if consumer.closed or self.ending:
                        return None
                    if (failure := self.engine.valve.failure()) is not None:
                        raise failure
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0:
                        self._nothing_came()
                        return None
                    self.changed.wait(left)
                    continue
            return self._hand_out(consumer, *taken)

    def receive_now(self, consumer: FailoverConsumer) -> Message | None:
        """What is there; if nothing, one exchange with the broker makes sure that nothing is on its way (MSG-32)."""
        taken = self._take_now(consumer)
        if taken is None and self.connection.started and self.engine.valve.is_open:
            self.engine.call(self.id, Operation.PULL, lambda link: link.driver.open_session(self.spec))
            taken = self._take_now(consumer)
        return None if taken is None else self._hand_out(consumer, *taken)

    def _take_now(self, consumer: FailoverConsumer) -> tuple[Link, Arrived, int] | None:
        self._before_waiting(consumer)
        with self.engine.lock:
            if (failure := self.engine.valve.failure()) is not None:
                raise failure
            return self._take(consumer)

    def _nothing_came(self) -> None:
        if "receive-raises-in-outage" in self.engine.defects and not self.engine.valve.is_open:
            raise JMSException("there was no connection while waiting for a message", Code.CONNECTION_LOST)

    def _before_waiting(self, consumer: FailoverConsumer) -> None:
        """What is due before a thread waits: lazy acknowledgements, and a pull if nothing is prefetched."""
        with self.engine.lock:
            link = self.engine.valve.transport
            credit = consumer.inbox.pull() if link is not None else 0
            idle = not len(consumer.inbox) and self.spec.mode is AcknowledgeMode.DUPS_OK
        if link is None:
            return
        if idle:
            self.settlement.lazily(link, self._prefetched())
        if credit:
            self._grant(link, consumer, credit)

    def _take(self, consumer: FailoverConsumer) -> tuple[Link, Arrived, int] | None:
        """The next message if it may be handed out now; with the lock held."""
        link = self.engine.valve.transport
        if link is None or self.ending or not self.connection.started or not len(consumer.inbox) or self._acknowledging:
            return None
        arrived, credit = consumer.inbox.take()
        if arrived.epoch == link.epoch:
            self.state.handed_out(arrived.delivery)
        self.handing_out += 1
        return link, arrived, credit

    def _hand_out(self, consumer: FailoverConsumer, link: Link, arrived: Arrived, credit: int) -> Message:
        with self._handed_out():
            delivery = arrived.delivery
            self._prepare(consumer, link, arrived, credit)
            if self.spec.mode is AcknowledgeMode.AUTO:
                if self.engine.options.async_ack:
                    self._acknowledge_later(link, delivery)
                elif arrived.epoch == link.epoch:
                    self.settlement.auto_by_call(link, delivery)
            return delivery.message

    def _prepare(self, consumer: FailoverConsumer, link: Link, arrived: Arrived, credit: int) -> None:
        epoch = arrived.epoch
        client = self.spec.mode is AcknowledgeMode.CLIENT
        arrived.delivery.message.delivered_by((lambda: self._acknowledge(epoch)) if client else None)
        if credit:
            self._grant(link, consumer, credit)
        if self.transacted and Feature.CREDIT not in link.driver.features:
            # Without credit the wire counts what is unacknowledged: a long transaction would run dry.
            self._acknowledge_early(link, arrived.delivery)
        if self.spec.mode is AcknowledgeMode.DUPS_OK and len(self.state.held) > self.engine.options.dups_ok_batch:
            self._flush_all_but(link, arrived.delivery)

    def _acknowledge_early(self, link: Link, delivery: Delivery) -> None:
        def acknowledge(over: Link) -> None:
            self.settlement.acknowledge_in_transaction(over, self.settlement.begin(over), (delivery,))

        try:
            self.engine.run(link, acknowledge)
        except TransportLost:
            log.debug("the receipt shares the fate of its transaction, which the loss has doomed")

    def _flush_all_but(self, link: Link, last: Delivery) -> None:
        """The batch is full; the message that is just being handed out is not part of it (ACK-DUPS-03)."""
        with self.engine.lock:
            if not self.engine.is_current(link):
                return
            self.state.settled((last,))
        self.settlement.lazily(link, self._prefetched())
        with self.engine.lock:
            if self.engine.is_current(link):
                self.state.handed_out(last)

    def _prefetched(self) -> tuple[Delivery, ...]:
        if "dups-ok-acknowledges-prefetched" not in self.engine.defects:
            return ()
        with self.engine.lock:
            return tuple(arrived.delivery for consumer in self.consumers.values() for arrived in consumer.inbox)

    def _acknowledge_later(self, link: Link, delivery: Delivery) -> None:
        """async_ack: the next message is handed out only after this one is settled (ACK-AUTO-02, ACK-AUTO-06)."""
        with self.engine.lock:
            self._acknowledging = True

        def acknowledge() -> None:
            self._settle_after_listener(link, delivery)
            with self.engine.lock:
                self._acknowledging = False
                self.changed.notify_all()

        self.lane.submit(acknowledge)

    def _grant(self, link: Link, consumer: FailoverConsumer, credit: int) -> None:
        try:
            self.engine.run(link, lambda over: over.driver.grant(consumer.spec.id, credit))
        except TransportLost:
            log.debug("credit of %s starts over with the next transport", consumer.spec.id)

    @contextmanager
    def _handed_out(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self.engine.lock:
                self.handing_out -= 1
                self.changed.notify_all()

    # -- listeners ---------------------------------------------------------------------------------------

    def listen(self, consumer: FailoverConsumer, listener: MessageListener | None) -> None:
        """Set a consumer's listener; bookkeeping only (VLV-15)."""
        with self.engine.lock:
            consumer.listener = listener
            if listener is not None and self._dispatcher is None:
                self._dispatcher = Dispatcher(self)
            self.changed.notify_all()

    def dispatch_next(self) -> bool:
        """Wait for a message for any listener and deliver it; False when the session ends."""
        while True:
            with self.engine.lock:
                listening = [consumer for consumer in self.consumers.values() if consumer.listener is not None]
            for consumer in listening:
                self._before_waiting(consumer)
            with self.engine.lock:
                if self.ending:
                    return False
                ready = [consumer for consumer in listening if consumer.inbox.first and not consumer.closed]
                ready.sort(key=lambda consumer: consumer.inbox.first.order if consumer.inbox.first else 0)
                taken = self._take(ready[0]) if ready else None
                if taken is None:
                    self.changed.wait()
                    continue
                self._running = ready[0]
            self._deliver(ready[0], *taken)
            return True

    def _deliver(self, consumer: FailoverConsumer, link: Link, arrived: Arrived, credit: int) -> None:
        with self._handed_out():
            try:
                self._prepare(consumer, link, arrived, credit)
                automatic = self.spec.mode is AcknowledgeMode.AUTO and arrived.epoch == link.epoch
                early = automatic and "acknowledges-before-listener-returns" in self.engine.defects
                if early:
                    self._settle_after_listener(link, arrived.delivery)
                listener = consumer.listener
                succeeded = listener is not None and self.call_back(lambda: listener(arrived.delivery.message))
                if not succeeded:
                    if self.spec.mode in {AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK}:
                        self.settlement.give_back(link)
                elif automatic and not early:
                    self._settle_after_listener(link, arrived.delivery)
            finally:
                with self.engine.lock:
                    self._running = None
                    self.changed.notify_all()

    def _settle_after_listener(self, link: Link, delivery: Delivery) -> None:
        """Where no call can carry the failure of an automatic acknowledgement, the listener does (ACK-AUTO-05)."""
        try:
            self.settlement.auto(link, delivery)
        except JMSException as error:
            self.engine.notify(error)

    def call_back(self, callback: Callable[[], None]) -> bool:
        """Call the application, one callback of the session at a time (MSG-31); whether it returned normally."""
        with self._callbacks:
            try:
                callback()
            except Exception:  # whatever an application's listener raises is settled by MSG-35
                log.exception("a listener of %s raised", self.id)
                return False
            return True

    def _in_own_thread(self) -> bool:
        return self.lane.is_current or (self._dispatcher is not None and self._dispatcher.is_current)

    def in_callback(self) -> bool:
        """Whether the caller is a listener or completion callback of this session (MSG-30)."""
        return self._in_own_thread()

    # -- restore -----------------------------------------------------------------------------------------

    def restore_consumers(self, link: Link) -> Iterator[tuple[FailoverConsumer, JMSException | None]]:
        """Make each consumer that the broker does not have yet; yields it with the error if that was refused."""
        with self.engine.lock:
            missing = [c for c in self.consumers.values() if c.established and c.made != link.epoch]
        for consumer in missing:
            refusal: JMSException | None = None
            try:
                link.driver.open_consumer(consumer.spec)
            except JMSException as error:
                refusal = error
            with self.engine.lock:
                consumer.made = link.epoch
                if consumer.closed and refusal is None:
                    self.connection.leave_over(lambda driver, id=consumer.spec.id: driver.close_consumer(id, ()))  # type: ignore[misc]
            yield consumer, refusal

    def abandon_consumer(self, consumer: FailoverConsumer) -> None:
        """The new broker refuses it: it is closed, and nothing waits for its listener (RCN-15)."""
        with self.engine.lock:
            consumer.closed = True
            self.consumers.pop(consumer.spec.id, None)
            self.changed.notify_all()

    def abandon(self) -> None:
        """The new broker refuses the session: it is closed, and nothing waits for its listener (RCN-15)."""
        with self.engine.lock:
            self._shut = self.closed = True
            self.ends_receiving()
            self.connection.forget(self)
        self.lane.end()

    # -- close -------------------------------------------------------------------------------------------

    def close_consumer(self, consumer: FailoverConsumer) -> None:
        """Close at the broker if there is one now; a transport that is down has closed it already (RCN-18, VLV-11)."""
        id = consumer.spec.id
        with self.engine.lock:
            if consumer.closed:
                return
            consumer.closed = True
            self.consumers.pop(id, None)
            link = self.engine.valve.transport
            held = tuple(delivery for delivery in self.state.held if delivery.consumer == id)
            if link is None and consumer.made == self.engine.machine.epoch:
                self.connection.leave_over(lambda driver: driver.close_consumer(id, ()))
            self.changed.notify_all()
            if not self._in_own_thread():
                self.changed.wait_for(lambda: self._running is not consumer)
        if link is not None:
            self._close_at_broker(link, lambda over: over.driver.close_consumer(id, held))

    def close(self) -> None:
        """Roll back or give back what is open, wait for its listener, and end (MSG-28, MSG-29)."""
        if self.in_callback():
            raise IllegalStateException("a session cannot be closed from its own listener or completion callback")
        self.shut()

    def ends_receiving(self) -> None:
        """Blocked receives return None, and no listener is called any more."""
        with self.engine.lock:
            self.ending = True
            self.changed.notify_all()

    def shut(self) -> None:
        """Close, whoever asks; the second to ask does not wait for the first."""
        with self.engine.lock:
            if self._shut:
                return
            self._shut = True
            self.ends_receiving()
        if self._dispatcher is not None:
            self._dispatcher.join()
        self.lane.close()
        with self.engine.lock:
            self.changed.wait_for(lambda: self.handing_out == 0)
            self.closed = True
            link = self.engine.valve.transport
            self.connection.forget(self)
            if link is None and self.made == self.engine.machine.epoch:
                self.connection.leave_over(lambda driver: driver.close_session(self.id, ()))
        if link is not None:
            if self.spec.mode is AcknowledgeMode.DUPS_OK:
                self.settlement.lazily(link)
            held = tuple(self.state.held)
            self._close_at_broker(link, lambda over: over.driver.close_session(self.id, held))

    def _close_at_broker(self, link: Link, action: Callable[[Link], None]) -> None:
        try:
            self.engine.run(link, action)
        except TransportLost:
            log.debug("closing in %s was made pointless by the loss", self.id)
        except JMSException as error:
            log.warning("the broker did not confirm a close in %s: %s", self.id, error)
