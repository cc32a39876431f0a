"""The thread of a session that calls its listeners, one message at a time (MSG-31)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from reference_broker.jms import AcknowledgeMode

from .consumer import FailoverConsumer
from .reception import Reception, Taken

log = logging.getLogger(__name__)


class Dispatcher:
    """Outlives transports, so that no two listeners of a session overlap when one transport follows another.

    `call_back` calls the application, one callback of the session at a time, and says whether that returned normally.
    """

    def __init__(self, reception: Reception, call_back: Callable[[Callable[[], None]], bool]) -> None:
        self.running: FailoverConsumer | None = None
        """Whose listener runs now."""
        self._reception = reception
        self._engine = reception.engine
        self._call_back = call_back
        self._thread = threading.Thread(target=self._run, name=f"{reception.spec.id} listener", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether this is the thread on which listeners run."""
        return threading.current_thread() is self._thread

    def join(self) -> None:
        """Wait until the listener that runs has returned and the thread has ended."""
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while not self._reception.ending:
            try:
                if (taken := self._next()) is not None:
                    self._deliver(taken)
            except Exception:  # a mistake of ours in one dispatch must not silence the session
                log.exception("dispatching in %s failed in an unexpected way", self._reception.spec.id)

    def _listening(self) -> list[FailoverConsumer]:
        return [consumer for consumer in self._reception.consumers.values() if consumer.listener is not None]

    def _next(self) -> Taken | None:
        """The oldest message for any listener; None after a wait for one, or if something is due before waiting."""
        reception = self._reception
        with self._engine.lock:
            listening = self._listening()
        for consumer in listening:
            reception.pull(consumer)
        if not any(len(consumer.inbox) for consumer in listening):
            reception.flush()
        with self._engine.lock:
            listening = self._listening()  # a listener that was set meanwhile has woken nobody
            there = [(c.inbox.first.order, c) for c in listening if c.inbox.first is not None]
            taken = reception.take(min(there)[1]) if there else None
            if taken is not None:
                self.running = taken.consumer
            elif not reception.ending and not any(map(reception.lacks_credit, listening)):
                reception.changed.wait()
            return taken

    def _deliver(self, taken: Taken) -> None:
        reception = self._reception
        with reception.handing_out():
            try:
                reception.prepare(taken)
                self._call_listener(taken)
            finally:
                with self._engine.lock:
                    self.running = None
                    reception.changed.notify_all()

    def _call_listener(self, taken: Taken) -> None:
        settlement, mode = self._reception.settlement, self._reception.spec.mode
        link, delivery = taken.link, taken.arrived.delivery
        automatic = mode is AcknowledgeMode.AUTO and taken.arrived.epoch == link.epoch
        early = automatic and "acknowledges-before-listener-returns" in self._engine.defects
        if early:
            settlement.auto(link, delivery)
        listener = taken.consumer.listener
        succeeded = listener is not None and self._call_back(lambda: listener(delivery.message))
        if not succeeded:
            if mode in {AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK}:
                settlement.give_back(link)
        elif automatic and not early:
            settlement.auto(link, delivery)
