"""One accepted socket of a node: asyncio on one side, a `WireConnection` on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from reference_broker.broker.commands import BrokerAnswer
from reference_broker.wire.listener import WireConnection

SLOW_READER_BYTES = 1024 * 1024
"""Unread bytes from which on nothing more is handed out to a client (its confirmations still are)."""
DEAD_READER_BYTES = 64 * 1024 * 1024
"""Unread bytes at which a client is cut off: it asks and does not read."""
LINGER_SECONDS = 2.0
"""How long a closing transport may take to get rid of its last bytes."""


class Host(Protocol):
    """Who is told what happens to a transport."""

    def opened(self, transport: Transport) -> None:
        """A client has come."""

    def received(self, transport: Transport, data: bytes) -> None:
        """Bytes of a client."""

    def lost(self, transport: Transport) -> None:
        """The socket is gone."""

    def slow(self, transport: Transport, *, slow: bool) -> None:
        """The client has stopped reading, or reads again."""


class Transport(asyncio.Protocol):
    """Bytes in, bytes out, and when which of them last happened."""

    def __init__(self, host: Host, number: int, wire: WireConnection, now: float) -> None:
        self.number = number
        self.wire = wire
        self.last_heard = now
        self.last_written = now
        self._host = host
        self._socket: asyncio.Transport | None = None
        self._ending = False

    # -- what asyncio says ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._socket = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self._socket.set_write_buffer_limits(high=SLOW_READER_BYTES)
        self._host.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if not self._ending:
            self._host.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._ending = True
        self._host.lost(self)

    def pause_writing(self) -> None:
        """The client does not read."""
        self._host.slow(self, slow=True)

    def resume_writing(self) -> None:
        """It does again."""
        self._host.slow(self, slow=False)

    # -- what the node says --------------------------------------------------------------------------------

    def send(self, answers: Sequence[BrokerAnswer], now: float) -> None:
        """Write the answers in one go."""
        if not self._ending:
            self.write(self.wire.send(answers), now)
            if self.wire.farewell is not None:
                self.end()

    def write(self, data: bytes, now: float) -> None:
        """Write bytes; a client that never reads is cut off."""
        assert self._socket is not None
        if data and not self._ending:
            self._socket.write(data)
            self.last_written = now
            if self._socket.get_write_buffer_size() > DEAD_READER_BYTES:
                self.cut()

    def end(self) -> None:
        """Write the farewell, if there is one, and close once all is written."""
        if not self._ending and self._socket is not None:
            if self.wire.farewell:
                self._socket.write(self.wire.farewell)
            self._ending = True
            self._socket.close()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._socket.abort)

    def cut(self) -> None:
        """Close at once."""
        self._ending = True
        if self._socket is not None:
            self._socket.abort()

    def read_on(self, *, reading: bool) -> None:
        """Take in more bytes or leave them to the sender's side of the socket."""
        if self._socket is not None and not self._socket.is_closing():
            if reading:
                self._socket.resume_reading()
            else:
                self._socket.pause_reading()
