"""One thread that calls the application's listeners, in order and one at a time (D-02 Q4, LSN-06).

It is neither the thread that detects a failure nor the one that fails over: a listener may wait for calls that
the valve holds (LSN-09), close the connection (LSN-08), or raise (LSN-12), and failover goes on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)


class Notifier:
    """A queue of calls and the thread that makes them; the thread exists from the first call on."""

    def __init__(self, name: str, *, overlapping: bool = False) -> None:
        self._name = name
        self._overlapping = overlapping
        self._changed = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._posted = 0
        self._begun = 0
        self._ended = False
        self._thread: threading.Thread | None = None

    def post(self, call: Callable[[], None]) -> None:
        """Queue a call; after close() it is dropped."""
        with self._changed:
            if self._ended:
                return
            self._calls.append(call)
            self._posted += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait_until_issued(self, within: float) -> None:
        """Wait until every call posted so far has been begun, but not longer than `within` seconds (LSN-10)."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            target = self._posted
            self._changed.wait_for(lambda: self._begun >= target or self._ended, within)

    def close(self, within: float) -> None:
        """Make the calls that are queued and end; waits `within` seconds for a listener that does not return."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(within)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._ended)
                if not self._calls:
                    return
                call = self._calls.popleft()
                self._begun += 1
                self._changed.notify_all()
            if self._overlapping:
                threading.Thread(target=call, name=self._name, daemon=True).start()
                continue
            try:
                call()
            except Exception:  # whatever an application's listener raises: it is not ours to end for it
                log.exception("a listener raised")
