"""Expired delivered: a message handed out after its JMSExpiration (MSG-04, MSG-05).

The expiry is the sender's (time of the send call plus TTL), the time of delivery the receiver's wall clock; both run on
one machine here. A message may pass a consumer's last check just before it expires, so ``expiry-tolerance-ms``
(default 250) is allowed between the check and the recording of the delivery.
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule

TOLERANCE_MS = 250


def tolerance_ms(history: History) -> int:
    """The allowed lateness in milliseconds, from the scenario's options."""
    text = history.header.options.get("expiry-tolerance-ms", "")
    return int(text) if text.isdecimal() else TOLERANCE_MS


def _judge(history: History) -> Judgement | None:
    if not any(send.expires_at_ms for sends in history.sent.values() for send in sends):
        return None
    tolerance = tolerance_ms(history)
    judged = 0
    bad = []
    for delivery in history.deliveries:
        message = history.messages.get((delivery.destination, delivery.message))
        if message is None or not delivery.wall_ms or any(not send.expires_at_ms for send in message.sends):
            continue
        judged += 1
        latest = max(message.sends, key=lambda send: send.expires_at_ms)
        if delivery.wall_ms > latest.expires_at_ms + tolerance:
            bad.append((delivery, latest))
    if not bad:
        text = f"{judged} messages with an expiry delivered in time"
        return Judgement(FindingOutcome.PASSED, text, modes=history.exposed_modes())
    delivery, send = bad[0]
    late = delivery.wall_ms - send.expires_at_ms
    text = f"{len(bad)} expired messages delivered: {delivery.message} at {delivery.position}, {late} ms too late"
    return Judgement(
        FindingOutcome.FAILED,
        text,
        modes=tuple(sorted({d.mode for d, _ in bad})),
        messages=tuple(dict.fromkeys(d.message for d, _ in bad)),
        positions=tuple(sorted({p for d, sent in bad for p in (sent.position, d.position)})),
    )


RULE = Rule(
    name="expired-delivered",
    meaning="No message is handed out after it expired.",
    requirements={"any": ("MSG-04",), "failure": ("MSG-05",)},
    judge=_judge,
)
