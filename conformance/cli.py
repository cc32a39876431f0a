"""`jms-conformance`: the command line. Each command lives beside what it commands; here they come together."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import NamedTuple

import typer
from rich.console import Console

from conformance.errors import UserError
from reference_broker import cli as broker_cli

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
"""What shells say of a program that Ctrl-C ended."""


class Part(NamedTuple):
    """A command, or a group of them, that another module of the suite brings along."""

    name: str
    module: str
    attribute: str


BROKER = "broker"
PARTS = (
    Part("catalogue", "conformance.catalogue.command", "catalogue"),
    Part("certify", "conformance.certify", "certify"),
    Part("compare", "conformance.report.compare", "compare"),
    Part("controls", "conformance.controls.command", "controls"),
    Part("doctor", "conformance.doctor", "doctor"),
)


def application(only: str | None = None) -> typer.Typer:
    """The command line with all parts, or with the one named `only`, since some take long to import."""
    app = typer.Typer(
        name="jms-conformance",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def commands() -> None:
        """When things break, does every message still obey JMS?"""

    for part in PARTS:
        if only in {None, part.name} and _exists(part.module):
            app.command(part.name)(getattr(importlib.import_module(part.module), part.attribute))
    if only in {None, BROKER}:
        settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        app.command(BROKER, help=broker_cli.SUMMARY, context_settings=settings)(_broker)
    return app


def _broker(context: typer.Context) -> None:
    broker_cli.main(context.args)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    """Run the command line; a `UserError` becomes one message and exit status 2, Ctrl-C status 130."""
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        application(named if named in {BROKER, *(part.name for part in PARTS)} else None)()
    except UserError as error:
        Console(stderr=True, soft_wrap=True).print(f"jms-conformance: {error}", markup=False, highlight=False)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:  # while the command was still being loaded
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
