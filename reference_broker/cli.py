"""`jms-conformance broker ...`: start a node or a pair by hand.

A run of the suite starts hundreds of nodes, and how fast one serves is part of what it waits for: so a node imports
nothing that it does not need. argparse starts in a tenth of the time that typer takes, and the modules of a node or a
pair are imported only when one is to run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

SUMMARY = "Start nodes of the reference broker by hand."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jms-conformance broker", description=SUMMARY)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _describe_node(
        _command(commands, "node", "Run one node until it is stopped; its events are JSON lines on standard output.")
    )
    _describe_pair(_command(commands, "pair", "Run a live node and its backup on one store until Ctrl-C or SIGTERM."))
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    command.add_argument(
        "--defect", metavar="NAME", action="append", help="Arm a deliberate defect (negative controls); repeatable."
    )
    return command


def _describe_node(node: argparse.ArgumentParser) -> None:
    option = node.add_argument
    option("--store", type=Path, required=True, help="Directory of the store; shared by the nodes of a pair.")
    option("--name", default="node", help="How the node calls itself (default: node).")
    option(
        "--core",
        metavar="HOST:PORT",
        help="Listen for core clients; port 0: any (default: 127.0.0.1:0 if --stomp is not given).",
    )
    option("--stomp", metavar="HOST:PORT", help="Listen for STOMP clients.")
    option(
        "--ha",
        choices=("none", "shared-store"),
        default="none",
        help="shared-store: wait as backup while another node is live.",
    )
    option("--failover-on-shutdown", action="store_true", help="An orderly stop hands over to the backup.")
    option("--heartbeat", type=_milliseconds, default=1000, metavar="MS", help="Longest silence (default: 1000).")
    node.set_defaults(run=_run_node)


def _describe_pair(pair: argparse.ArgumentParser) -> None:
    pair.add_argument("--store", type=Path, help="Directory of the store; by default one that is removed.")
    pair.set_defaults(run=_run_pair)


def _milliseconds(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of milliseconds, 0 or more")
    return int(text)


def _run_node(chosen: argparse.Namespace) -> None:
    from reference_broker.defects import UnknownDefect  # noqa: PLC0415
    from reference_broker.server import Bind, NodeConfig, NodeError, run_node  # noqa: PLC0415

    try:
        wires = (("core", chosen.core), ("stomp", chosen.stomp))
        listen = {wire: Bind.parse(text) for wire, text in wires if text}
        run_node(
            NodeConfig(
                name=chosen.name,
                store=chosen.store,
                listen=listen or {"core": Bind()},
                shared_store=chosen.ha == "shared-store",
                failover_on_shutdown=chosen.failover_on_shutdown,
                heartbeat_ms=chosen.heartbeat,
                defects=tuple(chosen.defect or ()),
            )
        )
    except (NodeError, UnknownDefect, ValueError) as error:
        _give_up(str(error))


def _run_pair(chosen: argparse.Namespace) -> None:
    from reference_broker.pair import PairError, run_pair  # noqa: PLC0415

    try:
        run_pair(chosen.store, tuple(chosen.defect or ()))
    except PairError as error:
        _give_up(str(error))


def _give_up(reason: str) -> NoReturn:
    sys.stderr.write(f"jms-conformance broker: {reason}\n")
    raise SystemExit(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry of `python -m reference_broker`, and of `jms-conformance broker` with what follows that."""
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help()
        raise SystemExit(2)
    chosen = parser.parse_args(arguments)
    chosen.run(chosen)
