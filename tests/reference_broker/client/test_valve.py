from __future__ import annotations

import threading
import time

import pytest

from reference_broker.client.valve import Valve
from reference_broker.jms import Code, ConnectionFailedException, JMSException
from tests.reference_broker.client.background import Background


def closed() -> Valve[str]:
    return Valve(threading.RLock())


def call(valve: Valve[str], key: str = "s", timeout: float | None = None) -> str:
    with valve.passage(key, timeout) as passage:
        return passage.transport()


def parked(valve: Valve[str], count: int) -> None:
    limit = time.monotonic() + 10
    while valve.waiting != count:
        assert time.monotonic() < limit, f"{valve.waiting} wait, not {count}"
        time.sleep(0.001)


def failed(in_flight: bool) -> JMSException:
    return ConnectionFailedException("over", Code.CALL_UNBLOCKED if in_flight else None)


def test_an_open_valve_lets_calls_pass() -> None:
    valve = closed()
    valve.open("t")
    assert call(valve) == "t"


def test_closing_does_not_wait_for_calls_inside() -> None:
    valve = closed()
    valve.open("t")
    with valve.passage("s") as passage:
        passage.transport()
        valve.close()
        assert not valve.is_open


def test_parked_calls_go_on_over_the_next_transport() -> None:
    valve = closed()
    waiter = Background(lambda: call(valve))
    parked(valve, 1)
    valve.open("next")
    assert waiter.result() == "next"
    assert valve.waiting == 0


def test_one_session_is_released_in_arrival_order_and_a_repeated_call_keeps_its_place() -> None:
    valve = closed()
    valve.open("old")
    order: list[str] = []
    first = valve.passage("s")
    with first:
        assert first.transport() == "old"
        valve.close()
        later = []
        for number in range(5):

            def late(number: int = number) -> None:
                with valve.passage("s") as passage:
                    passage.transport()
                    order.append(f"later {number}")

            later.append(Background(late))
            parked(valve, number + 1)
        valve.open("new")
        assert first.transport(in_flight=True) == "new"
        order.append("first")
    for waiter in later:
        waiter.result()
    assert order == ["first", *(f"later {number}" for number in range(5))]


def test_sessions_do_not_wait_for_each_other() -> None:
    valve = closed()
    valve.open("t")
    with valve.passage("a") as passage:
        passage.transport()
        assert call(valve, "b") == "t"


def test_failing_releases_each_waiter_with_an_exception_of_its_own() -> None:
    valve = closed()
    waiters = [Background(lambda key=key: call(valve, key)) for key in "abc"]
    parked(valve, 3)
    valve.fail(failed)
    errors = []
    for waiter in waiters:
        with pytest.raises(ConnectionFailedException) as raised:
            waiter.result()
        errors.append(raised.value)
    assert len({id(error) for error in errors}) == 3
    with pytest.raises(ConnectionFailedException):
        call(valve)


def test_a_bounded_wait_ends_and_leaves_the_others_in_order() -> None:
    valve = closed()
    with pytest.raises(JMSException) as raised:
        call(valve, timeout=0.01)
    assert raised.value.code is Code.CONNECTION_LOST
    with valve.passage("s", 0.01) as passage, pytest.raises(JMSException) as raised:
        passage.transport(in_flight=True)
    assert raised.value.outcome_unknown
    valve.open("t")
    assert call(valve) == "t"


def test_a_cancelled_waiter_leaves_the_queue() -> None:
    valve = closed()
    valve.open("t")
    with pytest.raises(KeyboardInterrupt), valve.passage("s"):
        raise KeyboardInterrupt
    assert call(valve) == "t"


def test_waiting_until_settled_takes_no_place() -> None:
    valve = closed()
    waiter = Background(valve.wait_until_settled)
    parked(valve, 1)
    valve.open("t")
    waiter.result()
