"""Body changed: a message arrives with another body than it was sent with.

The sender's digest of the body is compared with the receiver's, on whichever broker of the pair delivered it (MSG-15).
Where one uid was sent several times any of its digests will do; a delivery without a digest judges nothing.
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule


def _judge(history: History) -> Judgement | None:
    judged = 0
    bad = []
    for delivery in history.deliveries:
        message = history.messages.get((delivery.destination, delivery.message))
        digests = {send.digest for send in message.sends if send.digest} if message else set()
        if delivery.digest and digests:
            judged += 1
            if delivery.digest not in digests and message is not None:
                bad.append((delivery, message.sends[0]))
    if not judged:
        return None
    if not bad:
        return Judgement(FindingOutcome.PASSED, f"{judged} bodies compared", modes=history.exposed_modes())
    delivery, send = bad[0]
    text = (
        f"{len(bad)} of {judged} bodies changed: {delivery.message} was sent at {send.position} with digest "
        f"{send.digest} and delivered at {delivery.position} with {delivery.digest}"
    )
    return Judgement(
        FindingOutcome.FAILED,
        text,
        modes=tuple(sorted({changed.mode for changed, _ in bad})),
        messages=tuple(dict.fromkeys(changed.message for changed, _ in bad)),
        positions=tuple(sorted({p for changed, sent in bad for p in (sent.position, changed.position)})),
    )


RULE = Rule(
    name="body-changed",
    meaning="Every body arrives as it was sent.",
    requirements={"any": ("MSG-15",)},
    judge=_judge,
)
