"""Duplicated: a message that came again although its acknowledge mode forbids it.

Which repeat is allowed is told in ``spark_analysis.redelivery``, mode by mode. The rule also catches the copy that a
client's own resend made: without an application that sent the uid twice there is one copy to deliver, and with
duplicate detection there is one whatever the application did (SND-03, DUP-09). Where both explanations fit, an allowed
repeat that merely lacks its flag belongs to the rule ``redelivered-flag-missing``.
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.redelivery import repeats
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule


def _judge(history: History) -> Judgement | None:
    if not history.deliveries:
        return None
    found = repeats(history)
    bad = [repeat for repeat in found if not repeat.allowed]
    conditions = ["duplicate-detection" if history.duplicate_detection else "no-duplicate-detection"]
    if any(not send.persistent for sends in history.sent.values() for send in sends):
        conditions.append("NON_PERSISTENT")
    if not bad:
        text = f"{len(history.deliveries)} deliveries, {len(found)} allowed repeats"
        return Judgement(FindingOutcome.PASSED, text, tuple(conditions), history.exposed_modes())
    first = bad[0]
    text = (
        f"{len(bad)} repeats are not allowed: {first.later.message} was delivered at {first.earlier.position} to "
        f"{first.earlier.endpoint or first.earlier.session[1]} and again at {first.later.position}; {first.reason}"
    )
    return Judgement(
        FindingOutcome.FAILED,
        text,
        tuple(conditions),
        tuple(sorted({repeat.earlier.mode for repeat in bad})),
        tuple(dict.fromkeys(repeat.later.message for repeat in bad)),
        tuple(sorted({p for repeat in bad for p in (repeat.earlier.position, repeat.later.position)})),
    )


RULE = Rule(
    name="duplicated",
    meaning="No message comes again unless its acknowledge mode allows it for the failure that happened.",
    requirements={
        "any": ("MSG-11",),
        "AUTO": ("ACK-AUTO-02",),
        "DUPS_OK": ("ACK-DUPS-02",),
        "CLIENT": ("MSG-25",),
        "TRANSACTED": ("TX-03", "TX-20"),
        "NON_PERSISTENT": ("MSG-10",),
        "no-duplicate-detection": ("SND-02",),
        "duplicate-detection": ("SND-03", "DUP-09"),
    },
    judge=_judge,
)
