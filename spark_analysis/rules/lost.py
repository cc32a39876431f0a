"""Lost: a confirmed send that never reached an application.

A send that returned (in a transaction: whose commit returned) promises that the message will be consumed, whatever
fails afterwards (oracle 1). Only a drain proves a loss: without one the message may still lie in the broker. Where a
confirmed persistent message was not consumed and no DRAINED event follows its send, the verdict is indeterminate, never
a pass. A message counts as consumed if some delivery of it was not given back: settled, consumed, and after a drain
also unsure or still held by a session that nothing closed before. A delivery that was rolled back, recovered or stale
is not a consumption; the drain must find the message again.

Excused are: NON_PERSISTENT messages, volatile destinations and non-durable subscriptions if a failure followed the
send; messages that had expired before the drain; what a subscription could not get because it did not exist.
"""

from __future__ import annotations

import msgspec

from spark_analysis.deliveries import Delivery, Message, Send, State, Subscription
from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule, listed

_SURELY_CONSUMED = (State.SETTLED, State.CONSUMED)


class Missing(msgspec.Struct):
    """A confirmed message that one stream never gave to anybody."""

    send: Send
    stream: str
    given_back: list[Delivery]
    drained_at: int


class Accounts(msgspec.Struct):
    """What became of all confirmed sends of a scenario."""

    judged: int = 0
    excused: int = 0
    undrained: list[str] = []
    missing: list[Missing] = []
    non_persistent: bool = False


def accounts(history: History) -> Accounts:
    """Follow every confirmed message to its end on every stream that its destination feeds."""
    result = Accounts()
    undrained: dict[str, None] = {}
    for message in history.messages.values():
        send = message.confirmed
        if send is None:
            continue
        for stream, subscription in _receivers(history, message, send):
            drained = history.drained.get(stream, -1)
            deliveries = history.by_message.get((stream, message.uid), [])
            surely = any(delivery.state in _SURELY_CONSUMED for delivery in deliveries)
            if not surely and drained < send.end:
                if send.persistent:
                    undrained[stream] = None
                continue
            result.judged += 1
            result.non_persistent |= not send.persistent
            if surely or any(_consumed(history, delivery, drained) for delivery in deliveries):
                continue
            if excused(history, send, subscription) or _expired(history, send, drained):
                result.excused += 1
            else:
                result.missing.append(Missing(send, stream, deliveries, drained))
    result.undrained = list(undrained)
    return result


def _receivers(history: History, message: Message, send: Send) -> list[tuple[str, Subscription | None]]:
    """The streams that owe this message; a subscription owes only what was sent while it surely existed."""
    if message.destination not in history.subscriptions:
        return [(message.destination, None)]
    subscriptions = history.subscriptions[message.destination]
    return [(s.stream, s) for s in subscriptions if s.since < send.position and (s.until < 0 or send.end < s.until)]


def _consumed(history: History, delivery: Delivery, drained: int) -> bool:
    if delivery.state is State.RETURNED:
        return False
    return delivery.state is not State.OPEN or not history.may_return(delivery, drained)


def excused(history: History, send: Send, subscription: Subscription | None) -> bool:
    """Whether JMS lets a failure take this message."""
    fleeting = not send.persistent or history.volatile(send.destination)
    fleeting |= subscription is not None and not subscription.durable
    return fleeting and history.failures.last >= send.position


def _expired(history: History, send: Send, drained: int) -> bool:
    now = history.events[drained].wall_ms
    return send.expires_at_ms > 0 and (now == 0 or send.expires_at_ms <= now)


def _judge(history: History) -> Judgement | None:
    found = accounts(history)
    modes = history.exposed_modes()
    conditions = ["NON_PERSISTENT"] if found.non_persistent else []
    if history.duplicate_detection:
        conditions.append("duplicate-detection")
    if found.missing:
        return _failed(found, modes, conditions)
    if found.undrained:
        text = (
            f"a confirmed message did not come, but nobody read {listed(found.undrained)} to the end after it was sent"
        )
        return Judgement(FindingOutcome.INDETERMINATE, text, tuple(conditions), modes)
    if not found.judged:
        return None
    text = f"{found.judged} confirmed messages accounted for"
    text += f", {found.excused} of them excused" if found.excused else ""
    return Judgement(FindingOutcome.PASSED, text, tuple(conditions), modes)


def _failed(found: Accounts, modes: tuple[str, ...], conditions: list[str]) -> Judgement:
    first = found.missing[0]
    text = (
        f"{len(found.missing)} of {found.judged} confirmed messages never came: {first.send.message}, sent at "
        f"{first.send.position} and confirmed at {first.send.end}, is missing from {first.stream}, "
        f"which was read to its end at {first.drained_at}"
    )
    if first.given_back:
        text += f"; it had been delivered at {first.given_back[-1].position} and given back"
    positions = {p for miss in found.missing for p in (miss.send.position, miss.send.end, miss.drained_at)}
    positions |= {delivery.position for miss in found.missing for delivery in miss.given_back}
    modes = tuple(sorted({d.mode for miss in found.missing for d in miss.given_back})) or modes
    messages = tuple(dict.fromkeys(miss.send.message for miss in found.missing))
    return Judgement(FindingOutcome.FAILED, text, tuple(conditions), modes, messages, tuple(sorted(positions)))


RULE = Rule(
    name="lost",
    meaning="Every confirmed message is consumed, unless JMS lets the failure take it.",
    requirements={
        "any": ("MSG-11",),
        "AUTO": ("ACK-AUTO-04", "ACK-AUTO-09"),
        "DUPS_OK": ("ACK-DUPS-02",),
        "CLIENT": ("ACK-CLIENT-12",),
        "TRANSACTED": ("TX-01", "TX-03"),
        "NON_PERSISTENT": ("MSG-10",),
        "duplicate-detection": ("DUP-09",),
    },
    judge=_judge,
)
