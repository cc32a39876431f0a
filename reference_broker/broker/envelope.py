"""A message as the broker and every wire see it: headers and properties readable, the body opaque."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reference_broker.jms.conversion import JMSType

PropertyValue = bool | int | float | str | None
"""What a property can hold: no bytes (JM 3.5.4)."""


class BodyKind(StrEnum):
    """What the body's bytes are; only clients look into them."""

    NONE = "none"
    TEXT = "text"
    BYTES = "bytes"
    MAP = "map"
    STREAM = "stream"
    OBJECT = "object"


class Address(msgspec.Struct, frozen=True, array_like=True):
    """A destination on the wire."""

    name: str
    topic: bool = False
    temporary: bool = False


class Envelope(msgspec.Struct, array_like=True):
    """One message. Times are milliseconds of wall clock; 0 means none."""

    destination: Address
    message_id: str = ""
    persistent: bool = True
    priority: int = 4
    timestamp_ms: int = 0
    expires_at_ms: int = 0
    deliver_at_ms: int = 0
    correlation_id: str | None = None
    reply_to: Address | None = None
    type: str | None = None
    properties: dict[str, tuple[JMSType, PropertyValue]] = {}
    body_kind: BodyKind = BodyKind.NONE
    body: bytes = b""
    headers: dict[str, str] = {}
    """Headers of a wire (STOMP custom ones) that are no properties but must come out as they went in."""
