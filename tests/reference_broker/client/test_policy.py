from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.client.driver import Endpoint
from reference_broker.client.options import ClientOptions
from reference_broker.client.policy import attempts, initial_attempts, reconnect_attempts

A, B, C = (Endpoint(name, 1) for name in "abc")


def options(**changes: object) -> ClientOptions:
    return ClientOptions(endpoints=(A, B, C), **changes)  # type: ignore[arg-type]


def test_first_pass_has_no_delay_and_later_ones_grow_to_the_maximum() -> None:
    made = list(attempts((A, B), 5, interval=1.0, multiplier=2.0, max_interval=3.0))
    assert [attempt.endpoint for attempt in made] == [A, B] * 5
    assert [attempt.delay for attempt in made[::2]] == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert {attempt.delay for attempt in made[1::2]} == {0.0}


def test_the_first_connect_walks_the_list_in_its_order() -> None:
    assert [attempt.endpoint for attempt in initial_attempts(options())] == [A, B, C]
    assert len(list(initial_attempts(options(initial_connect_attempts=3)))) == 9


def test_a_reconnect_begins_behind_the_address_that_was_lost() -> None:
    made = itertools.islice(reconnect_attempts(options(), B), 4)
    assert [attempt.endpoint for attempt in made] == [C, A, B, C]


@pytest.mark.parametrize("changes", [{"failover": False}, {"reconnect_attempts": 0}])
def test_no_failover_means_no_attempt(changes: dict[str, object]) -> None:
    assert not list(reconnect_attempts(options(**changes), A))
    assert list(initial_attempts(options(**changes)))


def test_minus_one_goes_on_for_ever() -> None:
    assert len(list(itertools.islice(reconnect_attempts(options(reconnect_attempts=-1), A), 1000))) == 1000


@given(st.integers(1, 5), st.integers(0, 6), st.floats(0.001, 5), st.floats(1, 4), st.floats(0.001, 10))
def test_counts_and_bounds(size: int, passes: int, interval: float, multiplier: float, maximum: float) -> None:
    endpoints = [Endpoint("h", port) for port in range(size)]
    made = list(attempts(endpoints, passes, interval, multiplier, maximum))
    assert len(made) == size * passes
    delays = [attempt.delay for attempt in made[::size]]
    assert delays == sorted(delays)
    assert all(delay <= maximum for delay in delays)
