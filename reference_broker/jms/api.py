"""The JMS 2.0 / Jakarta Messaging 3.1 classic API as abstract classes with Python names.

Four adapters implement it; conformance tests know nothing else. Times are milliseconds where JMS says
milliseconds (time to live, delivery delay, receive time-out). Every object that has `close()` is a context
manager. All calls that need the network may raise JMSException; what each raises across a failure is the
catalogue's business.

Optional features that a provider does not have raise `JMSException` with code UNSUPPORTED, never an
AttributeError.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from .acknowledge import DEFAULT_PRIORITY, DEFAULT_TIME_TO_LIVE, AcknowledgeMode, DeliveryMode
from .destinations import Destination, Queue, Topic
from .exceptions import JMSException
from .messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from .xa import XAResource

ExceptionListener = Callable[[JMSException], None]
MessageListener = Callable[[Message], None]
CompletionListener = Callable[[Message, JMSException | None], None]
"""Called with the message and None on success, or the error (MSG-34)."""


class Closeable(ABC):
    """Something to be closed; closing twice is harmless (MSG-28)."""

    @abstractmethod
    def close(self) -> None:
        """Release everything it holds at the provider."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ConnectionFactory(ABC):
    """Makes connections; holds all configuration, so that applications hold none (REP-13)."""

    @abstractmethod
    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """A new connection in stopped mode (JM 6.1.3); raises when the initial attempts are used up."""

    @abstractmethod
    def create_xa_connection(self, user: str | None = None, password: str | None = None) -> XAConnection:
        """A connection whose sessions take part in distributed transactions."""


class Connection(Closeable):
    """A client's active link to its provider (JM 6.1)."""

    @property
    @abstractmethod
    def client_id(self) -> str | None:
        """The client identifier; settable once and before any other use (MSG-33)."""

    @client_id.setter
    @abstractmethod
    def client_id(self, value: str) -> None: ...

    @property
    @abstractmethod
    def exception_listener(self) -> ExceptionListener | None:
        """Who hears of connection-level problems (JM 6.1.7)."""

    @exception_listener.setter
    @abstractmethod
    def exception_listener(self, listener: ExceptionListener | None) -> None: ...

    @abstractmethod
    def create_session(
        self, transacted: bool = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> Session:
        """A single-threaded context for producing and consuming; `transacted` overrules the mode."""

    @abstractmethod
    def start(self) -> None:
        """Let messages be delivered."""

    @abstractmethod
    def stop(self) -> None:
        """Hold delivery; returns when no listener runs and no receive can still return one (MSG-27)."""


class Session(Closeable):
    """Order, acknowledgement and transactions are per session (JM 6.2)."""

    @property
    @abstractmethod
    def transacted(self) -> bool:
        """Whether work is grouped by commit() and rollback()."""

    @property
    @abstractmethod
    def acknowledge_mode(self) -> AcknowledgeMode:
        """SESSION_TRANSACTED if transacted."""

    @abstractmethod
    def create_producer(self, destination: Destination | None) -> MessageProducer:
        """A producer; None leaves the destination to each send."""

    @abstractmethod
    def create_consumer(
        self, destination: Destination, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """A consumer of a queue, or of a non-durable subscription to a topic."""

    @abstractmethod
    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """A consumer on an unshared durable subscription (JM 8.3.3)."""

    @abstractmethod
    def create_shared_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """A consumer on a shared non-durable subscription (JM 8.3.2)."""

    @abstractmethod
    def create_shared_durable_consumer(self, topic: Topic, name: str, selector: str | None = None) -> MessageConsumer:
        """A consumer on a shared durable subscription (JM 8.3.4)."""

    @abstractmethod
    def unsubscribe(self, name: str) -> None:
        """Remove a durable subscription (SUB-09)."""

    @abstractmethod
    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Look at a queue without consuming (JM 4.1.6)."""

    def create_queue(self, name: str) -> Queue:
        """The queue of that name."""
        return Queue(name)

    def create_topic(self, name: str) -> Topic:
        """The topic of that name."""
        return Topic(name)

    @abstractmethod
    def create_temporary_queue(self) -> Queue:
        """A queue that lives as long as the connection; it is a `TemporaryDestination` too (TMP-01)."""

    @abstractmethod
    def create_temporary_topic(self) -> Topic:
        """A topic that lives as long as the connection; it is a `TemporaryDestination` too."""

    def create_message(self) -> Message:
        """A message without a body."""
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """A message with a string for a body."""
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """A message with bytes for a body."""
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """A message with names and values for a body."""
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """A message with a sequence of values for a body."""
        return StreamMessage()

    def create_object_message(self, value: Any = None) -> ObjectMessage:
        """A message with a serialised object for a body."""
        return ObjectMessage(value)

    @abstractmethod
    def commit(self) -> None:
        """Make the transaction's sends visible and its receipts final, or raise (TX-01, TX-03, D-03)."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the transaction; never raises because of a failover (TX-07)."""

    @abstractmethod
    def recover(self) -> None:
        """Deliver everything unacknowledged again, flagged (ACK-CLIENT-14)."""


class XAConnection(Connection):
    """A connection that makes XA sessions."""

    @abstractmethod
    def create_xa_session(self) -> XASession:
        """A session driven through its XAResource."""


class XASession(Session):
    """A session whose transaction is controlled from outside (JM 6.2.8)."""

    @property
    @abstractmethod
    def xa_resource(self) -> XAResource:
        """What the transaction manager enlists."""


class MessageProducer(Closeable):
    """Sends to a destination, with defaults for the quality of service (JM 7)."""

    destination: Destination | None
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
    priority: int = DEFAULT_PRIORITY
    time_to_live: int = DEFAULT_TIME_TO_LIVE
    delivery_delay: int = 0
    disable_message_id: bool = False
    disable_message_timestamp: bool = False

    @abstractmethod
    def send(
        self,
        message: Message,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
    ) -> None:
        """Send and wait until the provider has it (SND-01); None takes the producer's default."""

    @abstractmethod
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
        """Send without waiting; exactly one completion call, in send order (MSG-34)."""


class MessageConsumer(Closeable):
    """Receives from a destination, by call or by listener (JM 8)."""

    @property
    @abstractmethod
    def message_selector(self) -> str | None:
        """The selector it was created with, None for none."""

    @property
    @abstractmethod
    def message_listener(self) -> MessageListener | None:
        """Called with each message, one at a time per session (MSG-31)."""

    @message_listener.setter
    @abstractmethod
    def message_listener(self, listener: MessageListener | None) -> None: ...

    @abstractmethod
    def receive(self, timeout: int | None = None) -> Message | None:
        """The next message; waits `timeout` milliseconds, for ever if None or 0 (MSG-32, VLV-14).

        None when the time is over or the consumer was closed meanwhile.
        """

    @abstractmethod
    def receive_no_wait(self) -> Message | None:
        """The next message if one is there now."""


class QueueBrowser(Closeable):
    """Looks at a queue's messages without consuming them."""

    @property
    @abstractmethod
    def queue(self) -> Queue:
        """What it looks at."""

    @abstractmethod
    def __iter__(self) -> Iterator[Message]:
        """A fresh enumeration; BrowseInterruptedException if a failover falls into it (BRW-02)."""
