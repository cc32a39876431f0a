"""Noticing that a peer has fallen silent (DET-01, DET-02, DET-06, DET-11).

Any byte from the peer is a sign of life. Every `period` a ping asks for one. When nothing was heard for `ttl` the
transport counts as lost: never before, and as soon after as the thread gets to run. A closed socket and a
failing call are noticed elsewhere and at once (DET-03, DET-04).

The schedule is a pure function of times; the thread around it does nothing but sleep, ping and report. Neither
waits for the application or for the peer, so a listener that blocks for minutes keeps its connection (DET-11).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .driver import TransportLost, WireDriver


class Step(NamedTuple):
    """What is due: a ping, the verdict of silence, and the moment to look again."""

    ping: bool
    silent: bool
    again_at: float


class Heartbeat:
    """The schedule over one transport; all times are seconds on one monotonic clock."""

    def __init__(self, period: float, ttl: float, now: float) -> None:
        self._period = period
        self._ttl = ttl
        self._next_ping = now + period
        self._planned = now
        self._not_before = now

    def step(self, now: float, last_heard: float) -> Step:
        """What is due at `now`.

        If this process itself was stopped for longer than a period, the peer's signs of life may lie unread: it gets
        one period more to be heard.
        """
        if now - self._planned > self._period:
            self._not_before = now + self._period
        silent = now - last_heard >= self._ttl and now >= self._not_before
        ping = now >= self._next_ping
        if ping:
            self._next_ping = now + self._period
        self._planned = min(self._next_ping, max(last_heard + self._ttl, self._not_before))
        return Step(ping, silent, self._planned)


class Detector:
    """A thread that keeps a heartbeat over the transport it watches, one after the other."""

    def __init__(
        self, period: float, ttl: float, report: Callable[[WireDriver, TransportLost], None], name: str
    ) -> None:
        self._period = period
        self._ttl = ttl
        self._report = report
        self._changed = threading.Condition()
        self._watched: WireDriver | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"{name} detector", daemon=True)
        self._thread.start()

    def watch(self, driver: WireDriver | None) -> None:
        """Watch this transport from now on, or none."""
        with self._changed:
            self._watched = driver
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        watched: WireDriver | None = None
        heartbeat = Heartbeat(self._period, self._ttl, time.monotonic())
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._watched is not None)
                if self._ended:
                    return
                if self._watched is not watched:
                    watched = self._watched
                    heartbeat = Heartbeat(self._period, self._ttl, time.monotonic())
            assert watched is not None
            now = time.monotonic()
            step = heartbeat.step(now, watched.last_heard)
            lost = self._act(watched, step)
            if lost is not None:
                with self._changed:
                    if self._watched is watched:
                        self._watched = None
                watched = None
                continue
            with self._changed:
                if not self._ended and self._watched is watched:
                    self._changed.wait(max(0.0, step.again_at - time.monotonic()))

    def _act(self, watched: WireDriver, step: Step) -> TransportLost | None:
        lost: TransportLost | None = None
        if step.silent:
            lost = TransportLost(f"nothing was heard from the broker for {self._ttl:g} s")
        elif step.ping:
            try:
                watched.ping()
            except TransportLost as error:
                lost = error
        if lost is not None:
            self._report(watched, lost)
        return lost
