"""The verdicts on the delivery logs as pytest results: one a scenario and rule.

After all tests have run, the controller judges all logs and reports each finding like a test: it shows in the terminal,
in JUnit and in the exit status, with and without xdist. Judging is Spark's work in one session; `inline` runs the same
rules in this process, for the many small runs of the negative controls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.record import PROPERTY, Record, Source, encode
from spark_analysis.log import LogError, read_log
from spark_analysis.rules import Finding, judge
from spark_analysis.schema import LOG_SUFFIX

OUTCOMES = {"passed": "passed", "failed": "failed", "indeterminate": "failed", "not-applicable": "not-applicable"}
"""A verdict that could not be reached is no pass: the log is unfinished or a queue was never read to its end."""


def find(logs: Path, how: str) -> tuple[list[Finding], list[dict[str, Any]], dict[str, str]]:
    """All findings on the logs of a directory, Spark's tallies of them, and versions to be reported."""
    if how == "inline":
        return list(_inline(logs)), [], {}
    from spark_analysis.judge import judge_run  # noqa: PLC0415 - pyspark is heavy and only needed here

    verdict = judge_run(logs)
    tallies = [msgspec.to_builtins(tally) for tally in verdict.tallies]
    return list(verdict.findings), tallies, {"Apache Spark": verdict.spark_version}


def _inline(logs: Path) -> Iterable[Finding]:
    for path in sorted(logs.glob(f"*{LOG_SUFFIX}")):
        try:
            yield from judge(read_log(path))
        except LogError as error:
            yield Finding(str(path), "unfinished", "failed", detail=str(error))  # type: ignore[arg-type]


def as_record(finding: Finding, tests: Mapping[str, Record]) -> Record:
    """The finding with what is known of its scenario's test."""
    test = tests.get(finding.scenario)
    return Record(
        source=Source.VERDICT,
        test=f"spark_analysis/rules::{finding.rule}[{finding.scenario.rpartition('::')[2]}]",
        requirements=finding.requirements,
        outcome=OUTCOMES[str(finding.outcome)],
        failover=test.failover if test else "",
        fault=test.fault if test else "",
        message=finding.detail,
        log=test.log if test else "",
        evidence=test.evidence if test else (),
        replay=test.replay if test else "",
        rule=finding.rule,
        messages=finding.messages,
        positions=finding.positions,
    )


def report(session: pytest.Session, records: Iterable[Record]) -> None:
    """Hand each record to pytest as the result of a test that was no collected item."""
    hook = session.config.hook
    for record in records:
        location = ("spark_analysis/rules", None, record.test.rpartition("::")[2])
        hook.pytest_runtest_logstart(nodeid=record.test, location=location)
        for when in ("setup", "call", "teardown"):
            failed = when == "call" and record.outcome == "failed"
            made = pytest.TestReport(
                nodeid=record.test,
                location=location,
                keywords={},
                outcome="failed" if failed else "passed",
                longrepr=_explain(record) if failed else None,
                when=when,
                user_properties=[(PROPERTY, encode(record))] if when == "call" else [],
            )
            hook.pytest_runtest_logreport(report=made)
            if failed:
                session.testsfailed += 1
        hook.pytest_runtest_logfinish(nodeid=record.test, location=location)


def _explain(record: Record) -> str:
    lines = [
        f"{record.rule}: {record.message}",
        f"requirements: {', '.join(record.requirements)}",
        f"messages: {', '.join(record.messages[:10])}",
        f"positions in {record.log}: {', '.join(map(str, record.positions[:20]))}",
        f"replay: {record.replay}",
    ]
    return "\n".join(lines)
