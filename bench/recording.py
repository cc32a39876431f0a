"""What recording costs: one send loop through a real loopback socket, with and without the delivery log.

    python bench/recording.py [--messages N] [--size BYTES] [--rounds N]

The peer is the same loop without recording. Each message is written to an echo server in a process of its own and its
reply awaited; recorded, a send is an attempt and its end, so two events a message. Two servers answer: one at once,
which no broker does and which shows the bare cost in microseconds, and one that has the message on disk first
(fdatasync), as a broker must before it confirms a persistent send. The two loops alternate round by round, so that both
meet the same machine, and the ratio of their medians is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spark_analysis.log import LogWriter
from spark_analysis.schema import Header, Kind, Outcome


def serve(listener: socket.socket, journal: str | None) -> None:
    """Echo one connection after another, forever; with a journal, only what is on disk."""
    disk = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if journal else -1
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while data := connection.recv(1 << 16):
                if disk >= 0:
                    os.write(disk, data)
                    os.fdatasync(disk)
                connection.sendall(data)


def exchange(connection: socket.socket, body: bytes) -> None:
    """Send a body and wait until all of it came back."""
    connection.sendall(body)
    missing = len(body)
    while missing:
        missing -= len(connection.recv(missing))


def plain(connection: socket.socket, messages: int, body: bytes) -> None:
    """The peer: no log."""
    for _ in range(messages):
        exchange(connection, body)


def recorded(connection: socket.socket, messages: int, body: bytes, log: LogWriter) -> None:
    """The same with an attempt and an end in the log for each message."""
    digest = hashlib.blake2b(body, digest_size=8).hexdigest()
    where = {"connection": "c1", "session": "s1", "mode": "AUTO", "endpoint": "p1", "destination": "queue"}
    for number in range(messages):
        fields = {**where, "message": f"uid-{number}", "sequence": number, "digest": digest}
        op = log.record(kind=Kind.SEND, outcome=Outcome.ATTEMPT, **fields)
        exchange(connection, body)
        log.record(kind=Kind.SEND, outcome=Outcome.OK, op=op, connection="c1", session="s1")


def timed(address: tuple[str, int], loop: Callable[[socket.socket], None]) -> float:
    """Seconds that a loop takes on a connection of its own, after a short warm-up of the connection."""
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain(connection, 50, b"warm")
        started = time.perf_counter()
        loop(connection)
        return time.perf_counter() - started


def measure(messages: int, size: int, rounds: int, *, durable: bool) -> tuple[list[float], list[float]]:
    """Messages a second, round by round, without and with recording."""
    body = os.urandom(size)
    without: list[float] = []
    with_log: list[float] = []
    header = Header(1, "bench", "recording", "bench", (), "none", "echo", "NF", "none", 0, 0)
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryDirectory() as scratch:
        journal = str(Path(scratch, "journal")) if durable else None
        server = multiprocessing.get_context("fork").Process(target=serve, args=(listener, journal), daemon=True)
        server.start()
        address = listener.getsockname()
        try:
            for number in range(rounds + 1):  # the first round warms up and is not counted
                with LogWriter(Path(scratch, f"{number}.delivery.jsonl"), header) as log:
                    pair = (
                        timed(address, lambda c: plain(c, messages, body)),
                        timed(address, lambda c, log=log: recorded(c, messages, body, log)),
                    )
                if number:
                    without.append(messages / pair[0])
                    with_log.append(messages / pair[1])
        finally:
            server.kill()
            server.join()
    return without, with_log


def report(results: dict[str, tuple[list[float], list[float]]]) -> Table:
    """Both series side by side for each server, the ratio of their medians and what one event costs."""
    table = Table(title="send loop, messages per second: median (lowest to highest)")
    for column in ("server", "without recording", "with recording", "ratio of medians", "µs a message"):
        table.add_column(column, justify="left" if column == "server" else "right")
    for server, (without, with_log) in results.items():
        medians = statistics.median(without), statistics.median(with_log)
        cells = [f"{statistics.median(s):,.0f} ({min(s):,.0f} to {max(s):,.0f})" for s in (without, with_log)]
        cost = 1e6 / medians[1] - 1e6 / medians[0]
        table.add_row(server, *cells, f"{medians[1] / medians[0]:.3f}", f"{cost:.1f}")
    return table


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description="What the delivery log costs a send loop.")
    parser.add_argument("--messages", type=int, default=3000, help="messages a round (default %(default)s)")
    parser.add_argument("--size", type=int, default=256, help="body size in bytes (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds (default %(default)s)")
    arguments = parser.parse_args()
    for name in ("messages", "size", "rounds"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1")
    sizes = (arguments.messages, arguments.size, arguments.rounds)
    results = {
        "answers at once": measure(*sizes, durable=False),
        "answers when on disk": measure(*sizes, durable=True),
    }
    Console().print(report(results))


if __name__ == "__main__":
    main()
