"""The core wire as the node speaks it: packets to commands, answers to packets (RAT-01, RAT-03, RAT-07)."""

from __future__ import annotations

from collections.abc import Sequence

from reference_broker.broker.commands import BrokerAnswer, ClientCommand, Connect, Connected, Pong, Refused
from reference_broker.wire.listener import Welcome

from .packets import BrokerPacket, ClientPacket, PacketReader, ProtocolError, encode


class CoreConnection:
    """One accepted core transport; a `WireConnection`."""

    def __init__(self, welcome: Welcome) -> None:
        self.farewell: bytes | None = None
        self.peer_interval_ms = 0
        self.own_interval_ms = 0
        self._reader: PacketReader[ClientPacket] = PacketReader(ClientPacket, welcome.frame_limit)
        self._connected = False
        self._taken = 0
        """The client's last numbered packet."""
        self._given = 0
        """Our last numbered packet."""

    def receive(self, data: bytes) -> list[ClientCommand]:
        """Commands in these bytes; what is no packet, or out of sequence, ends the transport (DET-12)."""
        commands: list[ClientCommand] = []
        try:
            packets = self._reader.feed(data)
        except ProtocolError:
            self.farewell = b""
            return commands
        for packet in packets:
            if packet.id:
                if packet.id != self._taken + 1:
                    self.farewell = b""
                    break
                self._taken = packet.id
            if type(packet.body) is Connect:
                self.peer_interval_ms = packet.body.heartbeat_ms
            commands.append(packet.body)
        return commands

    def send(self, answers: Sequence[BrokerAnswer]) -> bytes:
        """One numbered packet for each."""
        frames = []
        for answer in answers:
            if type(answer) is Connected:
                self._connected = True
                self.own_interval_ms = answer.heartbeat_ms
            elif type(answer) is Refused and not self._connected:
                self.farewell = b""
            self._given += 1
            frames.append(encode(BrokerPacket(self._given, self._taken, answer)))
        return b"".join(frames)

    def sign_of_life(self) -> bytes:
        """A Pong, not numbered; it carries how far we have taken packets in."""
        return encode(BrokerPacket(0, self._taken, Pong()))
