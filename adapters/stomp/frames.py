"""JMS messages as SEND frames and MESSAGE frames as JMS messages; the headers are those of `wire.stomp.headers`."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping

from reference_broker.broker.commands import Deliver
from reference_broker.broker.envelope import BodyKind, Envelope
from reference_broker.client.core_messages import to_envelope, to_message
from reference_broker.client.driver import SendSpec
from reference_broker.jms import Message
from reference_broker.wire.stomp import headers as jms

from .dialect import StompDialect

log = logging.getLogger(__name__)
_DIGITS = re.compile(r"[0-9]{1,9}")


def send_frame(message: Message, spec: SendSpec, dialect: StompDialect) -> tuple[dict[str, str], bytes]:
    """Headers and body of a SEND, without its receipt."""
    envelope = to_envelope(message)
    headers = {**jms.write(envelope), **dialect.send_headers}
    headers["destination"] = jms.write_destination(envelope.destination)
    if not envelope.persistent and not dialect.persistent_false:
        del headers["persistent"]
    if spec.transaction:
        headers["transaction"] = spec.transaction
    if dialect.producer_sequence and spec.producer:
        headers["jms-producer"] = spec.producer
        headers["jms-sequence"] = str(spec.sequence)
    if envelope.expires_at_ms and dialect.time_to_live_header:
        headers[dialect.time_to_live_header] = str(max(1, envelope.expires_at_ms - int(time.time() * 1000)))
    if envelope.body_kind is BodyKind.TEXT:
        headers["content-type"] = "text/plain;charset=utf-8"
    # ActiveMQ takes a body with a length for a BytesMessage, one without for a TextMessage.
    if envelope.body_kind is not BodyKind.TEXT or b"\0" in envelope.body:
        headers["content-length"] = str(len(envelope.body))
    return headers, envelope.body


def received(headers: Mapping[str, str], body: bytes, dialect: StompDialect) -> Message:
    """The message of a MESSAGE frame; of headers that make no sense only what does is kept."""
    envelope = _read(headers, body)
    if not envelope.message_id:
        envelope.message_id = headers.get("message-id", "")
    message = to_message(
        Deliver(
            consumer="",
            delivery=0,
            envelope=envelope,
            redelivered=headers.get("redelivered", "").lower() == "true",
            delivery_count=_delivery_count(headers, dialect),
        )
    )
    for name, value in envelope.headers.items():
        if "jms-id" not in headers and name.isidentifier():
            message.set_property(name, value)  # a plain STOMP client's headers are its properties
    return message


def _read(headers: Mapping[str, str], body: bytes) -> Envelope:
    try:
        envelope = jms.read(dict(headers), body)
    except jms.HeaderError as error:
        log.warning("a message with headers that make no sense: %s", error)
        envelope = jms.read({"destination": headers.get("destination", ""), "content-length": str(len(body))}, body)
    if envelope.body_kind is BodyKind.TEXT:
        try:
            body.decode()
        except UnicodeDecodeError:
            envelope.body_kind = BodyKind.BYTES
    return envelope


def _delivery_count(headers: Mapping[str, str], dialect: StompDialect) -> int:
    text = headers.get(dialect.delivery_count_header, "")
    return int(text) - dialect.delivery_count_from + 1 if _DIGITS.fullmatch(text) else 0
