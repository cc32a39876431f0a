"""`jms-conformance catalogue`: what is required, and what shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from conformance.catalogue import Level, Profile, load
from conformance.catalogue.applicability import not_applicable
from conformance.catalogue.coverage import coverage
from conformance.catalogue.listing import Entry, entries, markdown, table
from conformance.errors import UserError


def catalogue(
    *,
    group: Annotated[list[str] | None, typer.Option("--group", "-g", help="Only this group, e.g. SND.")] = None,
    tier: Annotated[int | None, typer.Option(min=1, max=3, help="Only this tier (1 seeds, 2 JMS, 3 practice).")] = None,
    level: Annotated[Level | None, typer.Option(help="Only this level.")] = None,
    profile: Annotated[Profile | None, typer.Option(help="Mark what says nothing about this failover profile.")] = None,
    untested: Annotated[bool, typer.Option("--untested", help="Only what nothing tests.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list with every field.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="The page docs/catalogue.md.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write there instead of printing.")] = None,
) -> None:
    """List the requirements, and the tests and controls that show each."""
    whole = load()
    wanted = {name.upper() for name in group or ()}
    if unknown := sorted(wanted - set(whole.groups)):
        raise UserError(f"There is no group {unknown[0]!r}; the groups are {', '.join(whole.groups)}.")
    excused = {row.id: reason for row in whole if profile and (reason := not_applicable(row, profile, {}))}
    listed = entries(whole, coverage(whole), excused)

    def shown(entry: Entry) -> bool:
        return (
            (not wanted or entry.group in wanted)
            and (tier is None or entry.tier == tier)
            and (level is None or entry.level == level)
            and not (untested and entry.shown)
        )

    selected = [entry for entry in listed if shown(entry)]
    if as_json:
        _give(msgspec.json.format(msgspec.json.encode(selected), indent=2).decode() + "\n", output)
    elif as_markdown:
        if len(selected) != len(listed):
            raise UserError("--markdown gives the whole catalogue; leave the filters out.")
        _give(markdown(whole, listed), output)
    else:
        Console().print(table(selected))


def _give(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
