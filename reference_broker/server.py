"""A node: sockets, clock, store and role round the broker's state machine.

Everything but the store's writer runs in one event loop. What arrives during one turn of the loop is handled at
once, and the effects of all of it go to the gate together at the end of the turn; what leaves for one client is
one write. The roles are those of `ha.shared_store`. A node that is not live listens too, and refuses (HA-SS-12).

Standard output carries one JSON line for every event that a supervisor needs: `listening`, once, when the
listeners are bound; `serving`, with the epoch, when the node is live; `stopped`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from reference_broker.broker.commands import BrokerAnswer, Connect, Refusal, Refused
from reference_broker.broker.effects import HangUp, Output, Terms
from reference_broker.broker.engine import Broker
from reference_broker.defects import BROKER_DEFECTS, arm
from reference_broker.ha.shared_store import POLL_SECONDS, LockError, Role, StoreLock
from reference_broker.store.gate import Gate
from reference_broker.store.sqlite import SqliteStore, StoreError
from reference_broker.transport import LINGER_SECONDS, Transport
from reference_broker.wire.core.packets import MAX_FRAME
from reference_broker.wire.listener import Welcome, WireFactory

TICK_SECONDS = 0.05
"""How often time is told to the broker and silence is looked for."""
STALL_SECONDS = 1.0
"""A tick that is this late means that the node itself stood still: nobody is blamed for silence then."""
BACKLOG = 20_000
"""Rows waiting for the disk at which senders are not read until there are fewer."""

WIRES = {
    "core": "reference_broker.wire.core.listener:CoreConnection",
    "stomp": "reference_broker.wire.stomp.listener:StompConnection",
}


class NodeError(Exception):
    """The node cannot start; the text says why and what to do."""


class Bind(msgspec.Struct, frozen=True):
    """Where to listen; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Bind:
        """From HOST:PORT; ValueError otherwise."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{text!r} is no HOST:PORT")
        return cls(host.strip("[]"), int(port))


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is told at its start."""

    name: str = "node"
    store: Path
    listen: dict[str, Bind]
    """Wire to address."""
    shared_store: bool = False
    """Wait for the store's lock instead of giving up when another node holds it."""
    failover_on_shutdown: bool = False
    """An orderly stop hands over to a waiting node (HA-SS-10)."""
    heartbeat_ms: int = 1000
    frame_limit: int = MAX_FRAME
    defects: tuple[str, ...] = ()


class Node:
    """One node from its start to its end; `run` does it all."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._defects = arm(config.defects, BROKER_DEFECTS)
        self._role = Role()
        self._lock = StoreLock(config.store, config.name)
        self._store = SqliteStore(config.store)
        self._broker: Broker | None = None
        self._gate: Gate | None = None
        self._transports: dict[int, Transport] = {}
        self._numbers = 0
        self._birth = uuid.uuid4().hex[:12]
        self._servers: list[asyncio.Server] = []
        self._flush_due = False
        self._not_read: list[Transport] = []
        self._failure: Exception | None = None

    # -- life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Listen, become live or wait, serve until asked to stop; NodeError if that cannot be."""
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        try:
            self._lock.open()
            live = self._lock.try_take()
            if not live and not self._config.shared_store:
                note = self._lock.note()
                raise NodeError(
                    f"the store {self._config.store} is in use by node {note.node!r}, process {note.pid}; "
                    "stop it, or start this one with --ha shared-store to wait for it"
                )
            bound = {wire: await self._listen(wire, bind) for wire, bind in self._config.listen.items()}
            self._report("listening", role="live" if live else "backup", **bound)
            if live:
                self._take_up()
            else:
                self._role.happen("lock held elsewhere")
            await self._live()
        except LockError as error:
            raise NodeError(str(error)) from error
        finally:
            await self._shut_down()
        if self._failure is not None:
            raise NodeError(f"node {self._config.name}: {self._failure}") from self._failure

    async def _listen(self, wire: str, bind: Bind) -> list[str | int]:
        module, _, name = WIRES[wire].partition(":")
        try:
            factory: WireFactory = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise NodeError(f"the wire {wire} is not there: {error}") from error
        try:
            server = await self._loop.create_server(
                partial(self._accept, factory), bind.host, bind.port, family=socket.AF_UNSPEC, backlog=512
            )
        except OSError as error:
            raise NodeError(
                f"cannot listen for {wire} on {bind.host}:{bind.port}: {error.strerror or error}; "
                "give a free port, or 0 for any"
            ) from error
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return [host, port]

    async def _live(self) -> None:
        last, poll = time.monotonic(), 0.0
        while not self._ended.is_set():
            waiting = self._role.name == "waiting"
            try:
                await asyncio.wait_for(self._ended.wait(), POLL_SECONDS if waiting else TICK_SECONDS)
            except TimeoutError:
                now = time.monotonic()
                if waiting and self._role.name == "waiting" and self._lock.try_take_over():
                    self._take_up()
                if now - poll >= TICK_SECONDS:
                    self._tick(now, stalled=now - last > STALL_SECONDS)
                    poll = now
                last = now

    def _take_up(self) -> None:
        """The lock is ours: load and serve (HA-SS-03)."""
        self._role.happen("lock taken")
        config = self._config
        try:
            epoch, state = self._store.activate()
        except StoreError as error:
            self._fail(error)
            return
        terms = Terms(node=config.name, epoch=epoch, heartbeat_ms=config.heartbeat_ms)
        self._broker = Broker(terms, state, _wall_ms(), self._defects)
        early = "confirm-before-commit" in self._defects
        self._gate = Gate(self._store, self._release, self._loop.call_soon_threadsafe, self._fail, early=early)
        self._role.happen("loaded")
        self._report("serving", epoch=epoch, messages=len(state.messages))

    def stop(self) -> None:
        """End in order: no new work, what is done is confirmed, then the store is left (HA-SS-10)."""
        if self._role.name == "serving":
            self._role.happen("stop")
            for server in self._servers:
                server.close()
            for transport in list(self._transports.values()):
                transport.read_on(reading=False)
            self._flush()
            assert self._gate is not None
            self._gate.drain(self._drained)
        elif self._role.name in ("starting", "waiting"):
            self._role.happen("stop")
            self._ended.set()

    def _drained(self) -> None:
        self._role.happen("drained")
        self._ended.set()

    def _fail(self, error: Exception) -> None:
        self._role.happen("store failed")
        self._failure = error
        self._ended.set()

    async def _shut_down(self) -> None:
        for server in self._servers:
            server.close()
        for transport in list(self._transports.values()):
            transport.end() if self._failure is None else transport.cut()
        patience = time.monotonic() + LINGER_SECONDS
        while self._transports and time.monotonic() < patience:
            await asyncio.sleep(0.002)
        if self._gate is not None:
            self._gate.close()
        self._store.close()
        self._lock.release(hand_over=self._config.failover_on_shutdown or self._failure is not None)
        if self._servers and self._failure is None:
            self._report("stopped")

    def _report(self, event: str, **facts: Any) -> None:
        line = {"event": event, "node": self._config.name, **facts, "pid": os.getpid(), "at": time.time()}
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()

    # -- transports ----------------------------------------------------------------------------------------

    def _accept(self, factory: WireFactory) -> Transport:
        self._numbers += 1
        config = self._config
        link = f"{config.name}-{self._birth}-{self._numbers}"
        wire = factory(Welcome(config.name, link, config.heartbeat_ms, config.frame_limit))
        return Transport(self, self._numbers, wire, time.monotonic())

    def opened(self, transport: Transport) -> None:
        """A client has come."""
        self._transports[transport.number] = transport

    def received(self, transport: Transport, data: bytes) -> None:
        """Bytes of a client."""
        transport.last_heard = time.monotonic()
        commands = transport.wire.receive(data)
        broker = self._broker
        if broker is None or self._role.name != "serving":
            self._refuse(transport, commands)
            return
        now = _wall_ms()
        for command in commands:
            broker.handle(transport.number, command, now)
        if transport.wire.farewell is not None:
            broker.hang_up(transport.number, now)
        self._flush_soon()
        if self._gate is not None and self._gate.backlog > BACKLOG:
            transport.read_on(reading=False)
            self._not_read.append(transport)

    def _refuse(self, transport: Transport, commands: list[Any]) -> None:
        for command in commands:
            if isinstance(command, Connect):
                reason = f"node {self._config.name} does not serve: it is {self._role.name}"
                refusal = Refused(request=command.request, why=Refusal.NOT_SERVING, reason=reason)
                transport.send([refusal], time.monotonic())
                break
        if commands or transport.wire.farewell is not None:
            transport.end()

    def lost(self, transport: Transport) -> None:
        """The socket is gone."""
        if self._transports.pop(transport.number, None) is not None and self._broker is not None:
            self._broker.lost(transport.number, _wall_ms())
            self._flush_soon()

    def slow(self, transport: Transport, *, slow: bool) -> None:
        """The client has stopped reading, or reads again."""
        if self._broker is not None:
            if slow:
                self._broker.hold_up(transport.number)
            else:
                self._broker.go_on(transport.number, _wall_ms())
                self._flush_soon()

    def _tick(self, now: float, *, stalled: bool) -> None:
        for transport in list(self._transports.values()):
            wire = transport.wire
            if stalled:
                transport.last_heard = now
            elif wire.peer_interval_ms and (now - transport.last_heard) * 1000 > 2 * wire.peer_interval_ms:
                transport.cut()  # DET-09
            if wire.own_interval_ms and (now - transport.last_written + TICK_SECONDS) * 1000 >= wire.own_interval_ms:
                transport.write(wire.sign_of_life(), now)
        if self._broker is not None and self._role.name == "serving":
            self._broker.tick(_wall_ms())
            self._flush_soon()

    # -- effects -------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._broker is not None and self._gate is not None:
            self._gate.submit(self._broker.take())

    def _release(self, outputs: list[Output]) -> None:
        now = time.monotonic()
        by_link: dict[int, list[BrokerAnswer]] = {}
        for link, what in outputs:
            if isinstance(what, HangUp):
                self._send(link, by_link.pop(link, []), now)
                if (transport := self._transports.get(link)) is not None:
                    transport.end()
            else:
                by_link.setdefault(link, []).append(what)
        for link, answers in by_link.items():
            self._send(link, answers, now)
        if self._not_read:
            again, self._not_read = self._not_read, []
            for transport in again:
                transport.read_on(reading=True)

    def _send(self, link: int, answers: list[BrokerAnswer], now: float) -> None:
        transport = self._transports.get(link)
        if transport is not None and answers:
            transport.send(answers, now)


def _wall_ms() -> int:
    return int(time.time() * 1000)


def run_node(config: NodeConfig) -> None:
    """Run a node to its end; NodeError if it cannot start or its store fails."""
    runner: Callable[..., Any] = asyncio.Runner
    factory = _loop_factory()
    with runner(loop_factory=factory) as loop:
        loop.run(Node(config).run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - absent on some systems
    except ImportError:
        return None
    return uvloop.new_event_loop
