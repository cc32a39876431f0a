"""Frames survive in each version and however they are cut; garbage is named, never guessed at."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_broker.wire.stomp.codec import VERSIONS, Decoder, Frame, ProtocolError, encode, escape, unescape

LIMIT = 1_000_000
LEISURELY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The first text drawn takes a second on a loaded machine."""
CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
ANY_TEXT = st.text(CHARACTERS)
ANY_NAME = st.text(CHARACTERS, min_size=1).filter(lambda name: name != "content-length")


def sayable(text: str) -> str:
    """What STOMP 1.0 can say of it."""
    return "".join(char for char in text if char not in "\r\n:\0").strip(" ")


@st.composite
def frames(draw: Any, version: str) -> Frame:
    headers = draw(st.dictionaries(ANY_NAME, ANY_TEXT, max_size=5))
    if version == "1.0":
        headers = {sayable(name): sayable(value) for name, value in headers.items()}
    body = draw(st.binary(max_size=200))
    if b"\0" in body or draw(st.booleans()):
        headers["content-length"] = str(len(body))
    return Frame(draw(st.sampled_from(("SEND", "MESSAGE", "ACK"))), headers, body)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


@pytest.mark.parametrize("version", VERSIONS)
@LEISURELY
@given(data=st.data())
def test_frames_survive_however_they_are_cut(version: str, data: st.DataObject) -> None:
    sent = data.draw(st.lists(frames(version), max_size=4))
    stream = b""
    for frame in sent:
        stream += data.draw(st.sampled_from([b"", b"\n", b"\n\n"]))
        stream += encode(frame.command, frame.headers.items(), frame.body, version)
    places = data.draw(st.lists(st.integers(0, 10_000), max_size=8))
    decoder = Decoder(LIMIT, version)
    assert [frame for chunk in cut(stream, places) for frame in decoder.feed(chunk)] == sent


@pytest.mark.parametrize("version", VERSIONS)
@LEISURELY
@given(chunks=st.lists(st.binary(max_size=60), max_size=5))
def test_garbage_raises_nothing_but_protocol_errors(version: str, chunks: list[bytes]) -> None:
    decoder = Decoder(LIMIT, version)
    with suppress(ProtocolError):
        for chunk in chunks:
            assert all(isinstance(frame, Frame) for frame in decoder.feed(chunk))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@LEISURELY
@given(text=ANY_TEXT)
def test_escaping_is_undone(version: str, text: str) -> None:
    written = escape(text, version)
    assert not {"\n", ":"} & set(written)
    assert unescape(written, version) == text


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        ("1.2", b"SEND\na\\tb:c\n\n\0", "no escape of STOMP 1.2"),
        ("1.1", b"SEND\na:b\\rc\n\n\0", "no escape of STOMP 1.1"),
        ("1.2", b"SEND\na:b\\\n\n\0", "no escape"),
        ("1.2", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "no command"),
        ("1.2", b"\x16\x03\x01\x02\x00\x01", "without an empty line"),
        ("1.2", b"SEND\nnocolon\n\n\0", "no colon"),
        ("1.2", b"SEND\ncontent-length:-1\n\n\0", "content-length"),
        ("1.2", b"SEND\ncontent-length:2\n\nabc\0", "no NUL"),
        ("1.2", b"SEND\ncontent-length:1000001\n\n", "over the limit"),
        ("1.2", b"SEND\n\xff:1\n\n\0", "not UTF-8"),
        ("1.2", b"SEND\n\n" + b"x" * 1_000_001, "over the limit"),
        ("1.2", b"SEND\na:" + b"x" * 1_100_000, "without an end"),
    ],
)
def test_garbage_is_named(version: str, data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        list(Decoder(LIMIT, version).feed(data))


def test_line_ends_and_blanks_of_each_version() -> None:
    crlf = b"SEND\r\na: b \r\n\r\nbody\0"
    assert list(Decoder(LIMIT, "1.2").feed(crlf)) == [Frame("SEND", {"a": " b "}, b"body")]
    assert list(Decoder(LIMIT, "1.0").feed(crlf)) == [Frame("SEND", {"a": "b"}, b"body")]
    assert list(Decoder(LIMIT, "1.1").feed(b"SEND\na:b\r\n\nbody\0")) == [Frame("SEND", {"a": "b\r"}, b"body")]


def test_the_first_of_a_repeated_header_counts() -> None:
    assert list(Decoder(LIMIT, "1.2").feed(b"SEND\na:1\na:2\n\n\0")) == [Frame("SEND", {"a": "1"})]


def test_connect_is_not_escaped() -> None:
    assert encode("CONNECTED", [("server", "a:b")], b"", "1.2") == b"CONNECTED\nserver:a:b\n\n\0"
    assert list(Decoder(LIMIT).feed(b"CONNECT\npasscode:a\\b:c\n\n\0")) == [Frame("CONNECT", {"passcode": "a\\b:c"})]


def test_the_version_may_change_between_two_frames_of_one_read() -> None:
    decoder = Decoder(LIMIT)
    taken = []
    for frame in decoder.feed(b"CONNECT\na:\\n\n\n\0SEND\na:\\n\n\n\0"):
        taken.append(frame.headers["a"])
        decoder.version = "1.1"
    assert taken == ["\\n", "\n"]


def test_one_dot_zero_cannot_be_led_to_a_second_header() -> None:
    assert encode("MESSAGE", [("a", "x\nredelivered:true")], b"", "1.0") == b"MESSAGE\na:x redelivered:true\n\n\0"
