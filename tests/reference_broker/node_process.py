"""A real node as a child process, and a blocking core client that waits for nothing longer than a deadline."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from reference_broker.broker.commands import (
    Acknowledge,
    Answer,
    ClientCommand,
    Connect,
    Deliver,
    Done,
    OpenConsumer,
    OpenSession,
    Send,
)
from reference_broker.broker.envelope import Address, Envelope
from reference_broker.wire.core.packets import BrokerPacket, ClientPacket, PacketReader, encode

DEADLINE = 30.0
MODULE = [sys.executable, "-m", "reference_broker"]


class NodeProcess:
    """One node; events are read from its standard output."""

    def __init__(self, store: Path, name: str = "a", *options: str) -> None:
        argv = [*MODULE, "node", "--name", name, "--store", str(store), "--core", "127.0.0.1:0", *options]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.listening = self.event("listening")

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listening["core"]
        return host, port

    def event(self, name: str) -> dict[str, Any]:
        """The next event of that name; fails if the node ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == name:
                return event
        assert self.process.stderr is not None
        raise AssertionError(f"the node ended before it was {name}: {self.process.stderr.read()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(DEADLINE)

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


class CoreClient:
    """One transport with one session `s`."""

    def __init__(self, address: tuple[str, int], uid: str = "c", heartbeat_ms: int = 0) -> None:
        self.socket = socket.create_connection(address, DEADLINE)
        self._reader: PacketReader[BrokerPacket] = PacketReader(BrokerPacket)
        self._packets: list[Answer] = []
        self._number = 0
        self.deliveries: list[Deliver] = []
        self.greeting = self.ask(Connect(request=1, connection=uid, heartbeat_ms=heartbeat_ms))
        if not self.refused:
            self.ask(OpenSession(request=1, session="s"))

    @property
    def refused(self) -> bool:
        return type(self.greeting).__name__ == "Refused"

    def say(self, *commands: ClientCommand) -> None:
        frames = []
        for command in commands:
            self._number += 1
            frames.append(encode(ClientPacket(self._number, 0, command)))
        self.socket.sendall(b"".join(frames))

    def hear(self) -> Answer:
        """The next numbered answer; EOFError at the end of the transport."""
        until = time.monotonic() + DEADLINE
        while not self._packets:
            if time.monotonic() > until:
                raise TimeoutError("no answer")
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("the node closed the transport")
            self._packets += [packet.body for packet in self._reader.feed(data) if packet.id]
        return self._packets.pop(0)

    def ask(self, command: ClientCommand) -> Answer:
        """Say it and return its answer; deliveries that come before are kept."""
        self.say(command)
        while isinstance(answer := self.hear(), Deliver):
            self.deliveries.append(answer)
        return answer

    def send(self, body: bytes, queue: str = "q", transaction: str = "", sequence: int = 0) -> None:
        envelope = Envelope(Address(queue), body=body)
        producer = "p" if sequence else ""
        command = Send(
            request=1,
            session="s",
            envelope=envelope,
            transaction=transaction,
            producer=producer,
            sequence=sequence,
        )
        assert isinstance(self.ask(command), Done)

    def consume(self, queue: str = "q", credit: int = 100_000) -> None:
        self.ask(OpenConsumer(request=1, session="s", consumer="k", source=Address(queue), credit=credit))

    def receive(self, count: int) -> list[Deliver]:
        while len(self.deliveries) < count:
            answer = self.hear()
            assert isinstance(answer, Deliver)
            self.deliveries.append(answer)
        taken, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        return taken

    def acknowledge(self, *deliveries: Deliver, transaction: str = "") -> None:
        numbers = tuple(delivery.delivery for delivery in deliveries)
        command = Acknowledge(request=1, session="s", deliveries=numbers, transaction=transaction)
        assert isinstance(self.ask(command), Done)

    def reset(self) -> None:
        """Cut the transport with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.socket.close()

    def __enter__(self) -> CoreClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
