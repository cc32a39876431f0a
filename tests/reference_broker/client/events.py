"""What a connection tells, collected so that a test can wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from reference_broker.client.connection import FailoverConnection
from reference_broker.client.events import FailoverEvent, FailoverEventKind
from reference_broker.jms import Code, JMSException


class Told:
    """Registers itself with the connection as both kinds of listener."""

    def __init__(self, connection: FailoverConnection) -> None:
        self.errors: list[JMSException] = []
        self.events: list[FailoverEventKind] = []
        self._changed = threading.Condition()
        connection.exception_listener = self._error
        connection.add_failover_listener(self._event)

    def _error(self, error: JMSException) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()

    def _event(self, event: FailoverEvent) -> None:
        with self._changed:
            self.events.append(event.kind)
            self._changed.notify_all()

    def wait(self, condition: Callable[[Told], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), 10), f"{self.events}, {self.errors}"

    def restored(self, times: int = 1) -> None:
        """So many failovers are completed, and their losses, which another thread tells, have been heard of."""
        self.completed(times)
        self.wait(lambda told: sum(error.code is Code.CONNECTION_LOST for error in told.errors) >= times)

    def completed(self, times: int = 1) -> None:
        self.wait(lambda told: told.events.count(FailoverEventKind.FAILOVER_COMPLETED) >= times)
