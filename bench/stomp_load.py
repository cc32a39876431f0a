"""A STOMP load on raw sockets: one producer, one consumer, one queue, one thread; too cheap to be what is measured.

Frames are made before the clock starts, and what arrives is only searched for what must be known: bodies hold no NUL,
so NULs count frames, and the name to acknowledge a message by is found by pattern. The clock stops when the consumer
has every message and the broker has confirmed the DISCONNECT behind its last acknowledgement.
"""

from __future__ import annotations

import re
import select
import socket
import time
from dataclasses import dataclass

from bench.comparison import BenchmarkError
from reference_broker.client.driver import Endpoint

OUTSTANDING = 100
"""Persistent messages that the producer has sent and that are not confirmed yet."""
PREFETCH = 1000
"""What a consumer that acknowledges may hold; every broker under test has such a limit, by a header of its own."""
SILENCE = 30.0
"""Seconds without a byte in either direction after which the broker counts as stuck."""
CHUNK = 1 << 18

_ACK = re.compile(rb"\nack:([^\n]*)\n")


@dataclass(frozen=True)
class Mode:
    """A row of the result: how messages are sent and acknowledged."""

    name: str
    persistent: bool
    individual: bool


@dataclass(frozen=True)
class Login:
    """Where the broker is and who asks."""

    endpoint: Endpoint
    user: str
    password: str


class Peer:
    """One connection, its handshake done; not blocking from then on."""

    def __init__(self, login: Login) -> None:
        self._socket = socket.create_connection(login.endpoint, SILENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._out = memoryview(b"")
        who = f"login:{login.user}\npasscode:{login.password}\n" if login.user else ""
        self.ask(f"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n{who}\n\0".encode(), b"CONNECTED")

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def ask(self, frame: bytes, expected: bytes) -> None:
        """Write a frame and wait for an answer that begins so. Raises BenchmarkError."""
        self._socket.setblocking(True)
        self._socket.settimeout(SILENCE)
        self._socket.sendall(frame)
        answer = b""
        while not answer.endswith((b"\0", b"\0\n")):
            answer += self._received(self._socket.recv(CHUNK))
        if not answer.lstrip().startswith(expected):
            raise BenchmarkError(f"the broker answered {_text(answer)} instead of {expected.decode()}")
        self._socket.setblocking(False)

    def read(self) -> bytes:
        """The whole frames that are there."""
        data = self._rest + self._received(self._socket.recv(CHUNK))
        end = data.rfind(b"\0") + 1
        self._rest = data[end:]
        return data[:end]

    @property
    def has_more(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out)

    def put(self, data: bytes) -> None:
        """Write as much as goes, keep the rest."""
        self._out = memoryview(bytes(self._out) + data if self._out else data)
        self.write()

    def write(self) -> None:
        """Write as much as goes of what is kept."""
        try:
            self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            return

    def _received(self, data: bytes) -> bytes:
        if not data:
            raise BenchmarkError(f"the broker closed the connection; its last words: {_text(self._rest)}")
        if data.startswith(b"ERROR"):
            raise BenchmarkError(f"the broker answered {_text(data)}")
        return data


def _text(data: bytes) -> str:
    return repr(data[:200].decode(errors="replace"))


class Load:
    """One run of a mode; `seconds` does it."""

    def __init__(self, login: Login, mode: Mode, messages: int, size: int) -> None:
        self._mode = mode
        self._messages = messages
        queue = f"/queue/bench-{'persistent' if mode.persistent else 'volatile'}-{mode.individual:d}"
        self._frames = _frames(queue, mode, messages, b"x" * size)
        self._sent = self._confirmed = self._received = 0
        self._left = False
        self.over = False
        self._consumer = Peer(login)
        ack = "client-individual" if mode.individual else "auto"
        limits = f"prefetch-count:{PREFETCH}\nactivemq.prefetchSize:{PREFETCH}\n"
        subscribe = f"SUBSCRIBE\nid:1\ndestination:{queue}\nack:{ack}\n{limits}receipt:s\n\n\0"
        self._consumer.ask(subscribe.encode(), b"RECEIPT")
        self._producer = Peer(login)

    def seconds(self) -> float:
        """Send, receive and settle everything. Raises BenchmarkError if the broker refuses or stands still."""
        started = time.perf_counter()
        self._send()
        while not self.over:
            writers = [peer for peer in (self._producer, self._consumer) if peer.has_more]
            readable, writable, _ = select.select((self._consumer, self._producer), writers, (), SILENCE)
            if not readable and not writable:
                got = f"{self._received} of {self._messages} messages arrived"
                raise BenchmarkError(f"the broker was silent for {SILENCE:g} s; {got}")
            for peer in writable:
                peer.write()
            if self._consumer in readable:
                self._take(self._consumer.read())
            if self._producer in readable:
                self._confirmed += self._producer.read().count(b"\0")
                self._send()
        return time.perf_counter() - started

    def close(self) -> None:
        """End both connections."""
        self._producer.close()
        self._consumer.close()

    def _send(self) -> None:
        """All at once if nothing is confirmed, else as many as may be outstanding."""
        limit = self._confirmed + OUTSTANDING if self._mode.persistent else self._messages
        if self._sent < min(limit, self._messages):
            self._producer.put(b"".join(self._frames[self._sent : limit]))
            self._sent = min(limit, self._messages)

    def _take(self, frames: bytes) -> None:
        if self._left:
            self.over = b"RECEIPT" in frames
            return
        self._received += frames.count(b"\0")
        acknowledgements = b""
        if self._mode.individual:
            acknowledgements = b"".join([b"ACK\nid:%b\n\n\0" % name for name in _ACK.findall(frames)])
        if self._received >= self._messages:
            self._left = True
            acknowledgements += b"DISCONNECT\nreceipt:end\n\n\0"
        if acknowledgements:
            self._consumer.put(acknowledgements)


def _frames(queue: str, mode: Mode, messages: int, body: bytes) -> list[bytes]:
    head = f"SEND\ndestination:{queue}\ncontent-length:{len(body)}\n".encode()
    if not mode.persistent:
        return [head + b"\n" + body + b"\0"] * messages
    return [b"%bpersistent:true\nreceipt:%d\n\n%b\0" % (head, number, body) for number in range(messages)]
