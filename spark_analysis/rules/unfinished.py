"""Unfinished: a log that cannot carry a verdict.

A log without a footer, with missing or changed lines, or with an option that exempts from a rule that does not exist or
without a written reason. An attempted operation without an end is fine in a finished log: its outcome is unknown, and
the rules read it so. On an unfinished log no other rule passes; what it shows to be wrong stays wrong.
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.rules.finding import FindingOutcome, Judgement, Rule, listed


def _judge(history: History) -> Judgement | None:
    if history.problems:
        return Judgement(FindingOutcome.FAILED, listed(list(history.problems), 3))
    return Judgement(FindingOutcome.PASSED, f"{len(history.events)} events, checksum right")


RULE = Rule(
    name="unfinished",
    meaning="The log is whole: header, events without a gap, and the footer of a writer that finished.",
    requirements={},
    judge=_judge,
)
