"""The rules that judge a delivery log, one module a rule, and the judgement of one scenario by all of them.

A pure function of the log: Spark only decides which worker runs it (``spark_analysis.judge``).
"""

from __future__ import annotations

from spark_analysis.history import History
from spark_analysis.log import Log
from spark_analysis.rules import (
    body_changed,
    delivered_after_acknowledge,
    delivery_count,
    duplicated,
    expired_delivered,
    lost,
    phantom,
    redelivered_flag_missing,
    reordered,
    torn_transaction,
    unfinished,
)
from spark_analysis.rules.finding import Finding, FindingOutcome, Judgement, Rule
from spark_analysis.rules.tally import ScenarioTally, tally

__all__ = [
    "RULES",
    "Finding",
    "FindingOutcome",
    "Judgement",
    "Rule",
    "ScenarioTally",
    "judge",
    "judge_history",
    "tally",
]

RULES: tuple[Rule, ...] = (
    lost.RULE,
    duplicated.RULE,
    phantom.RULE,
    reordered.RULE,
    torn_transaction.RULE,
    redelivered_flag_missing.RULE,
    body_changed.RULE,
    delivered_after_acknowledge.RULE,
    expired_delivered.RULE,
    delivery_count.RULE,
    unfinished.RULE,
)
EXEMPT = "exempt:"


def judge(log: Log) -> list[Finding]:
    """One finding for each rule that has anything to judge in this scenario, in the order of ``RULES``."""
    return judge_history(History(log))


def judge_history(history: History) -> list[Finding]:
    """As ``judge``, of a log that was digested before."""
    findings = [_finding(rule, history) for rule in RULES]
    return [finding for finding in findings if finding is not None] + _bad_exemptions(history)


def _finding(rule: Rule, history: History) -> Finding | None:
    judgement = rule.judge(history)
    if judgement is None:
        return None
    scenario = history.header.scenario
    mode = "+".join(judgement.modes)
    failed_over = ("failure",) if history.failures.first >= 0 else ()
    requirements = rule.shows((*judgement.conditions, *judgement.modes, *failed_over))
    reason = history.header.options.get(EXEMPT + rule.name, "").strip()
    if reason and rule is not unfinished.RULE:
        return Finding(
            scenario, rule.name, FindingOutcome.NOT_APPLICABLE, detail=reason, requirements=requirements, mode=mode
        )
    outcome, detail = judgement.outcome, judgement.detail
    if history.problems and outcome is FindingOutcome.PASSED:
        outcome, detail = FindingOutcome.INDETERMINATE, f"the log is unfinished or damaged; as far as it goes: {detail}"
    return Finding(scenario, rule.name, outcome, judgement.messages, judgement.positions, detail, requirements, mode)


def _bad_exemptions(history: History) -> list[Finding]:
    """An exemption from no rule, or without a written reason, is a mistake in the scenario, not a pass."""
    names = {rule.name for rule in RULES if rule is not unfinished.RULE}
    found = []
    for option, reason in history.header.options.items():
        rule = option.removeprefix(EXEMPT)
        if option == rule:
            continue
        wrong = "" if reason.strip() else "gives no reason"
        wrong = wrong if rule in names else "names no rule that can be exempted"
        if wrong:
            found.append(
                Finding(
                    history.header.scenario,
                    unfinished.RULE.name,
                    FindingOutcome.FAILED,
                    detail=f"the option {option!r} {wrong}",
                )
            )
    return found
