"""Work of a session that goes on while its caller does: asynchronous sends and acknowledgements, in their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from reference_broker.jms import IllegalStateException


class Lane:
    """A queue of errands and one thread for them, which exists from the first errand on. Errands do not raise."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._errands: deque[Callable[[], None]] = deque()
        self._busy = False
        self._ended = False
        self._thread: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether this is the lane's own thread."""
        return threading.current_thread() is self._thread

    def submit(self, errand: Callable[[], None]) -> None:
        """Queue an errand."""
        with self._changed:
            if self._ended:
                raise IllegalStateException("the session is closed")
            self._errands.append(errand)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all errands submitted so far are done; no wait on the lane's own thread (MSG-34)."""
        if self._thread is None or self.is_current:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._errands and not self._busy)

    def end(self) -> None:
        """Accept nothing more, and end when what is queued is done."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """End, and wait for it."""
        self.end()
        if self._thread is not None and not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._errands or self._ended)
                if not self._errands:
                    return
                errand = self._errands.popleft()
                self._busy = True
            errand()
