"""Torn transaction: a part of a transaction took effect and another part did not.

A transaction's sends become visible and its receipts final all together or not at all (TX-01), also when its commit was
interrupted at any point (TX-16), and work done after a failover shares the fate of what was done before (TX-05). A
commit with an unknown outcome may have gone either way, but the same way for everything in it.

The log shows a transaction's effect by evidence. *Done*: a message that it sent was delivered; one that it received did
not come again although its stream was drained. *Undone*: a message that it sent never came although its stream was
drained; one that it received came again. Both kinds in one transaction tear it. Messages that a failure may take
(NON_PERSISTENT, volatile), that may have expired or exist in several copies are no evidence, and neither is what an
unfinished transaction holds.
"""

from __future__ import annotations

import msgspec

from spark_analysis.deliveries import Delivery, Fate, Send, Transaction
from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule


class Evidence(msgspec.Struct):
    """What shows one part of a transaction's effect."""

    message: str
    positions: tuple[int, ...]
    text: str


def _of_send(history: History, transaction: Transaction, send: Send) -> tuple[Evidence | None, Evidence | None]:
    """Evidence that a send was done, or that it was undone."""
    message = history.messages[send.destination, send.message]
    if send.call is Fate.REFUSED or len(message.sends) > 1:
        return None, None
    streams = history.streams(send.destination)
    seen = [d for stream in streams for d in history.by_message.get((stream, send.message), ())]
    if seen:
        text = f"{send.message} was delivered at {seen[0].position}"
        return Evidence(send.message, (send.position, seen[0].position), text), None
    fleeting = not send.persistent or send.expires_at_ms > 0 or history.volatile(send.destination)
    topic = send.destination in history.subscriptions
    drained = min((history.drained.get(stream, -1) for stream in streams), default=-1)
    if fleeting or topic or send.call is not Fate.CONFIRMED or drained <= max(send.end, transaction.ended):
        return None, None
    text = f"{send.message}, sent at {send.position}, never came"
    return None, Evidence(send.message, (send.position, drained), text)


def _of_delivery(
    history: History, transaction: Transaction, delivery: Delivery
) -> tuple[Evidence | None, Evidence | None]:
    """Evidence that a receipt was final, or that it was undone."""
    message = history.messages.get((delivery.destination, delivery.message))
    if message is None or len(message.sends) != 1:
        return None, None
    again = [
        later
        for later in history.by_message[delivery.stream, delivery.message]
        if later.position > delivery.position and later.transaction != transaction.ident
    ]
    if again:
        text = f"{delivery.message}, received at {delivery.position}, came again at {again[0].position}"
        return None, Evidence(delivery.message, (delivery.position, again[0].position), text)
    send = message.sends[0]
    fleeting = not send.persistent or send.expires_at_ms > 0 or history.volatile(delivery.destination)
    if fleeting or transaction.ended < 0 or history.drained.get(delivery.stream, -1) <= transaction.ended:
        return None, None
    text = f"{delivery.message}, received at {delivery.position}, did not come again"
    return Evidence(delivery.message, (delivery.position,), text), None


def _tear(history: History, transaction: Transaction) -> tuple[list[Evidence], list[Evidence]]:
    pairs = [_of_send(history, transaction, send) for send in transaction.sends]
    pairs += [_of_delivery(history, transaction, delivery) for delivery in transaction.deliveries]
    return [done for done, _ in pairs if done], [undone for _, undone in pairs if undone]


def _judge(history: History) -> Judgement | None:
    judged = [t for t in history.transactions.values() if t.sends or t.deliveries]
    if not judged:
        return None
    torn = [(t, done, undone) for t in judged for done, undone in [_tear(history, t)] if done and undone]
    if not torn:
        text = f"{len(judged)} transactions, none torn"
        return Judgement(FindingOutcome.PASSED, text, modes=("TRANSACTED",))
    transaction, done, undone = torn[0]
    ended = f"ended at {transaction.ended}" if transaction.ended >= 0 else "never ended"
    text = (
        f"{len(torn)} of {len(judged)} transactions torn: {transaction.ident} ({ended}, {transaction.fate.value}): "
        f"{done[0].text}, but {undone[0].text}"
    )
    evidence = [piece for _, some, others in torn for piece in (*some, *others)]
    ends = {t.ended for t, _, _ in torn if t.ended >= 0}
    return Judgement(
        FindingOutcome.FAILED,
        text,
        modes=("TRANSACTED",),
        messages=tuple(dict.fromkeys(piece.message for piece in evidence)),
        positions=tuple(sorted(ends | {p for piece in evidence for p in piece.positions})),
    )


RULE = Rule(
    name="torn-transaction",
    meaning="A transaction takes effect as a whole or not at all, its sends and its receipts alike.",
    requirements={"any": ("TX-01",), "failure": ("TX-05", "TX-16")},
    judge=_judge,
)
