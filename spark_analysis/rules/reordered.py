"""Reordered: the messages of one producer session to one destination overtake each other (oracle 4).

JMS 6.2.9 orders what one session sends to one destination with equal priority and delivery mode, as one consumer sees
it; other pairs may interleave freely (ORD-07). Two things are judged for each consumer.

*First deliveries* come in the order of the sends, over failures too (ORD-01, ORD-03, ORD-04). Gaps are the rule
``lost``'s matter. Where other consumers use the stream as well, what one of them had prefetched goes back and is given
to the rest late, so there the order is judged only between two events that can give messages back, and for messages
not flagged as redelivered.

*Returned messages come first* (ORD-02): after a recover, a rollback or a completed failover a consumer that is alone
gets what was returned before anything it had not seen yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import msgspec

from spark_analysis.deliveries import Delivery, SessionKey
from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule
from spark_analysis.schema import Kind, Outcome

Line = tuple[str, str, SessionKey, int, bool]  # stream, consumer, producer, priority, persistent


class Inversion(msgspec.Struct):
    """Two deliveries in the wrong order."""

    before: Delivery
    after: Delivery
    why: str


class _Places(msgspec.Struct):
    """A message's place in its line: the lowest and highest sequence under which it was sent."""

    low: int
    high: int


def _breaks(history: History) -> tuple[list[int], set[int]]:
    """Positions that may give messages back, and those of them after which the returned ones must come first."""
    anything: set[int] = set()
    returned: set[int] = set()
    for operation in history.operations:
        kind = operation.event.kind
        ended = operation.ended_at
        undone = kind in (Kind.COMMIT, Kind.ACKNOWLEDGE) and operation.outcome is not Outcome.OK
        if undone or kind in (Kind.RECOVER, Kind.ROLLBACK, Kind.FAILOVER_DONE):
            returned.add(ended)
        elif kind in (Kind.FAULT, Kind.FAILOVER_BEGUN, Kind.CLOSE):
            anything.add(operation.event.position)
    for connection in history.failures.connections.values():
        anything |= {loss.begun for loss in connection.losses}
    anything -= returned
    return sorted(anything | returned), returned


def _first_seen(history: History) -> dict[str, list[int]]:
    """For each stream, where its consumers first appear, in order."""
    first: dict[str, dict[str, int]] = defaultdict(dict)
    for event in history.events:
        if event.kind is Kind.RECEIVE and event.destination:
            first[history.stream_of(event)].setdefault(event.endpoint, event.position)
    return {stream: sorted(consumers.values()) for stream, consumers in first.items()}


def _line(history: History, delivery: Delivery) -> tuple[Line, _Places] | None:
    """The line a delivery stands in; None if its sends do not agree on one or carry no sequence."""
    message = history.messages.get((delivery.destination, delivery.message))
    if message is None:
        return None
    lines = {
        (delivery.stream, delivery.endpoint, send.producer, send.priority, send.persistent) for send in message.sends
    }
    sequences = [send.sequence for send in message.sends]
    if len(lines) != 1 or min(sequences) < 0:
        return None
    return lines.pop(), _Places(min(sequences), max(sequences))


def _judge(history: History) -> Judgement | None:
    lines: dict[Line, list[tuple[Delivery, _Places, bool]]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for delivery in history.deliveries:
        key = (delivery.stream, delivery.message)
        placed = _line(history, delivery)
        if placed is not None:
            lines[placed[0]].append((delivery, placed[1], key in seen))
        seen.add(key)
    if not lines:
        return None
    breaks, returned = _breaks(history)
    consumers = _first_seen(history)
    bad: list[Inversion] = []
    for line, entries in lines.items():
        appeared = consumers.get(line[0], [])
        bad += _overtaken(entries, appeared, breaks)
        bad += _returned_late(entries, appeared, breaks, returned)
    return _verdict(history, bad, sum(map(len, lines.values())))


def _overtaken(
    entries: list[tuple[Delivery, _Places, bool]], appeared: list[int], breaks: list[int]
) -> list[Inversion]:
    bad = []
    last: tuple[Delivery, _Places] | None = None
    for delivery, places, repeat in entries:
        company = _in_company(appeared, delivery.position)
        if repeat or (company and delivery.redelivered):
            continue
        if last is not None and company and _break_between(breaks, last[0].position, delivery.position):
            last = None
        if last is not None and places.high < last[1].low:
            bad.append(Inversion(last[0], delivery, "was sent later but came first"))
            continue
        last = (delivery, places)
    return bad


def _returned_late(
    entries: list[tuple[Delivery, _Places, bool]], appeared: list[int], breaks: list[int], returned: set[int]
) -> list[Inversion]:
    bad = []
    known: dict[str, int] = {}
    unseen: tuple[Delivery, _Places, int] | None = None  # the newest first delivery, and the break before it
    for delivery, places, repeat in entries:
        start = bisect_right(breaks, delivery.position) - 1
        at = breaks[start] if start >= 0 else -1
        if not repeat:
            unseen = (delivery, places, at)
        elif unseen is not None and unseen[2] == at and at in returned:
            was_returned = known.get(delivery.message, delivery.position) < at
            alone = not _in_company(appeared, delivery.position)
            if alone and was_returned and places.high < unseen[1].low:
                bad.append(Inversion(unseen[0], delivery, "had not been seen yet but came before a returned one"))
        known[delivery.message] = delivery.position
    return bad


def _in_company(appeared: list[int], position: int) -> bool:
    """Whether two consumers had used the stream by then."""
    return bisect_right(appeared, position) > 1


def _break_between(breaks: list[int], after: int, before: int) -> bool:
    return bisect_right(breaks, after) < bisect_right(breaks, before)


def _verdict(history: History, bad: list[Inversion], judged: int) -> Judgement:
    conditions = []
    if any(not send.persistent for sends in history.sent.values() for send in sends):
        conditions.append("NON_PERSISTENT")
    if not bad:
        text = f"{judged} deliveries in the order of their sends"
        return Judgement(FindingOutcome.PASSED, text, tuple(conditions), history.exposed_modes())
    first = bad[0]
    text = (
        f"{len(bad)} messages out of order: {first.before.message}, delivered at {first.before.position}, {first.why}: "
        f"{first.after.message}, delivered at {first.after.position}"
    )
    return Judgement(
        FindingOutcome.FAILED,
        text,
        tuple(conditions),
        tuple(sorted({inversion.after.mode for inversion in bad})),
        tuple(dict.fromkeys(uid for i in bad for uid in (i.before.message, i.after.message))),
        tuple(sorted({p for i in bad for p in (i.before.position, i.after.position)})),
    )


RULE = Rule(
    name="reordered",
    meaning="What one session sent to one destination arrives in that order, returned messages first.",
    requirements={
        "any": ("ORD-01",),
        "failure": ("ORD-02", "ORD-03", "ORD-04"),
        "NON_PERSISTENT": ("ORD-07",),
    },
    judge=_judge,
)
