"""What Spark distributes: the bytes of a log in, its findings and counts out.

Spark's own operators would be slower here by an order of magnitude: a rule follows one scenario from event to event, so
the unit of distribution is the log, and within it plain Python over msgspec structs. It is a plain user-defined
function: Spark's ``mapInArrow`` asks for pandas, which nothing else here needs.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import msgspec

from spark_analysis.history import History
from spark_analysis.log import LogError, parse_log
from spark_analysis.rules import Finding, FindingOutcome, judge_history, tally

FINDING = (
    "struct<scenario: string, rule: string, outcome: string, messages: array<string>, positions: array<bigint>, "
    "detail: string, requirements: array<string>, mode: string>"
)
TALLY = (
    "struct<scenario: string, mode: string, fault: string, failover: string, confirmed: bigint, indeterminate: bigint, "
    "received: bigint, lost: bigint, duplicates_allowed: bigint, duplicates_not_allowed: bigint, flags_missing: bigint>"
)
JUDGED = f"struct<file: string, readable: boolean, findings: array<{FINDING}>, tally: {TALLY}>"


def judge_bytes(path: str, content: bytes) -> dict[str, Any]:
    """The judgement of one file as a row of ``JUDGED``; an unreadable file is a finding of the rule ``unfinished``."""
    name = local_name(path)
    try:
        history = History(parse_log(bytes(content), name))
    except LogError as error:
        finding = Finding(PurePosixPath(name).name, "unfinished", FindingOutcome.FAILED, detail=str(error))
        return {"file": name, "readable": False, "findings": [_row(finding)], "tally": None}
    findings = [_row(finding) for finding in judge_history(history)]
    return {"file": name, "readable": True, "findings": findings, "tally": _row(tally(history))}


def local_name(path: str) -> str:
    """A file's path without the ``file:`` that Spark puts in front."""
    return re.sub(r"^file:(//)?(?=/)", "", path)


def _row(struct: msgspec.Struct) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(struct)
    return row
