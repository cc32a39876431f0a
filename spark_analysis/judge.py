"""The verdict on a run: one Spark session reads and judges all of its delivery logs, and counts losses and duplicates.

The logs are spread over Spark's partitions as whole files; ``spark_analysis.kernel`` judges each where it lies, and
Spark SQL adds the counts up by acknowledge mode, fault and failover profile.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from spark_analysis.kernel import JUDGED, judge_bytes
from spark_analysis.log import LogError
from spark_analysis.rules import RULES, Finding, FindingOutcome
from spark_analysis.schema import LOG_SUFFIX, Event
from spark_analysis.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

TALLIES = """
    SELECT mode, fault, failover, count(*) AS scenarios,
           sum(confirmed) AS confirmed, sum(indeterminate) AS indeterminate, sum(received) AS received,
           sum(lost) AS lost, sum(duplicates_allowed) AS duplicates_allowed,
           sum(duplicates_not_allowed) AS duplicates_not_allowed, sum(flags_missing) AS flags_missing
    FROM (SELECT tally.* FROM {judged} WHERE readable)
    GROUP BY mode, fault, failover
    ORDER BY mode, fault, failover
"""

EVENT = (
    "position BIGINT, at_ns BIGINT, kind STRING, outcome STRING, op BIGINT, connection STRING, session STRING, "
    "mode STRING, endpoint STRING, destination STRING, message STRING, sequence BIGINT, digest STRING, "
    "persistent BOOLEAN, priority INT, expires_at_ms BIGINT, wall_ms BIGINT, redelivered BOOLEAN, delivery_count INT, "
    "transaction STRING, messages ARRAY<STRING>, error STRING, code STRING, epoch INT, fault STRING, detail STRING"
)


class Tally(msgspec.Struct, frozen=True):
    """Counts of messages over all scenarios of one acknowledge mode, fault and failover profile."""

    mode: str
    fault: str
    failover: str
    scenarios: int
    confirmed: int
    indeterminate: int
    received: int
    lost: int
    duplicates_allowed: int
    duplicates_not_allowed: int
    flags_missing: int


class Verdict(msgspec.Struct, frozen=True):
    """What Spark says of a run. ``unreadable`` names the files that are no delivery logs; each is a finding, too."""

    findings: tuple[Finding, ...]
    tallies: tuple[Tally, ...]
    spark_version: str
    seconds: float  # wall time with the start of Spark
    unreadable: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that fail."""
        return tuple(finding for finding in self.findings if finding.outcome is FindingOutcome.FAILED)


def judge_run(log_directory: Path, output: Path | None = None) -> Verdict:
    """Judge all delivery logs below a directory, and keep events and findings as Parquet in ``output`` if given.

    Raises ``LogError`` if there is no log, ``JavaMissing`` or ``SparkFailed`` if Spark cannot run.
    """
    started = time.monotonic()
    require_logs(log_directory)
    with spark_session() as spark:
        verdict = judge_with(spark, log_directory, output)
    return msgspec.structs.replace(verdict, seconds=time.monotonic() - started)


def require_logs(directory: Path) -> None:
    """Raise ``LogError`` unless there is a delivery log somewhere below ``directory``."""
    if not directory.is_dir():
        raise LogError(f"{directory}: no such directory of delivery logs")
    if next(directory.rglob(f"*{LOG_SUFFIX}"), None) is None:
        raise LogError(f"{directory}: no delivery log (*{LOG_SUFFIX}) in it, so there is nothing to judge")


def judge_with(spark: SparkSession, log_directory: Path, output: Path | None = None) -> Verdict:
    """As ``judge_run``, in a session that the caller owns."""
    from pyspark.sql.functions import udf  # noqa: PLC0415 - slow to import, only for judging

    started = time.monotonic()
    kernel = udf(judge_bytes, JUDGED, useArrow=False)
    judged = _logs(spark.read.format("binaryFile"), log_directory)
    judged = judged.select(kernel("path", "content").alias("judged")).select("judged.*").persist()
    try:
        rows = [row.asDict(recursive=True) for row in judged.select("file", "readable", "findings").collect()]
        tallies = [Tally(**row.asDict()) for row in spark.sql(TALLIES, judged=judged).collect()]
        if output is not None:
            _keep(spark, judged, log_directory, output)
    finally:
        judged.unpersist()
    findings = [msgspec.convert(finding, Finding) for row in rows for finding in row["findings"]]
    findings += _named_twice([row["findings"][0]["scenario"] for row in rows if row["readable"]])
    unreadable = tuple(sorted(row["file"] for row in rows if not row["readable"]))
    return Verdict(_sorted(findings), tuple(tallies), spark.version, time.monotonic() - started, unreadable)


def _logs(reader: DataFrameReader, log_directory: Path) -> DataFrame:
    """All logs below the directory, spread over the cores."""
    reader = reader.option("recursiveFileLookup", "true").option("pathGlobFilter", f"*{LOG_SUFFIX}")
    literal = re.sub(r"([\\\[\]{}*?])", r"\\\1", str(log_directory.resolve()))  # Spark reads a path as a pattern
    return reader.load(f"file://{literal}")


def _keep(spark: SparkSession, judged: DataFrame, log_directory: Path, output: Path) -> None:
    """Write findings and events as Parquet, for questions that no rule asks."""
    from pyspark.sql.functions import coalesce, col, lit  # noqa: PLC0415

    columns = [col("_metadata.file_path").alias("log")]
    for field in msgspec.structs.fields(Event):  # the log leaves out what has its default
        value = col(field.name)
        simple = isinstance(field.default, str | int | bool)
        columns.append(coalesce(value, lit(field.default)).alias(field.name) if simple else value)
    lines = _logs(spark.read.schema(EVENT).format("json"), log_directory)
    events = lines.where("position IS NOT NULL").select(*columns)
    target = f"file://{output.resolve()}"
    judged.selectExpr("inline(findings)").write.mode("overwrite").parquet(f"{target}/findings.parquet")
    events.write.mode("overwrite").parquet(f"{target}/events.parquet")


def _named_twice(scenarios: list[str]) -> list[Finding]:
    return [
        Finding(
            scenario,
            "unfinished",
            FindingOutcome.FAILED,
            detail=f"{count} delivery logs claim this scenario; its name must be unique in a run",
        )
        for scenario, count in Counter(scenarios).items()
        if count > 1
    ]


def _sorted(findings: list[Finding]) -> tuple[Finding, ...]:
    order = {rule.name: place for place, rule in enumerate(RULES)}
    return tuple(sorted(findings, key=lambda finding: (finding.scenario, order[finding.rule])))
