"""Phantom: a message that nobody sent, or whose send surely had no effect.

A send that failed definitely, a send of a transaction that was rolled back or never committed, and a uid that the log
never saw sent to this destination must not reach anybody, not even a browser (TX-13: N messages never visible). A send
with an unknown outcome may come or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_analysis.deliveries import Fate
from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule
from spark_analysis.schema import Kind


def _seen(history: History) -> Iterator[tuple[int, str, str]]:
    """Position, destination and uid of everything that a consumer or browser was shown."""
    for delivery in history.deliveries:
        yield delivery.position, delivery.destination, delivery.message
    for event in history.events:
        if event.kind is Kind.BROWSE:
            for uid in dict.fromkeys((event.message, *event.messages)):
                if uid:
                    yield event.position, event.destination, uid


def _why(history: History, destination: str, uid: str) -> tuple[str, str, int]:
    """Why a message should not exist, its producer's mode and where it was sent; "" if it may exist."""
    message = history.messages.get((destination, uid))
    if message is None:
        elsewhere = history.sent.get(uid)
        if elsewhere:
            return f"it was sent to {elsewhere[0].destination}", elsewhere[0].mode, elsewhere[0].position
        return "nobody sent it", "", -1
    if any(send.fate is not Fate.REFUSED for send in message.sends):
        return "", "", -1
    send = message.sends[-1]
    if not send.transaction:
        return f"its send failed definitely at {send.end}", send.mode, send.position
    transaction = history.transactions[send.transaction]
    what = f"was rolled back at {transaction.ended}" if transaction.ended >= 0 else "was never committed"
    return f"its transaction {send.transaction} {what}", send.mode, send.position


def _judge(history: History) -> Judgement | None:
    refused = any(send.fate is Fate.REFUSED for sends in history.sent.values() for send in sends)
    seen = list(_seen(history))
    if not seen and not refused:
        return None
    bad = [
        (position, uid, *reason)
        for position, destination, uid in seen
        if (reason := _why(history, destination, uid))[0]
    ]
    producers = tuple(sorted({send.mode for sends in history.sent.values() for send in sends}))
    if not bad:
        text = f"{len(seen)} messages seen, each of them sent"
        return Judgement(FindingOutcome.PASSED, text, modes=producers)
    position, uid, why, _, sent_at = bad[0]
    text = f"{len(bad)} phantoms: {uid} was seen at {position}, but {why}"
    text += f" (sent at {sent_at})" if sent_at >= 0 else ""
    return Judgement(
        FindingOutcome.FAILED,
        text,
        modes=tuple(sorted({mode for _, _, _, mode, _ in bad if mode})),
        messages=tuple(dict.fromkeys(uid for _, uid, _, _, _ in bad)),
        positions=tuple(sorted({p for seen_at, _, _, _, sent in bad for p in (seen_at, sent) if p >= 0})),
    )


RULE = Rule(
    name="phantom",
    meaning="Nothing is delivered or browsed that was never sent, failed definitely or was rolled back.",
    requirements={"any": ("SND-01",), "TRANSACTED": ("TX-03", "TX-13")},
    judge=_judge,
)
