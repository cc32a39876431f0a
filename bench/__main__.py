"""`python -m bench [NAME ...]`: run benchmarks and print one table each.

Exit status 0 if all ran, 1 if one could not, 2 for a wrong command line, 130 after Ctrl-C.
"""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Annotated

import typer
from rich.console import Console

from bench.comparison import BenchmarkError, Result, show
from fixtures.cluster import ClusterError
from fixtures.nodes import NodeError
from fixtures.provision import ProgramMissing
from reference_broker.jms import JMSException

BENCHMARKS = {
    "recording": "what the delivery log costs the reference client",
    "throughput": "STOMP messages a second of each broker",
    "failover": "from the kill of the live node to the first delivery of the backup",
    "valve": "what the failover engine costs a send (VLV-19)",
}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", show_default=False)] = None,
    scale: Annotated[float, typer.Option(min=0.001, max=100, help="Factor on the counts; 0.02 is a quick try.")] = 1.0,
) -> None:
    """Compare side by side with a peer in one run; without a NAME, everything.

    NAME is recording, throughput, failover or valve. What is started listens on the loopback interface only and is
    ended with the run.
    """
    console = Console()
    unknown = sorted(set(names or ()) - set(BENCHMARKS))
    if unknown:
        raise typer.BadParameter(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    failed = False
    for name in names or BENCHMARKS:
        console.print(f"{name}: {BENCHMARKS[name]} ...", style="dim")
        try:
            result: Result = import_module(f"bench.{name}").measure(scale)
        except (ClusterError, NodeError, ProgramMissing, JMSException, BenchmarkError) as error:
            console.print(f"{name} could not be measured: {error}", style="bold red")
            failed = True
        else:
            show(result, console)
    raise typer.Exit(1 if failed else 0)


def main() -> None:
    """SIGTERM ends it as Ctrl-C does: whatever was started is stopped on the way out."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
