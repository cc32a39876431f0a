"""``python -m spark_analysis LOGDIR``: judge a run's delivery logs; also ``spark-submit spark_analysis/__main__.py``.

Exit status: 0 nothing failed, 1 a rule failed, 2 bad input (no logs, foreign files, no Java).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

if __package__ in (None, ""):  # submitted as a file: the package is its directory
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_analysis.java import JavaMissing
from spark_analysis.judge import Verdict, judge_run
from spark_analysis.log import LogError
from spark_analysis.rules import Finding, FindingOutcome
from spark_analysis.session import SparkFailed

COLOURS = {
    FindingOutcome.PASSED: "green",
    FindingOutcome.FAILED: "bold red",
    FindingOutcome.INDETERMINATE: "yellow",
    FindingOutcome.NOT_APPLICABLE: "dim",
}


def main(
    log_directory: Annotated[Path, typer.Argument(metavar="LOGDIR", help="Directory with *.delivery.jsonl files.")],
    output: Annotated[Path | None, typer.Option(help="Keep events and findings as Parquet in this directory.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show what passed, too.")] = False,
) -> None:
    """Judge all delivery logs of a run with Spark."""
    try:
        verdict = judge_run(log_directory, output)
    except (LogError, JavaMissing, SparkFailed) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    console = Console()
    shown = [finding for finding in verdict.findings if every or finding.outcome is not FindingOutcome.PASSED]
    if shown:
        console.print(findings_table(shown))
    console.print(tallies_table(verdict))
    console.print(summary(verdict))
    raise typer.Exit(exit_status(verdict))


def exit_status(verdict: Verdict) -> int:
    """1 if a rule failed on a log, else 2 if a file was no log at all, else 0."""
    names = {Path(path).name for path in verdict.unreadable}
    if any(finding.scenario not in names for finding in verdict.failed):
        return 1
    return 2 if names else 0


def findings_table(findings: list[Finding]) -> Table:
    """The findings, a row each."""
    table = Table(title="Findings")
    for column in ("scenario", "rule", "outcome", "mode", "requirements", "what the log shows"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        colour = COLOURS[finding.outcome]
        table.add_row(
            escape(finding.scenario),
            finding.rule,
            f"[{colour}]{finding.outcome}[/]",
            finding.mode,
            " ".join(finding.requirements),
            escape(finding.detail),
        )
    return table


def tallies_table(verdict: Verdict) -> Table:
    """The counts, a row for each acknowledge mode, fault and failover profile."""
    table = Table(title="Messages")
    counted = ("scenarios", "confirmed", "unknown", "received", "lost", "repeats", "forbidden", "unflagged")
    for column in ("mode", "fault", "failover"):
        table.add_column(column, overflow="fold")
    for column in counted:
        table.add_column(column, justify="right", overflow="fold")
    for tally in verdict.tallies:
        counts = (
            tally.scenarios,
            tally.confirmed,
            tally.indeterminate,
            tally.received,
            tally.lost,
            tally.duplicates_allowed,
            tally.duplicates_not_allowed,
            tally.flags_missing,
        )
        table.add_row(tally.mode, tally.fault, tally.failover, *map(str, counts))
    return table


def summary(verdict: Verdict) -> str:
    """One line: how many findings of each outcome, and what it took."""
    counts = [
        f"[{COLOURS[outcome]}]{number} {outcome}[/]"
        for outcome in FindingOutcome
        if (number := sum(finding.outcome is outcome for finding in verdict.findings))
    ]
    return f"{', '.join(counts)} · Spark {verdict.spark_version}, {verdict.seconds:.1f} s"


if __name__ == "__main__":
    typer.run(main)
