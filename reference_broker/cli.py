"""`jms-conformance broker ...`: start a node or a pair by hand.

The node's modules are imported only when a node is to run, so that asking for help costs nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

broker_app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="Start nodes of the reference broker by hand."
)


@broker_app.callback()
def broker() -> None:
    """Start nodes of the reference broker by hand."""


@broker_app.command()
def node(
    *,
    store: Annotated[Path, typer.Option(help="Directory of the store; shared by the nodes of a pair.")],
    name: Annotated[str, typer.Option(help="How the node calls itself.")] = "node",
    core: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Listen for core clients; port 0: any.")] = None,
    stomp: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Listen for STOMP clients.")] = None,
    ha: Annotated[str, typer.Option(help="none, or shared-store: wait as backup while another node is live.")] = "none",
    failover_on_shutdown: Annotated[bool, typer.Option(help="An orderly stop hands over to the backup.")] = False,
    heartbeat: Annotated[int, typer.Option(min=0, metavar="MS", help="Longest silence towards clients.")] = 1000,
    defect: Annotated[list[str] | None, typer.Option(help="Arm a deliberate defect (negative controls).")] = None,
) -> None:
    """Run one node until it is stopped (SIGTERM or Ctrl-C); events are JSON lines on standard output."""
    from reference_broker.defects import UnknownDefect  # noqa: PLC0415
    from reference_broker.server import Bind, NodeConfig, NodeError, run_node  # noqa: PLC0415

    if ha not in ("none", "shared-store"):
        _give_up(f"--ha is none or shared-store, not {ha!r}")
    try:
        listen = {wire: Bind.parse(text) for wire, text in (("core", core), ("stomp", stomp)) if text}
        run_node(
            NodeConfig(
                name=name,
                store=store,
                listen=listen or {"core": Bind()},
                shared_store=ha == "shared-store",
                failover_on_shutdown=failover_on_shutdown,
                heartbeat_ms=heartbeat,
                defects=tuple(defect or ()),
            )
        )
    except (NodeError, UnknownDefect, ValueError) as error:
        _give_up(str(error))


@broker_app.command()
def pair(
    *,
    store: Annotated[Path | None, typer.Option(help="Directory of the store; by default one that is removed.")] = None,
    defect: Annotated[list[str] | None, typer.Option(help="Arm a deliberate defect (negative controls).")] = None,
) -> None:
    """Run a live node and its backup on one store until Ctrl-C or SIGTERM; shows their addresses."""
    from reference_broker.pair import PairError, run_pair  # noqa: PLC0415

    try:
        run_pair(store, tuple(defect or ()))
    except PairError as error:
        _give_up(str(error))


def _give_up(reason: str) -> NoReturn:
    sys.stderr.write(f"jms-conformance broker: {reason}\n")
    raise SystemExit(2)


def main() -> None:
    """Entry of `python -m reference_broker`."""
    broker_app()
