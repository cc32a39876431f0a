"""JMS headers and typed properties survive any STOMP version, and stay readable for any STOMP client."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference_broker.broker.envelope import Address, BodyKind, Envelope
from reference_broker.jms.conversion import JMSType
from reference_broker.wire.stomp import headers as jms
from reference_broker.wire.stomp.codec import Decoder, encode

NUMBERS = st.integers(0, 10**15)
NAMES = st.one_of(
    st.sampled_from(["priority", "type", "destination", "x", "Größe"]),
    st.from_regex(r"[A-Za-z_$][\w$]*", fullmatch=True),
)
VALUES = st.one_of(
    st.tuples(st.just(JMSType.STRING), st.text()),
    st.tuples(st.just(JMSType.BOOLEAN), st.booleans()),
    st.tuples(st.sampled_from([JMSType.BYTE, JMSType.SHORT, JMSType.INT, JMSType.LONG]), st.integers(-128, 127)),
    st.tuples(st.sampled_from([JMSType.FLOAT, JMSType.DOUBLE]), st.floats(allow_nan=False)),
    st.tuples(st.just(JMSType.NULL), st.none()),
)
ADDRESSES = st.builds(
    Address, st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda s: not s.startswith("/"))
)
ENVELOPES = st.builds(
    Envelope,
    destination=ADDRESSES,
    message_id=st.text(),
    persistent=st.booleans(),
    priority=st.integers(0, 9),
    timestamp_ms=NUMBERS,
    expires_at_ms=NUMBERS,
    deliver_at_ms=NUMBERS,
    correlation_id=st.none() | st.text(),
    reply_to=st.none() | ADDRESSES,
    type=st.none() | st.text(),
    properties=st.dictionaries(NAMES, VALUES, max_size=4),
    body_kind=st.sampled_from(list(BodyKind)),
    body=st.binary(max_size=50),
)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(envelope=ENVELOPES)
def test_an_envelope_survives(version: str, envelope: Envelope) -> None:
    written = jms.write(envelope)
    written["destination"] = "/queue/q"
    written["content-length"] = str(len(envelope.body))
    (frame,) = Decoder(10**6, version).feed(encode("SEND", written.items(), envelope.body, version))
    assert jms.read(frame.headers, frame.body) == msgspec.structs.replace(envelope, destination=Address("q"))


def test_properties_are_plain_headers() -> None:
    properties = {"color": (JMSType.STRING, "red"), "size": (JMSType.INT, 3), "priority": (JMSType.BOOLEAN, True)}
    written = jms.write(Envelope(Address("q"), properties=properties))
    assert written["color"] == "red"
    assert written["size"] == "3"
    assert written["jms-p-priority"] == "true"
    assert written["priority"] == "4"
    assert written["jms-types"] == "color=string,size=int,priority=boolean"


def test_what_a_plain_client_sends() -> None:
    envelope = jms.read({"destination": "/queue/a", "x-own": "1", "receipt": "r"}, b"text")
    assert envelope == Envelope(
        Address("a"), persistent=False, body_kind=BodyKind.TEXT, body=b"text", headers={"x-own": "1"}
    )
    assert jms.read({"destination": "plain", "content-length": "1"}, b"b").body_kind is BodyKind.BYTES
    assert jms.read({"content-length": "1", "content-type": "text/plain"}, b"b").body_kind is BodyKind.TEXT


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({"priority": "high"}, "priority"),
        ({"expires": "-1"}, "expires"),
        ({"jms-kind": "poem"}, "jms-kind"),
        ({"jms-types": "x=int"}, "which is not there"),
        ({"jms-types": "x=int", "x": "one"}, "cannot be read"),
        ({"jms-types": "x=colour", "x": "one"}, "cannot be read"),
        ({"jms-quoted": "type", "type": "bare"}, "JSON"),
    ],
)
def test_headers_that_mean_nothing_are_named(headers: dict[str, str], named: str) -> None:
    with pytest.raises(jms.HeaderError, match=named):
        jms.read(headers, b"")


def test_infinity_and_nan_are_doubles_too() -> None:
    properties = {"a": (JMSType.DOUBLE, math.inf), "b": (JMSType.DOUBLE, math.nan)}
    back = jms.read(jms.write(Envelope(Address("q"), properties=properties)), b"").properties
    assert back["a"][1] == math.inf
    assert math.isnan(back["b"][1])  # type: ignore[arg-type]
