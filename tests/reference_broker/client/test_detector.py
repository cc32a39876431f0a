from __future__ import annotations

import threading
import time
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.client.detector import Detector, Heartbeat
from reference_broker.client.driver import TransportLost, WireDriver


def test_pings_come_every_period_and_silence_is_not_declared_before_its_time() -> None:
    heartbeat = Heartbeat(period=2.0, ttl=5.0, now=0.0)
    assert heartbeat.step(0.0, 0.0) == (False, False, 2.0)
    assert heartbeat.step(2.0, 0.0) == (True, False, 4.0)
    assert heartbeat.step(4.0, 0.0) == (True, False, 5.0)
    assert not heartbeat.step(4.999, 0.0).silent
    assert heartbeat.step(5.0, 0.0).silent


def test_any_byte_counts_as_a_sign_of_life() -> None:
    heartbeat = Heartbeat(period=2.0, ttl=5.0, now=0.0)
    for now in range(1, 100):
        assert not heartbeat.step(float(now), now - 4.5).silent


def test_a_process_that_was_stopped_itself_gives_the_peer_one_period_more() -> None:
    heartbeat = Heartbeat(period=2.0, ttl=5.0, now=0.0)
    heartbeat.step(0.0, 0.0)
    assert not heartbeat.step(60.0, 0.0).silent
    assert heartbeat.step(62.0, 0.0).silent


@given(st.floats(0.1, 5), st.floats(0.1, 10), st.lists(st.floats(0.0, 0.9), max_size=30))
def test_silence_is_seen_as_soon_as_the_schedule_says(period: float, ttl: float, lateness: list[float]) -> None:
    heartbeat = Heartbeat(period, ttl, 0.0)
    now = 0.0
    for late in lateness:
        step = heartbeat.step(now, 0.0)
        assert step.silent == (now >= ttl)
        if step.silent:
            return
        assert step.again_at > now
        assert step.again_at <= max(ttl, now + period)
        now = step.again_at + late * period


class Peer:
    """As much of a driver as a detector looks at."""

    def __init__(self) -> None:
        self.last_heard = time.monotonic()
        self.pings = 0
        self.broken = False

    def ping(self) -> None:
        self.pings += 1
        if self.broken:
            raise TransportLost("broken")


def test_a_silent_peer_is_reported_once_and_the_next_one_is_watched() -> None:
    reports: list[tuple[Any, str]] = []
    reported = threading.Semaphore(0)

    def report(driver: WireDriver, cause: TransportLost) -> None:
        reports.append((driver, str(cause)))
        reported.release()

    detector = Detector(0.01, 0.05, report, "test")
    first, second = Peer(), Peer()
    detector.watch(cast(WireDriver, first))
    assert reported.acquire(timeout=10)
    assert time.monotonic() - first.last_heard >= 0.05
    assert first.pings
    second.broken = True
    detector.watch(cast(WireDriver, second))
    assert reported.acquire(timeout=10)
    detector.close()
    assert [driver for driver, _ in reports] == [first, second]
    assert "test detector" not in {thread.name for thread in threading.enumerate()}
