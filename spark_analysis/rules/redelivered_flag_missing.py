"""Redelivered flag missing: an allowed repeat that does not say that it is one.

Every repeat that the acknowledge mode allows is a redelivery, and a redelivery carries JMSRedelivered = true, also when
the broker that delivered the message first is gone (oracle 2, D-08). A repeat that is not allowed belongs to the rule
``duplicated``, flagged or not. Messages that were only prefetched never reached the application and are no repeats.
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.redelivery import repeats
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule


def _judge(history: History) -> Judgement | None:
    judged = [repeat for repeat in repeats(history) if repeat.allowed]
    if not judged:
        return None
    bad = [repeat for repeat in judged if repeat.flag_missing]
    modes = tuple(sorted({repeat.earlier.mode for repeat in (bad or judged)}))
    fleeting = any(not send.persistent for repeat in judged for send in history.sent.get(repeat.later.message, ()))
    conditions = ("NON_PERSISTENT",) if fleeting else ()
    if not bad:
        return Judgement(FindingOutcome.PASSED, f"{len(judged)} redeliveries, all flagged", conditions, modes)
    first = bad[0]
    text = (
        f"{len(bad)} of {len(judged)} redeliveries are not flagged: {first.later.message} was delivered at "
        f"{first.earlier.position} and again at {first.later.position} with JMSRedelivered = false"
    )
    return Judgement(
        FindingOutcome.FAILED,
        text,
        conditions,
        modes,
        tuple(dict.fromkeys(repeat.later.message for repeat in bad)),
        tuple(sorted({p for repeat in bad for p in (repeat.earlier.position, repeat.later.position)})),
    )


RULE = Rule(
    name="redelivered-flag-missing",
    meaning="Every redelivery of a message that an application has seen carries JMSRedelivered = true.",
    requirements={
        "AUTO": ("ACK-AUTO-03",),
        "DUPS_OK": ("ACK-DUPS-02",),
        "CLIENT": ("ACK-CLIENT-12", "ACK-CLIENT-14"),
        "TRANSACTED": ("TX-03",),
        "NON_PERSISTENT": ("MSG-10",),
    },
    judge=_judge,
)
