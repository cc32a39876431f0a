"""JMS messages to envelopes of the core wire and back; map and stream bodies are MessagePack with their JMS types."""

from __future__ import annotations

from typing import Any

import msgspec

from reference_broker.broker.commands import Deliver
from reference_broker.broker.envelope import Address, BodyKind, Envelope
from reference_broker.jms import (
    BytesMessage,
    DeliveryMode,
    Destination,
    InvalidDestinationException,
    JMSType,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    StreamMessage,
    TemporaryDestination,
    TextMessage,
    Topic,
)

_encoder: msgspec.msgpack.Encoder = msgspec.msgpack.Encoder()
_map_decoder: msgspec.msgpack.Decoder[list[tuple[str, JMSType, Any]]] = msgspec.msgpack.Decoder(
    list[tuple[str, JMSType, Any]]
)
_stream_decoder: msgspec.msgpack.Decoder[list[tuple[JMSType, Any]]] = msgspec.msgpack.Decoder(list[tuple[JMSType, Any]])


def to_address(destination: Destination) -> Address:
    """A destination for the wire."""
    return Address(destination.name, isinstance(destination, Topic), isinstance(destination, TemporaryDestination))


def to_destination(address: Address) -> Destination:
    """A destination from the wire."""
    return Topic(address.name) if address.topic else Queue(address.name)


def to_envelope(message: Message) -> Envelope:
    """A message whose provider headers are set."""
    if message.destination is None:
        raise InvalidDestinationException("the message has no destination")
    kind, body = _body_of(message)
    return Envelope(
        destination=to_address(message.destination),
        message_id=message.message_id or "",
        persistent=message.delivery_mode is DeliveryMode.PERSISTENT,
        priority=message.priority,
        timestamp_ms=message.timestamp,
        expires_at_ms=message.expiration,
        deliver_at_ms=0,
        correlation_id=message.correlation_id,
        reply_to=None if message.reply_to is None else to_address(message.reply_to),
        type=message.type,
        properties={
            name: (jms_type, value)
            for name, jms_type, value in message.property_items()
            if not isinstance(value, bytes)  # which no property can hold
        },
        body_kind=kind,
        body=body,
    )


def to_message(delivered: Deliver) -> Message:
    """A message as the application gets it."""
    envelope = delivered.envelope
    message = _message_with(envelope.body_kind, envelope.body)
    message.message_id = envelope.message_id or None
    message.timestamp = envelope.timestamp_ms
    message.correlation_id = envelope.correlation_id
    message.reply_to = None if envelope.reply_to is None else to_destination(envelope.reply_to)
    message.destination = to_destination(envelope.destination)
    message.delivery_mode = DeliveryMode.PERSISTENT if envelope.persistent else DeliveryMode.NON_PERSISTENT
    message.redelivered = delivered.redelivered
    message.type = envelope.type
    message.expiration = envelope.expires_at_ms
    message.delivery_time = envelope.deliver_at_ms or envelope.timestamp_ms
    message.priority = envelope.priority
    message.delivery_count = delivered.delivery_count
    for name, (jms_type, value) in envelope.properties.items():
        message.load_property(name, jms_type, value)
    return message


def _body_of(message: Message) -> tuple[BodyKind, bytes]:
    match message:
        case TextMessage():
            # A null text is no text; an empty one is.
            return (BodyKind.NONE, b"text") if message.text is None else (BodyKind.TEXT, message.text.encode())
        case BytesMessage():
            return BodyKind.BYTES, message.data
        case MapMessage():
            return BodyKind.MAP, _encoder.encode(list(message.items()))
        case StreamMessage():
            return BodyKind.STREAM, _encoder.encode(list(message.items()))
        case ObjectMessage():
            return BodyKind.OBJECT, message.serialized
        case _:
            return BodyKind.NONE, b""


def _message_with(kind: BodyKind, body: bytes) -> Message:
    match kind:
        case BodyKind.TEXT:
            return TextMessage(body.decode())
        case BodyKind.BYTES:
            data = BytesMessage()
            data.load(body)
            return data
        case BodyKind.MAP:
            values = MapMessage()
            for name, jms_type, value in _map_decoder.decode(body):
                values.set(name, value, jms_type)
            return values
        case BodyKind.STREAM:
            stream = StreamMessage()
            stream.load(_stream_decoder.decode(body))
            return stream
        case BodyKind.OBJECT:
            pickled = ObjectMessage()
            pickled.load_serialized(body)
            return pickled
        case BodyKind.NONE:
            return TextMessage() if body == b"text" else Message()
