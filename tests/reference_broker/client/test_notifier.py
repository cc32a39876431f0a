from __future__ import annotations

import logging
import threading

import pytest

from reference_broker.client.lane import Lane
from reference_broker.client.notifier import Notifier
from reference_broker.jms import IllegalStateException


def test_calls_are_made_in_order_one_at_a_time() -> None:
    notifier, made = Notifier("n"), []
    for number in range(100):
        notifier.post(lambda number=number: made.append((number, threading.current_thread().name)))
    notifier.close(10)
    assert made == [(number, "n") for number in range(100)]


def test_a_listener_that_raises_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    notifier, made = Notifier("n"), []
    with caplog.at_level(logging.ERROR):
        notifier.post(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        notifier.post(lambda: made.append(1))
        notifier.close(10)
    assert made == [1]
    assert "ZeroDivisionError" in caplog.text


def test_closing_from_a_listener_does_not_wait_for_itself() -> None:
    notifier, done = Notifier("n"), threading.Event()

    def listener() -> None:
        notifier.close(10)
        done.set()

    notifier.post(listener)
    assert done.wait(10)


def test_an_issued_call_has_begun() -> None:
    notifier, begun, go = Notifier("n"), threading.Event(), threading.Event()

    def listener() -> None:
        begun.set()
        go.wait(10)

    notifier.post(listener)
    notifier.wait_until_issued(10)
    assert begun.wait(10)
    notifier.post(lambda: None)
    notifier.wait_until_issued(0.01)  # bounded, although the listener has not returned
    go.set()
    notifier.close(10)


def test_no_thread_without_a_call() -> None:
    Notifier("quiet").close(10)
    Lane("quiet").close()
    assert "quiet" not in {thread.name for thread in threading.enumerate()}


def test_a_lane_drains_and_refuses_after_its_end() -> None:
    lane, done = Lane("l"), []
    for number in range(50):
        lane.submit(lambda number=number: done.append(number))
    lane.drain()
    assert done == list(range(50))
    lane.close()
    with pytest.raises(IllegalStateException):
        lane.submit(lambda: None)
