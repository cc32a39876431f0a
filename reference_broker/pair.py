"""A pair by hand: two node processes on one store, their addresses, and a clean end."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

STOP_SECONDS = 10.0
"""How long a node may take to end in order before it is killed."""
WIRES = ("core", "stomp")


class PairError(Exception):
    """A node did not start."""


class _Child:
    """One node as a child process; its events are read by a thread of their own."""

    def __init__(self, name: str, store: Path, defects: tuple[str, ...], console: Console, changed: Event) -> None:
        self.name = name
        self._console = console
        self._changed = changed
        argv = [sys.executable, "-m", "reference_broker", "node", "--name", name, "--store", str(store)]
        argv += ["--ha", "shared-store", "--failover-on-shutdown"]
        argv += [part for wire in WIRES for part in (f"--{wire}", "127.0.0.1:0")]
        argv += [part for defect in defects for part in ("--defect", defect)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise PairError(f"node {name} did not start (its reason stands above); exit status {self.process.wait()}")
        self.facts: dict[str, Any] = msgspec.json.decode(line)
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = msgspec.json.decode(line)
            epoch = f", epoch {event['epoch']}" if "epoch" in event else ""
            self._console.print(f"{self.name}: {event['event']}{epoch}", highlight=False)
        self._changed.set()

    def end(self) -> None:
        """Stop in order, by force if that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run_pair(store: Path | None, defects: tuple[str, ...]) -> None:
    """Start both nodes, show where they are, and stop them when told to; PairError if one does not start."""
    console = Console()
    changed, stopping = Event(), Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()
        changed.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    with ExitStack() as cleanup:
        directory = store or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="jms-conformance-pair-")))
        children: list[_Child] = []
        for name in ("a", "b"):
            children.append(_Child(name, directory, defects, console, changed))
            cleanup.callback(children[-1].end)
        _show(console, children, directory)
        while not stopping.is_set() and any(child.process.poll() is None for child in children):
            changed.wait(1.0)
            changed.clear()
    if not stopping.is_set():
        raise PairError("both nodes have ended")


def _show(console: Console, children: list[_Child], directory: Path) -> None:
    table = Table("node", "role", "process", *WIRES)
    for child in children:
        facts = child.facts
        addresses = ["{}:{}".format(*facts[wire]) for wire in WIRES]
        table.add_row(child.name, facts["role"], str(facts["pid"]), *addresses)
    console.print(table)
    for wire in WIRES:
        both = ",".join("{}:{}".format(*child.facts[wire]) for child in children)
        console.print(f"{wire}: {both}", highlight=False, soft_wrap=True)
    console.print(f"store: {directory}", highlight=False, soft_wrap=True)
    console.print("Ctrl-C stops both; kill the live one's process to see the other take over.", highlight=False)
