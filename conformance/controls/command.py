"""`jms-conformance controls`: run all negative controls and print the detection matrix."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from conformance.controls import CONTROLS, Control
from conformance.controls.trial import Trial, clean_trial, put_to_trial
from conformance.errors import UserError


def controls(
    names: Annotated[list[str] | None, typer.Argument(help="Only these controls.")] = None,
    workers: Annotated[int, typer.Option(help="Trials at the same time.")] = min(2, os.cpu_count() or 1),
    show: Annotated[bool, typer.Option("--list", help="List the controls, run nothing.")] = False,
) -> None:
    """Arm each defect of the reference in turn: the requirement that it violates must catch it.

    Ends with status 0 only if every control was caught and the reference without defects passes.
    """
    chosen = _choose(names)
    console = Console()
    if show:
        console.print(_listing(chosen))
        return
    trials, clean = _run(chosen, workers, console)
    console.print(_matrix(trials))
    for record in (*clean.caught_by, *clean.other):
        console.print(f"clean reference: {record.test}: {record.outcome}: {record.message[:300]}", markup=False)
    if clean.problem:
        console.print(f"clean reference: {clean.problem}", markup=False)
    caught = sum(trial.caught for trial in trials)
    typer.echo(f"caught {caught} of {len(trials)}, clean reference: {'passed' if clean.clean else 'FAILED'}")
    if caught < len(trials) or not clean.clean:
        raise typer.Exit(1)


def _choose(names: list[str] | None) -> list[Control]:
    known = {control.name: control for control in CONTROLS}
    if unknown := sorted(set(names or ()) - set(known)):
        raise UserError(f"There is no control {unknown[0]!r}. `jms-conformance controls --list` shows all.")
    return [known[name] for name in names] if names else list(CONTROLS)


def _run(chosen: list[Control], workers: int, console: Console) -> tuple[list[Trial], Trial]:
    requirements = sorted({name for control in chosen for name in control.requirement_ids})
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(workers) as pool:
        task = progress.add_task("negative controls", total=len(chosen) + 1)

        def one(control: Control | None) -> Trial:
            trial = clean_trial(requirements) if control is None else put_to_trial(control)
            progress.advance(task)
            if control is not None:
                progress.print(f"{'caught' if trial.caught else 'MISSED'}  {control.name}", markup=False)
            return trial

        clean, *trials = pool.map(one, [None, *chosen])
    return trials, clean


def _listing(chosen: list[Control]) -> Table:
    table = Table("control", "side", "violates", "what is wrong", title="Negative controls")
    for control in chosen:
        table.add_row(control.name, control.side, ", ".join(control.requirement_ids), control.sentence)
    return table


def _matrix(trials: list[Trial]) -> Table:
    table = Table("control", "violates", "caught", "by", title="Detection matrix")
    for trial in trials:
        assert trial.control is not None
        by = sorted({record.rule or record.test.rpartition("::")[2] for record in trial.caught_by})
        verdict = "[green]yes[/green]" if trial.caught else "[bold red]NO[/bold red]"
        why = ", ".join(by) or trial.problem or f"{trial.ran} results, none failed"
        table.add_row(trial.control.name, ", ".join(trial.control.requirement_ids), verdict, why)
    return table
