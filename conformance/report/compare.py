"""`jms-conformance compare`: requirement by run, from certificates alone, differences first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.certificate import Certificate, Result, read
from conformance.errors import UserError
from conformance.outcomes import Outcome
from conformance.report.page import OUTCOME_ORDER, WORDS, shares, template

STYLES = {
    Outcome.FAILED: "bold red",
    Outcome.HARNESS_FAILED: "magenta",
    Outcome.SETUP_FAILED: "magenta",
    Outcome.WARNING: "yellow",
    Outcome.WAIVED: "cyan",
    Outcome.PASSED: "green",
}


class Row(msgspec.Struct, frozen=True):
    """One requirement across the runs; None where a run's profile does not have it."""

    id: str
    level: str
    sentence: str
    results: tuple[Result | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs that both have it say different things."""
        return len({result.outcome for result in self.results if result is not None}) > 1


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Certificates, or run directories that hold one.")],
    *,
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page there.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also where all runs agree.")] = False,
) -> None:
    """Set several finished runs beside each other."""
    certificates = [read(run) for run in runs]
    names = run_names(certificates, runs)
    rows = compared(certificates)
    if html is not None:
        try:
            html.write_text(render(certificates, names, rows), encoding="utf-8")
        except OSError as error:
            raise UserError(f"The page cannot be written to {html}: {error.strerror}.") from error
        typer.echo(f"Written: {html}")
        return
    console = Console()
    differing = [row for row in rows if row.differs]
    console.print(_verdicts(certificates, names))
    console.print()
    console.print(_table(rows if everything else differing, names))
    console.print(f"{len(differing)} of {len(rows)} requirements differ.", highlight=False)


def compared(certificates: Sequence[Certificate]) -> list[Row]:
    """All requirements of all runs: those that differ first, then by worst outcome, else in catalogue order."""
    tables = [{result.id: result for result in certificate.results} for certificate in certificates]
    ids = dict.fromkeys(row_id for table in tables for row_id in table)
    rows = []
    for row_id in ids:
        results = tuple(table.get(row_id) for table in tables)
        first = next(result for result in results if result is not None)
        rows.append(Row(row_id, first.level, first.sentence, results))
    return sorted(rows, key=lambda row: (not row.differs, _worst(row)))


def run_names(certificates: Sequence[Certificate], runs: Sequence[Path]) -> list[str]:
    """Broker and adapter, with the run's own name where that alone does not tell them apart."""
    plain = [f"{certificate.broker} / {certificate.adapter}" for certificate in certificates]
    seen = Counter(plain)
    return [
        name if seen[name] == 1 else f"{name} ({(run if run.is_dir() else run.parent).resolve().name})"
        for name, run in zip(plain, runs, strict=True)
    ]


def render(certificates: Sequence[Certificate], names: Sequence[str], rows: Sequence[Row]) -> str:
    """The comparison as one page."""
    columns = [
        (name, certificate, shares(certificate.results)) for name, certificate in zip(names, certificates, strict=True)
    ]
    tallies = dict.fromkeys((t.mode, t.fault, t.failover) for c in certificates for t in c.tallies)
    by_run = [{(t.mode, t.fault, t.failover): t for t in certificate.tallies} for certificate in certificates]
    return template("compare.html.j2").render(
        columns=columns,
        differing=[row for row in rows if row.differs],
        agreeing=[row for row in rows if not row.differs],
        tallies=[(*key, [run.get(key) for run in by_run]) for key in tallies],
    )


def _worst(row: Row) -> int:
    return min(OUTCOME_ORDER.index(result.outcome) for result in row.results if result is not None)


def _verdicts(certificates: Sequence[Certificate], names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Run", "Profile", "Verdict"):
        table.add_column(column)
    for outcome in OUTCOME_ORDER:
        table.add_column(WORDS[outcome], justify="right")
    for certificate, name in zip(certificates, names, strict=True):
        counts = [str(certificate.count(outcome) or "") for outcome in OUTCOME_ORDER]
        table.add_row(name, certificate.certification_profile, certificate.verdict, *counts)
    return table


def _table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Requirement", no_wrap=True)
    table.add_column("Level")
    for name in names:
        table.add_column(name)
    for row in rows:
        cells = [Text("-") if r is None else Text(WORDS[r.outcome], STYLES.get(r.outcome, "dim")) for r in row.results]
        table.add_row(row.id, row.level, *cells)
    return table
