"""Which second delivery of a message is allowed: the acknowledge modes' heart.

A *repeat* is a delivery of a message that its stream has delivered before. It is allowed only if every earlier delivery
leaves room for it (section 0.5, oracles 2 and 3):

    earlier delivery   a repeat is allowed
    SETTLED            never: its acknowledgement or commit was confirmed
    CONSUMED, AUTO     if it was the last that its session consumed before a failure; one a session and failure
    CONSUMED, DUPS_OK  any number; but a copy that is not flagged and that no failure or recover explains is a second
                       copy, not a redelivery
    UNSURE, RETURNED   yes
    OPEN               if a failure, recover or close may have given it back in between; else two consumers hold it

Where the application itself sent a uid n times and nothing promises duplicate detection, n - 1 repeats that would be
forbidden, or allowed ones without the flag, are further copies.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import msgspec

from spark_analysis.deliveries import Delivery, SessionKey, State
from spark_analysis.history import History


class Repeat(msgspec.Struct):
    """A delivery of a message delivered before; ``earlier`` is the one that forbids it, or the last before it."""

    earlier: Delivery
    later: Delivery
    allowed: bool
    reason: str = ""

    @property
    def flag_missing(self) -> bool:
        """An allowed repeat is a redelivery, and must say so."""
        return self.allowed and not self.later.redelivered


class _AutoAllowance:
    """The one message a session and failure that AUTO mode allows to come again."""

    def __init__(self, history: History) -> None:
        consumed: dict[SessionKey, list[int]] = defaultdict(list)
        for delivery in history.deliveries:
            if delivery.state is State.CONSUMED and delivery.mode == "AUTO":
                consumed[delivery.session].append(delivery.position)
        self._ambiguous = {
            session: history.failures.last_consumed(session[0], positions) for session, positions in consumed.items()
        }
        self._spent: dict[tuple[SessionKey, int], str] = {}

    def forbids(self, delivery: Delivery) -> str:
        """Why this consumed message may not come again; "" if it may, and then its failure's allowance is spent."""
        spent = ""
        for failure, positions in self._ambiguous.get(delivery.session, {}).items():
            if delivery.position not in positions:
                continue
            spent = self._spent.setdefault((delivery.session, failure), delivery.message)
            if spent == delivery.message:
                return ""
        if spent:
            return f"message {spent} had come again already for the same session and failure"
        return "its AUTO session had consumed it and it was not the session's last before a failure"


@lru_cache(maxsize=1)  # three rules and the tally ask for the same history in a row
def repeats(history: History) -> tuple[Repeat, ...]:
    """Every repeat of the log in log order, judged; second copies that the sends explain are left out."""
    allowance = _AutoAllowance(history)
    earlier: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
    copies: dict[tuple[str, str], int] = {}
    found: list[Repeat] = []
    for key, deliveries in history.by_message.items():
        if len(deliveries) > 1:
            copies[key] = history.copies(deliveries[0].destination, deliveries[0].message) - 1
    for delivery in _repeated_in_order(history):
        key = (delivery.stream, delivery.message)
        before = earlier[key]
        if before:
            repeat = _judge(history, allowance, before, delivery)
            if copies[key] and (not repeat.allowed or repeat.flag_missing):
                copies[key] -= 1
            else:
                found.append(repeat)
        before.append(delivery)
    return tuple(found)


def _repeated_in_order(history: History) -> list[Delivery]:
    repeated = [d for group in history.by_message.values() if len(group) > 1 for d in group]
    return sorted(repeated, key=lambda delivery: delivery.position)


def _judge(history: History, allowance: _AutoAllowance, before: list[Delivery], later: Delivery) -> Repeat:
    for earlier in before:
        reason = _forbidden(history, allowance, earlier, later)
        if reason:
            return Repeat(earlier, later, allowed=False, reason=reason)
    return Repeat(before[-1], later, allowed=True)


def _forbidden(history: History, allowance: _AutoAllowance, earlier: Delivery, later: Delivery) -> str:
    match earlier.state:
        case State.SETTLED:
            what = "committed" if earlier.transaction else "acknowledged"
            return f"it was {what} at {earlier.settled_at}"
        case State.CONSUMED if earlier.mode == "AUTO":
            return allowance.forbids(earlier)
        case State.CONSUMED:
            if later.redelivered or history.may_return(earlier, later.position):
                return ""
            return "it is a second copy, neither flagged as redelivered nor explained by a failure"
        case State.OPEN if not history.may_return(earlier, later.position):
            return "an open session still held it and nothing had given it back"
        case _:
            return ""
