"""The thread of a session that calls its listeners, one message at a time (MSG-31)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import FailoverSession

log = logging.getLogger(__name__)


class Dispatcher:
    """Outlives transports, so that no two listeners of a session overlap when one transport follows another."""

    def __init__(self, session: FailoverSession) -> None:
        self._session = session
        self._thread = threading.Thread(target=self._run, name=f"{session.id} listener", daemon=True)
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
        while True:
            try:
                if not self._session.dispatch_next():
                    return
            except Exception:  # a mistake of ours in one dispatch must not silence the session
                log.exception("dispatching in %s failed in an unexpected way", self._session.id)
