"""`jms-conformance certify`: run the chapters of a certification profile against a broker and write its certificate."""

from __future__ import annotations

import datetime as dt
import shlex
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from adapters.registry import adapter_class
from adapters.spi import AdapterError
from conformance import certificate as certificates
from conformance.catalogue import load
from conformance.certificate import Certificate
from conformance.certification.judging import make_certificate
from conformance.certification.profiles import certification_profile
from conformance.certification.running import Output, RunFailed, Step, run_chapters
from conformance.certification.termination import interrupted_once
from conformance.errors import UserError
from conformance.outcomes import ExitStatus, Outcome, Waiver, read_waivers
from conformance.record import RunResults
from conformance.report import write_report
from fixtures.definition import load_definition
from fixtures.definition_errors import DefinitionError
from fixtures.proxy import CannotObtain, refuse_unusable_server
from spark_analysis.java import JavaMissing, find_java

GREEN = (Outcome.PASSED, Outcome.NOT_APPLICABLE, Outcome.WAIVED)
EXIT_INTERRUPTED = 130
"""What shells say of a program that Ctrl-C ended."""


def certify(
    *,
    broker: Annotated[str, typer.Option(help="Name of a broker definition, or its TOML file.")] = "reference",
    adapter: Annotated[str | None, typer.Option(help="Client API: core, stomp. Default: the definition's.")] = None,
    profile: Annotated[str, typer.Option(help="Certification profile: core or full.")] = "core",
    output: Annotated[Path | None, typer.Option(help="Directory of all results. Default: runs/BROKER-ADAPTER.")] = None,
    failover: Annotated[list[str] | None, typer.Option(help="Failover profile RC or NF. Default: as claimed.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything that is chosen at random.")] = 1,
    workers: Annotated[int, typer.Option("--workers", "-n", min=1, help="Test processes at the same time.")] = 2,
    proxy: Annotated[str, typer.Option(help="Fault proxy: auto, or embedded for the stand-in.")] = "auto",
    waivers: Annotated[Path | None, typer.Option(help="TOML file of waivers.")] = None,
) -> None:
    """Certify a broker through faults: report.html, junit.xml, certificate.json, and an exit status to gate on.

    0: every MUST of the profile passed. 1: one failed. 2: something given cannot be used. 3: no verdict was reached.
    """
    console = Console()
    chosen = _check(broker, adapter, profile, failover)
    granted = read_waivers(waivers, load()) if waivers else ()
    place = Output(output or Path("runs") / f"{chosen[0]}-{chosen[1]}")
    options = ["--broker", broker, "--adapter", chosen[1], "--profile", profile, "--seed", str(seed), "--proxy", proxy]
    for name in failover or ():
        options += ["--failover", name]
    try:
        with interrupted_once():
            certificate = _certify(place, options, workers, granted, console)
    except KeyboardInterrupt:
        _complain("interrupted: everything that was started has been ended; there is no certificate")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except RunFailed as failure:
        _complain(str(failure))
        raise typer.Exit(ExitStatus.NO_VERDICT) from None
    _summarise(certificate, place, console)
    raise typer.Exit(certificate.exit_status)


def _certify(
    place: Output, options: list[str], workers: int, waivers: Sequence[Waiver], console: Console
) -> Certificate:
    """Run, judge and write; what does not come to its end leaves no certificate."""
    started = dt.datetime.now(dt.UTC)
    replay = shlex.join(["jms-conformance", "certify", *options])
    with place.prepared():
        results = _run(place, options, workers, console)
        certificate = make_certificate(results, waivers, started, replay, place.logs)
        certificate = certificates.write(certificate, place.certificate)
        write_report(certificate, place.report)
    return certificate


def _complain(what: str) -> None:
    with suppress(OSError):  # nobody listens any more: a terminal that was closed
        Console(stderr=True, soft_wrap=True).print(f"jms-conformance: {what}", markup=False, highlight=False)


def _check(broker: str, adapter: str | None, profile: str, failover: list[str] | None) -> tuple[str, str]:
    """Everything that can be known to be wrong before anything is started; the broker's and the adapter's name."""
    certification_profile(profile)
    for name in failover or ():
        if name not in ("RA", "RC", "NF"):
            raise UserError(f"There is no failover profile {name!r}; there are RA, RC and NF.")
    try:
        definition = load_definition(broker)
        chosen = adapter or definition.default_adapter
        if chosen not in definition.adapters:
            raise UserError(f"{definition.name} is not reached by adapter {chosen!r}, but by {definition.adapters}.")
        adapter_class(chosen)
        find_java()
        refuse_unusable_server()
    except (DefinitionError, AdapterError, JavaMissing, CannotObtain) as error:
        raise UserError(str(error)) from error
    return definition.name, chosen


def _run(place: Output, options: list[str], workers: int, console: Console) -> RunResults:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        bad = 0

        def told(step: Step) -> None:
            nonlocal bad
            if "total" in step:
                progress.update(task, total=step["total"], description="testing")
            if "test" in step:
                bad += step["outcome"] not in ("passed", "not-applicable")
                progress.update(task, advance=1, description=f"testing ({bad} not passed)" if bad else "testing")
            if "judging" in step:
                progress.update(task, description="Spark judges the delivery logs", total=None)

        return run_chapters(place, options, workers, told)


def _summarise(certificate: Certificate, place: Output, console: Console) -> None:
    met = [outcome for outcome in Outcome if certificate.count(outcome)]
    table = Table("group", *(str(outcome) for outcome in met), title=_title(certificate))
    for group in dict.fromkeys(result.group for result in certificate.results):
        counts = [sum(r.outcome is o for r in certificate.results if r.group == group) for o in met]
        table.add_row(group, *(str(count) if count else "" for count in counts))
    console.print(table)
    for result in certificate.results:
        if result.outcome not in GREEN:
            short = textwrap.shorten(result.detail, 300, placeholder=" ...")
            console.print(f"{result.id} {result.outcome}: {short}", markup=False, highlight=False)
    for note in certificate.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for problem in certificate.problems:
        console.print(problem, markup=False)
    for tally in certificate.tallies:
        if tally.lost or tally.duplicates_not_allowed:
            wrong = f"{tally.lost} lost, {tally.duplicates_not_allowed} duplicated"
            console.print(f"{tally.mode} under {tally.fault}: {wrong}")
    console.print(f"{place.report}", soft_wrap=True)
    style = "bold green" if certificate.exit_status == 0 else "bold red"
    console.print(f"{certificate.broker} through {certificate.adapter}: {certificate.verdict}", style=style)


def _title(certificate: Certificate) -> str:
    return f"{certificate.broker}, adapter {certificate.adapter}, profile {certificate.certification_profile}"
