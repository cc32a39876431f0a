"""The core wire at the node: packets in order, and garbage that ends the transport instead of the node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_broker.broker.commands import Connect, Connected, Done, Ping, Pong, Refusal, Refused
from reference_broker.wire.core.listener import CoreConnection
from reference_broker.wire.core.packets import BrokerPacket, ClientPacket, PacketReader, encode
from reference_broker.wire.listener import Welcome

WELCOME = Welcome("a", "a-1", 1000, 1024)


def test_commands_come_out_in_order_however_the_bytes_are_cut() -> None:
    commands = [Connect(request=1, connection="c", heartbeat_ms=250), Ping(), Ping(request=2)]
    stream = b"".join(encode(ClientPacket(number, 0, each)) for number, each in enumerate(commands, start=1))
    for size in (1, 7, len(stream)):
        wire = CoreConnection(WELCOME)
        found = [c for i in range(0, len(stream), size) for c in wire.receive(stream[i : i + size])]
        assert found == commands
        assert wire.farewell is None
        assert wire.peer_interval_ms == 250


def test_answers_are_numbered_and_say_how_far_packets_were_taken_in() -> None:
    wire = CoreConnection(WELCOME)
    wire.receive(encode(ClientPacket(1, 0, Connect(connection="c"))) + encode(ClientPacket(0, 0, Ping())))
    reader: PacketReader[BrokerPacket] = PacketReader(BrokerPacket)
    answers = [Connected(node="a", epoch=1, heartbeat_ms=500), Done(request=1)]
    packets = reader.feed(wire.send(answers) + wire.sign_of_life())
    assert packets == [BrokerPacket(1, 1, answers[0]), BrokerPacket(2, 1, answers[1]), BrokerPacket(0, 1, Pong())]
    assert wire.own_interval_ms == 500


def test_a_refused_connect_ends_the_transport_a_refused_command_does_not() -> None:
    refused = Refused(why=Refusal.NOT_SERVING, reason="backup")
    wire = CoreConnection(WELCOME)
    assert wire.send([refused])
    assert wire.farewell == b""
    connected = CoreConnection(WELCOME)
    connected.send([Connected(node="a", epoch=1), refused])
    assert connected.farewell is None


def test_a_packet_out_of_sequence_ends_the_transport_after_those_before_it() -> None:
    wire = CoreConnection(WELCOME)
    stream = encode(ClientPacket(1, 0, Ping())) + encode(ClientPacket(3, 0, Ping()))
    assert wire.receive(stream) == [Ping()]
    assert wire.farewell == b""


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    wire = CoreConnection(WELCOME)
    assert wire.receive((1025).to_bytes(4, "big")) == []
    assert wire.farewell == b""


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_garbage_never_raises(chunks: list[bytes]) -> None:
    wire = CoreConnection(WELCOME)
    for chunk in chunks:
        if wire.farewell is None:
            wire.receive(chunk)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_a_damaged_packet_is_a_packet_or_the_end(position: int, damage: bytes) -> None:
    stream = bytearray(encode(ClientPacket(1, 0, Connect(connection="c" * 100))) * 2)
    stream[position : position + len(damage)] = damage
    CoreConnection(WELCOME).receive(bytes(stream))
