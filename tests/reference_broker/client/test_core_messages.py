from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reference_broker.broker.commands import BrokerAnswer, Deliver
from reference_broker.client.core_messages import to_envelope, to_message
from reference_broker.jms import (
    BytesMessage,
    DeliveryMode,
    JMSType,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)

BODY_VALUES = (
    st.tuples(st.just(JMSType.BOOLEAN), st.booleans())
    | st.tuples(st.just(JMSType.BYTE), st.integers(-128, 127))
    | st.tuples(st.just(JMSType.LONG), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just(JMSType.FLOAT), st.floats(width=32, allow_nan=False))
    | st.tuples(st.just(JMSType.DOUBLE), st.floats(allow_nan=False))
    | st.tuples(st.just(JMSType.STRING), st.text())
    | st.tuples(st.just(JMSType.NULL), st.none())
)


def over_the_wire(message: Message, **delivery: Any) -> Message:
    message.destination = message.destination or Queue("q")
    sent = Deliver(consumer="c", delivery=1, envelope=to_envelope(message), **delivery)
    return to_message(msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=BrokerAnswer))  # type: ignore[arg-type]


@given(st.none() | st.text())
def test_text(text: str | None) -> None:
    received = over_the_wire(TextMessage(text))
    assert isinstance(received, TextMessage)
    assert received.text == text


@given(st.binary())
def test_bytes(data: bytes) -> None:
    message = BytesMessage()
    message.write(data)
    received = over_the_wire(message)
    assert isinstance(received, BytesMessage)
    assert received.data == data


@given(st.dictionaries(st.text(min_size=1), BODY_VALUES | st.tuples(st.just(JMSType.BYTES), st.binary())))
def test_map(values: dict[str, tuple[JMSType, Any]]) -> None:
    message = MapMessage()
    for name, (jms_type, value) in values.items():
        message.set(name, value, jms_type)
    received = over_the_wire(message)
    assert isinstance(received, MapMessage)
    assert {name: (jms_type, value) for name, jms_type, value in received.items()} == values


@given(st.lists(BODY_VALUES))
def test_stream(values: list[tuple[JMSType, Any]]) -> None:
    message = StreamMessage()
    for jms_type, value in values:
        message.write(value, jms_type)
    received = over_the_wire(message)
    assert isinstance(received, StreamMessage)
    assert list(received.items()) == values


def test_object_and_nothing() -> None:
    received = over_the_wire(ObjectMessage({"a": [1, 2]}))
    assert isinstance(received, ObjectMessage)
    assert received.value == {"a": [1, 2]}
    assert type(over_the_wire(Message())) is Message


def test_headers_and_properties() -> None:
    message = TextMessage("x")
    message.message_id, message.timestamp, message.expiration = "ID:1", 11, 22
    message.correlation_id, message.reply_to, message.type = "corr", Topic("t"), "kind"
    message.priority, message.delivery_mode = 7, DeliveryMode.NON_PERSISTENT
    message.set_property("n", 5, JMSType.SHORT)
    received = over_the_wire(message, redelivered=True, delivery_count=3)
    for name in ("message_id", "timestamp", "expiration", "correlation_id", "reply_to", "type", "priority"):
        assert getattr(received, name) == getattr(message, name)
    assert received.destination == Queue("q")
    assert received.delivery_mode is DeliveryMode.NON_PERSISTENT
    assert (received.redelivered, received.delivery_count) == (True, 3)
    assert list(received.property_items()) == [("n", JMSType.SHORT, 5)]
