"""Framing of the core wire.

A frame is a length (4 bytes, big-endian) and one MessagePack array `[id, processed, body]`. `id` numbers the
packets of one direction consecutively from 1 (RAT-01); 0 marks packets that are not numbered: pings and
pure acknowledgements (RAT-07). `processed` is the id up to which the sender has taken in and finished the
peer's packets (RAT-03). The body is a client command or a broker answer, tagged with its name.

A frame cut in the middle is never handed out (DET-12); a length above the limit or a body that does not
decode is a `ProtocolError`, after which the transport is of no further use.
"""

from __future__ import annotations

import struct
from typing import Generic, TypeVar

import msgspec

from reference_broker.broker.commands import BrokerAnswer, ClientCommand

MAX_FRAME = 64 * 1024 * 1024
"""Bytes; a longer frame is refused before it is read."""

_LENGTH = struct.Struct(">I")


class ProtocolError(Exception):
    """The peer does not speak this protocol."""


class ClientPacket(msgspec.Struct, array_like=True):
    """Client to broker."""

    id: int
    processed: int
    body: ClientCommand


class BrokerPacket(msgspec.Struct, array_like=True):
    """Broker to client."""

    id: int
    processed: int
    body: BrokerAnswer


Packet = TypeVar("Packet", ClientPacket, BrokerPacket)
_encoder: msgspec.msgpack.Encoder = msgspec.msgpack.Encoder()


def encode(packet: ClientPacket | BrokerPacket) -> bytes:
    """One frame."""
    body = _encoder.encode(packet)
    return _LENGTH.pack(len(body)) + body


class PacketReader(Generic[Packet]):
    """Turns bytes as they come into packets."""

    def __init__(self, kind: type[Packet], limit: int = MAX_FRAME) -> None:
        self._decoder: msgspec.msgpack.Decoder[Packet] = msgspec.msgpack.Decoder(kind)
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """All packets that are complete now."""
        buffer = self._buffer
        buffer += data
        packets: list[Packet] = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > self._limit:
                raise ProtocolError(f"a frame of {length} bytes is over the limit of {self._limit}")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            packets.append(self._decode(bytes(buffer[start + _LENGTH.size : end])))
            start = end
        del buffer[:start]
        return packets

    def _decode(self, body: bytes) -> Packet:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"a frame that is no packet: {error}") from error
