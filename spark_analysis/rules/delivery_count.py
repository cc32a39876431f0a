"""Delivery count: JMSRedelivered implies JMSXDeliveryCount >= 2 (oracle 5, MSG-09).

Judged for every redelivered message whose adapter reports a count; 0 means that it cannot.
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule


def _judge(history: History) -> Judgement | None:
    judged = [d for d in history.deliveries if d.redelivered and d.delivery_count > 0]
    if not judged:
        return None
    bad = [d for d in judged if d.delivery_count < 2]
    if not bad:
        text = f"{len(judged)} redelivered messages count 2 or more"
        return Judgement(FindingOutcome.PASSED, text, modes=tuple(sorted({d.mode for d in judged})))
    text = (
        f"{len(bad)} of {len(judged)} redelivered messages have a delivery count below 2: {bad[0].message} at "
        f"{bad[0].position} has {bad[0].delivery_count}"
    )
    return Judgement(
        FindingOutcome.FAILED,
        text,
        modes=tuple(sorted({d.mode for d in bad})),
        messages=tuple(dict.fromkeys(d.message for d in bad)),
        positions=tuple(d.position for d in bad),
    )


RULE = Rule(
    name="delivery-count",
    meaning="A message flagged as redelivered has a delivery count of at least 2.",
    requirements={"any": ("MSG-09",)},
    judge=_judge,
)
