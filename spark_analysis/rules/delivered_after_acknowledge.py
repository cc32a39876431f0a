"""Delivered after acknowledge: a message whose acknowledgement was confirmed is delivered again (oracle 3).

Narrower than ``duplicated``: it judges only deliveries that an acknowledge() or commit() covered and that returned
normally, so the application was told in so many words that it would not see the message again.
"""

from __future__ import annotations

from spark_analysis.deliveries import State
from spark_analysis.history import History
from spark_analysis.redelivery import repeats
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule


def _judge(history: History) -> Judgement | None:
    settled = [d for d in history.deliveries if d.state is State.SETTLED]
    if not settled:
        return None
    bad = [r for r in repeats(history) if not r.allowed and r.earlier.state is State.SETTLED]
    if not bad:
        text = f"none of {len(settled)} acknowledged deliveries came again"
        return Judgement(FindingOutcome.PASSED, text, modes=tuple(sorted({d.mode for d in settled})))
    first = bad[0]
    text = (
        f"{len(bad)} messages came again after their acknowledgement: {first.later.message}, delivered at "
        f"{first.earlier.position}, confirmed at {first.earlier.settled_at}, came again at {first.later.position}"
    )
    positions = {p for r in bad for p in (r.earlier.position, r.earlier.settled_at, r.later.position)}
    return Judgement(
        FindingOutcome.FAILED,
        text,
        modes=tuple(sorted({repeat.earlier.mode for repeat in bad})),
        messages=tuple(dict.fromkeys(repeat.later.message for repeat in bad)),
        positions=tuple(sorted(positions)),
    )


RULE = Rule(
    name="delivered-after-acknowledge",
    meaning="No message comes again once its acknowledgement or commit was confirmed.",
    requirements={
        "AUTO": ("ACK-AUTO-07",),
        "CLIENT": ("ACK-CLIENT-01",),
        "TRANSACTED": ("TX-01", "TX-03"),
    },
    judge=_judge,
)
