"""The seam between the node's shell and a wire: one accepted transport as a codec without I/O.

The shell owns the socket, the clock and the broker; a `WireConnection` only translates. It is given the bytes
that arrived and returns commands; it is given the broker's answers, in order, and returns the bytes to write.
What a wire needs to remember between a command and its answer (a STOMP receipt) it keeps under the command's
`request` number, which it chooses itself; a frame that has no effect on the broker but wants an answer in order
(STOMP BEGIN with a receipt) becomes `Ping(request=...)`, which the broker answers with Done.

The first command of every transport is Connect. A passive node answers it with Refused(NOT_SERVING), which
the wire renders like any refusal (HA-SS-12).

End of a transport: a wire that wants it to end sets `farewell` (possibly empty); the shell writes what is due,
then the farewell, then closes. After that `receive` is not called again. The shell closes as well when the broker
asks for it or the peer is silent for twice `peer_interval_ms` (DET-09); then no farewell is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from reference_broker.broker.commands import BrokerAnswer, ClientCommand


class Welcome(NamedTuple):
    """What a new transport is told about where it has arrived."""

    node: str
    """The node's name."""
    link: str
    """Names this transport, unique over all nodes and restarts: the connection uid for wires that know none."""
    heartbeat_ms: int
    """The interval at which the node is willing to send signs of life; 0 if it is not."""
    frame_limit: int
    """Bytes; a longer frame ends the transport."""


class WireConnection(Protocol):
    """One accepted transport; called from one thread only, never raises."""

    farewell: bytes | None
    """None while the transport shall live; else the last bytes to write before it is closed."""
    peer_interval_ms: int
    """The peer has promised to send something at least this often; 0 means no promise."""
    own_interval_ms: int
    """The shell has to send something at least this often; 0 means never."""

    def receive(self, data: bytes) -> list[ClientCommand]:
        """Commands that are complete now, in order; a violation of the protocol sets `farewell`."""

    def send(self, answers: Sequence[BrokerAnswer]) -> bytes:
        """What to write for these answers; called in the order in which the broker gave them."""

    def sign_of_life(self) -> bytes:
        """What to write when nothing else was written for `own_interval_ms`."""


WireFactory = Callable[[Welcome], WireConnection]
