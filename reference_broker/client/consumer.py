"""A message consumer: receive by call, or hand a listener to the session's dispatcher."""

from __future__ import annotations

from typing import Protocol

from reference_broker.jms import IllegalStateException, Message, MessageConsumer, MessageListener

from .driver import ConsumerSpec
from .inbox import Inbox


class ConsumerHome(Protocol):
    """What a consumer needs of its session."""

    def check_open(self) -> None:
        """IllegalStateException after close()."""

    def listen(self, consumer: FailoverConsumer, listener: MessageListener | None) -> None:
        """Set its listener."""

    def receive(self, consumer: FailoverConsumer, timeout: float | None) -> Message | None:
        """Its next message, waiting so many seconds."""

    def receive_now(self, consumer: FailoverConsumer) -> Message | None:
        """Its next message if the broker has one."""

    def close_consumer(self, consumer: FailoverConsumer) -> None:
        """End it."""


class FailoverConsumer(MessageConsumer):
    """The same object over all transports (RCN-16); what it holds ready belongs to the present one."""

    def __init__(self, session: ConsumerHome, spec: ConsumerSpec) -> None:
        self.spec = spec
        self.inbox = Inbox(spec.prefetch)
        self.made = 0
        """The epoch of the transport on which the broker has it, 0 for none."""
        self.established = False
        """Whether its creation has returned; until then the creating call makes it, not the restore."""
        self.closed = False
        self.listener: MessageListener | None = None
        self._session = session

    @property
    def message_selector(self) -> str | None:
        """As given at its creation; an empty one is none."""
        return self.spec.selector

    @property
    def message_listener(self) -> MessageListener | None:
        """Who is called with each message."""
        return self.listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._check_open()
        self._session.listen(self, listener)

    def receive(self, timeout: int | None = None) -> Message | None:
        """The next message, waiting `timeout` milliseconds, outages included (VLV-14); for ever if None or 0."""
        self._check_receivable()
        return self._session.receive(self, timeout / 1000 if timeout else None)

    def receive_no_wait(self) -> Message | None:
        """The next message if the broker has one now."""
        self._check_receivable()
        return self._session.receive_now(self)

    def close(self) -> None:
        """End it: what was prefetched goes back, what was received stays with the session (MSG-29)."""
        self._session.close_consumer(self)

    def _check_open(self) -> None:
        self._session.check_open()
        if self.closed:
            raise IllegalStateException("the consumer is closed")

    def _check_receivable(self) -> None:
        self._check_open()
        if self.listener is not None:
            raise IllegalStateException("the consumer has a listener: messages go to it")
