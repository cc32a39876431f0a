"""A session: the same object over all transports, with what it makes, settles, restores and closes."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

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
from .driver import ConsumerSpec, Delivery, SessionSpec, TransportLost, WireDriver
from .engine import Engine, Link
from .lane import Lane
from .operations import Operation
from .producer import FailoverProducer
from .reception import Reception
from .session_state import SessionState
from .settlement import Settlement

log = logging.getLogger(__name__)


def unsupported(what: str) -> JMSException:
    """The error for a feature of JMS that this release has on no wire."""
    return JMSException(f"{what} are not offered in this release", Code.UNSUPPORTED)


class SessionHome(Protocol):
    """What a session needs of its connection; the calls with the lock held."""

    started: bool

    def forget(self, session: FailoverSession) -> None:
        """It is closed, or was never made."""

    def leave_over(self, errand: Callable[[WireDriver], None]) -> None:
        """To be done before the valve opens: what was made again has been closed meanwhile (RCN-18)."""


class FailoverSession(Session):
    """See the module's text; guarded by the engine's lock, like everything of its connection."""

    def __init__(self, connection: SessionHome, engine: Engine, spec: SessionSpec) -> None:
        self.engine = engine
        self.spec = spec
        self.id = spec.id
        self.made = 0
        """The epoch of the transport on which the broker has it, 0 for none."""
        self.established = False
        self.closed = False
        self.state = SessionState(spec.id, spec.mode, engine.defects)
        self.lane = Lane(f"{spec.id} lane")
        self._connection = connection
        self._shut = False
        self._settlement = Settlement(engine, self.state, self._start_over)
        self._reception = Reception(
            engine,
            spec,
            self.state,
            self._settlement,
            self.lane,
            is_started=lambda: connection.started,
            acknowledge=self._acknowledge,
        )
        self._dispatcher: Dispatcher | None = None
        self._callbacks = threading.RLock()
        self._numbers = itertools.count(1)

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
            self._reception.consumers[spec.id] = consumer
        try:
            self.engine.call(self.id, Operation.CREATE_CONSUMER, lambda link: self._make_consumer(link, consumer))
        except BaseException:
            self.abandon_consumer(consumer)
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
        if self.closed or (self._reception.ending and not self.in_callback()):
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
        self._settlement.commit()

    def rollback(self) -> None:
        """Undo what was sent and received since the last commit (TX-07)."""
        self._check_transacted("rollback")
        self.lane.drain()
        self._settlement.rollback()

    def recover(self) -> None:
        """Deliver everything unacknowledged again (ACK-CLIENT-14)."""
        self.check_open()
        if self.transacted:
            raise IllegalStateException("a transacted session has rollback() and no recover()")
        self.lane.drain()
        self._settlement.recover()

    def begin_work(self, link: Link) -> str:
        """The transaction for a send over this transport."""
        return self._settlement.begin(link)

    def _check_transacted(self, what: str) -> None:
        self.check_open()
        if not self.transacted:
            raise IllegalStateException(f"{what}() needs a transacted session")

    def _acknowledge(self, epoch: int) -> None:
        self.check_open()
        self._settlement.acknowledge(epoch)

    # -- messages ----------------------------------------------------------------------------------------

    def receive(self, consumer: FailoverConsumer, timeout: float | None) -> Message | None:
        """Wait for the next message of a consumer; `timeout` in seconds."""
        return self._reception.receive(consumer, timeout)

    def receive_now(self, consumer: FailoverConsumer) -> Message | None:
        """The next message of a consumer if the broker has one now."""
        return self._reception.receive_now(consumer)

    def listen(self, consumer: FailoverConsumer, listener: MessageListener | None) -> None:
        """Set a consumer's listener; bookkeeping only (VLV-15)."""
        with self.engine.lock:
            consumer.listener = listener
            if listener is not None and self._dispatcher is None:
                self._dispatcher = Dispatcher(self._reception, self.call_back)
            self.wake()

    def call_back(self, callback: Callable[[], None]) -> bool:
        """Call the application, one callback of the session at a time (MSG-31); whether it returned normally."""
        with self._callbacks:
            try:
                callback()
            except Exception:  # whatever an application's listener raises is settled by MSG-35
                log.exception("a listener of %s raised", self.id)
                return False
            return True

    def in_callback(self) -> bool:
        """Whether the caller is a listener or completion callback of this session (MSG-30)."""
        return self.lane.is_current or (self._dispatcher is not None and self._dispatcher.is_current)

    # -- what the engine reports, with the lock held -----------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """A message of the current transport for one of its consumers."""
        self._reception.delivered(delivery)

    def restarted(self) -> None:
        """The broker starts over: reported at the point between the last old copy and the first new one."""
        self._settlement.restarts += 1
        self._start_over()

    def transport_lost(self) -> None:
        """What was held is stale, what was prefetched is dropped."""
        self.state.lost()
        if "prefetched-makes-session-dirty" in self.engine.defects:
            self.state.stale |= any(len(consumer.inbox) for consumer in self._reception.consumers.values())
        self._reception.transport_lost()

    def wake(self) -> None:
        """Something changed that waiting receivers and the dispatcher look at."""
        self._reception.changed.notify_all()

    def wait_until_quiet(self) -> None:
        """Until no message is on its way to the application (MSG-27)."""
        self._reception.changed.wait_for(lambda: self._reception.on_the_way == 0 or self.closed)

    def _start_over(self) -> None:
        with self.engine.lock:
            self.state.restarted()
            self._reception.start_over()

    # -- restore -----------------------------------------------------------------------------------------

    def restore_consumers(self, link: Link) -> Iterator[tuple[FailoverConsumer, JMSException | None]]:
        """Make each consumer that the broker does not have yet; yields it with the error if that was refused."""
        with self.engine.lock:
            missing = [c for c in self._reception.consumers.values() if c.established and c.made != link.epoch]
        for consumer in missing:
            refusal: JMSException | None = None
            try:
                link.driver.open_consumer(consumer.spec)
            except JMSException as error:
                refusal = error
            with self.engine.lock:
                consumer.made = link.epoch
                if consumer.closed and refusal is None:
                    self._connection.leave_over(lambda driver, id=consumer.spec.id: driver.close_consumer(id, ()))  # type: ignore[misc]
            yield consumer, refusal

    def abandon_consumer(self, consumer: FailoverConsumer) -> None:
        """The broker refuses it: it is closed, and nothing waits for its listener (RCN-15)."""
        with self.engine.lock:
            consumer.closed = True
            self._reception.consumers.pop(consumer.spec.id, None)
            self.wake()

    def abandon(self) -> None:
        """The new broker refuses the session: it is closed, and nothing waits for its listener (RCN-15)."""
        with self.engine.lock:
            self._shut = self.closed = True
            self.ends_receiving()
            self._connection.forget(self)
        self.lane.end()

    # -- close -------------------------------------------------------------------------------------------

    def close_consumer(self, consumer: FailoverConsumer) -> None:
        """Close at the broker if there is one now; a transport that is down has closed it already (RCN-18, VLV-11)."""
        id = consumer.spec.id
        with self.engine.lock:
            if consumer.closed:
                return
            consumer.closed = True
            self._reception.consumers.pop(id, None)
            link = self.engine.valve.transport
            held = tuple(delivery for delivery in self.state.held if delivery.consumer == id)
            if link is None and consumer.made == self.engine.machine.epoch:
                self._connection.leave_over(lambda driver: driver.close_consumer(id, ()))
            self.wake()
            dispatcher = self._dispatcher
            if dispatcher is not None and not self.in_callback():
                self._reception.changed.wait_for(lambda: dispatcher.running is not consumer)
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
            self._reception.end()

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
            self.wait_until_quiet()
            self.closed = True
            link = self.engine.valve.transport
            self._connection.forget(self)
            if link is None and self.made == self.engine.machine.epoch:
                self._connection.leave_over(lambda driver: driver.close_session(self.id, ()))
        if link is not None:
            if self.spec.mode is AcknowledgeMode.DUPS_OK:
                self._settlement.lazily(link)
            held = tuple(self.state.held)
            self._close_at_broker(link, lambda over: over.driver.close_session(self.id, held))

    def _close_at_broker(self, link: Link, action: Callable[[Link], None]) -> None:
        try:
            self.engine.run(link, action)
        except TransportLost:
            log.debug("closing in %s was made pointless by the loss", self.id)
        except JMSException as error:
            log.warning("the broker did not confirm a close in %s: %s", self.id, error)
