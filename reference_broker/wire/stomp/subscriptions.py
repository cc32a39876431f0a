"""What is with a STOMP client: its subscriptions and the deliveries that it has not settled.

A delivery is named `TRANSPORT.NUMBER` in `message-id` and `ack`: unique over all transports, so that a name from an
earlier one is refused instead of taken for another message (ACK-CLIENT-10).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reference_broker.broker.commands import ClientCommand, CloseConsumer, Return

from .codec import ProtocolError

AUTO: Final = "auto"
CUMULATIVE: Final = "client"
ACK_MODES: Final = frozenset({AUTO, CUMULATIVE, "client-individual"})


class Subscription:
    """One SUBSCRIBE and the numbers of its deliveries that are with the client."""

    def __init__(self, consumer: str, id: str | None, mode: str, *, limited: bool) -> None:
        self.consumer = consumer
        self.id = id
        self.mode = mode
        self.limited = limited
        """It has a prefetch window, so that credit has to be granted again."""
        self.unsettled: set[int] = set()
        self.pledged: set[int] = set()
        """Settled in a transaction that is open."""
        self.ended = False

    def end(self, session: str, request: int) -> list[ClientCommand]:
        """Close the consumer; what is with the client goes back flagged, what a transaction holds stays there."""
        self.ended = True
        back = tuple(sorted(self.unsettled))
        stays = tuple(sorted(self.unsettled | self.pledged))
        self.unsettled.clear()
        close = CloseConsumer(consumer=self.consumer, delivered=stays, request=0 if back else request)
        return [close, Return(session=session, deliveries=back, request=request)] if back else [close]


class Subscriptions:
    """All of a connection; `link` is the name of its transport."""

    def __init__(self, link: str) -> None:
        self._prefix = link + "."
        self._by_id: dict[str, Subscription] = {}
        self._by_consumer: dict[str, Subscription] = {}
        self._holders: dict[int, Subscription] = {}
        """Delivery to its subscription, until it is settled for good."""
        self._number = 0

    def open(self, id: str | None, destination: str, mode: str, *, limited: bool) -> Subscription:
        """A new one; without an id (STOMP 1.0) it goes by its destination."""
        key = destination if id is None else id
        if key in self._by_id:
            raise ProtocolError(f"subscription {key[:80]!r} exists already")
        self._number += 1
        subscription = Subscription(f"{self._prefix}{self._number}", id, mode, limited=limited)
        self._by_id[key] = self._by_consumer[subscription.consumer] = subscription
        return subscription

    def close(self, key: str) -> Subscription:
        """Take it out; ProtocolError if there is none."""
        try:
            subscription = self._by_id.pop(key)
        except KeyError:
            raise ProtocolError(f"there is no subscription {key[:80]!r}") from None
        del self._by_consumer[subscription.consumer]
        self.forget(subscription.unsettled)
        return subscription

    def delivered(self, consumer: str, number: int) -> Subscription | None:
        """Note a delivery that leaves for the client; None if its subscription is gone."""
        subscription = self._by_consumer.get(consumer)
        if subscription is not None and subscription.mode != AUTO:
            subscription.unsettled.add(number)
            self._holders[number] = subscription
        return subscription

    def unseen_but(self, subscription: Subscription, names: Iterable[str]) -> None:
        """Of what is with the client its application has seen only these: the rest goes back as never delivered."""
        subscription.unsettled &= {int(n) for name in names if (n := name.removeprefix(self._prefix)).isdecimal()}

    def forget(self, numbers: Iterable[int]) -> None:
        """These are settled for good."""
        for number in numbers:
            self._holders.pop(number, None)

    def name_of(self, number: int) -> str:
        """The name of a delivery on the wire."""
        return f"{self._prefix}{number}"

    def named(self, name: str) -> tuple[Subscription, tuple[int, ...]]:
        """Whose delivery that is, and all that settling it settles, in order; they are the caller's to settle now."""
        number = name.removeprefix(self._prefix)
        subscription = self._holders.get(int(number)) if number.isdecimal() and number != name else None
        if subscription is None or int(number) not in subscription.unsettled:
            raise ProtocolError(f"{name[:80]!r} is no message that is with this client unacknowledged")
        last = int(number)
        settled: tuple[int, ...] = (last,)
        if subscription.mode == CUMULATIVE:
            settled = tuple(sorted(held for held in subscription.unsettled if held <= last))
        subscription.unsettled.difference_update(settled)
        return subscription, settled
