from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.client.driver import Delivery
from reference_broker.client.inbox import Arrived, Inbox
from reference_broker.jms import Message


def arrived(number: int) -> Arrived:
    return Arrived(number, 1, Delivery("c", number, Message()))


@given(st.integers(1, 20), st.lists(st.booleans(), max_size=200))
def test_with_a_window_the_consumer_never_starves_nor_floods(prefetch: int, arrivals: list[bool]) -> None:
    inbox, credit, number, order = Inbox(prefetch), prefetch, 0, []
    for arrives in arrivals:
        if arrives and credit:
            credit -= 1
            inbox.put(arrived(number))
            number += 1
        elif len(inbox):
            message, due = inbox.take()
            order.append(message.order)
            credit += due
        assert 0 <= credit + len(inbox) <= prefetch
        assert credit or len(inbox)
        assert inbox.pull() == 0
    assert order == list(range(len(order)))


def test_without_a_window_one_message_is_pulled_at_a_time() -> None:
    inbox = Inbox(0)
    assert inbox.pull() == 1
    assert inbox.pull() == 0
    inbox.put(arrived(1))
    assert inbox.pull() == 0
    assert inbox.take() == (arrived(1), 0)
    assert inbox.pull() == 1


def test_what_was_pulled_for_in_vain_is_pulled_for_again_after_a_failover() -> None:
    inbox = Inbox(0)
    assert inbox.pull() == 1
    inbox.start_over()
    assert inbox.pull() == 1
