"""JMS on STOMP frames: how an envelope's headers, properties and kind of body are written, and read again.

The same names go to every broker, so that any of them carries them unchanged and any STOMP client can read them:

- what STOMP brokers agree on keeps its name: `persistent`, `priority`, `expires` (milliseconds, absolute),
  `correlation-id`, `reply-to`, `type`, `content-type`;
- what only JMS has starts with `jms-`: `jms-id`, `jms-timestamp`, `jms-deliver-at`, `jms-kind` (the kind of body);
- a property is a header of its own name, its value in plain text. `jms-types` lists `name=type`, so that a reader who
  cares gets the JMS type back (MSG-12). A property whose name means something to a broker is written `jms-p-NAME`;
- a string that a header cannot hold in every version (control characters, outer blanks, nothing at all) is written
  as a JSON string, its type in `jms-types` as `string/json`; `jms-quoted` lists the fields to which that was done.

Every other header is one of the wire and comes out as it went in. Absent `persistent` means NON_PERSISTENT, as with
ActiveMQ; without `jms-kind` a body is bytes if it has a length and no textual content-type, and text otherwise.
"""

from __future__ import annotations

import json
import re
from typing import Final

from reference_broker.broker.envelope import Address, BodyKind, Envelope, PropertyValue
from reference_broker.jms.conversion import INTEGER_BITS, JMSType

QUEUE: Final = "/queue/"
TOPIC: Final = "/topic/"
TEMPORARY_QUEUE: Final = "/temp-queue/"
TEMPORARY_TOPIC: Final = "/temp-topic/"

ADDRESSES: Final = {
    QUEUE: (False, False),
    TOPIC: (True, False),
    TEMPORARY_QUEUE: (False, True),
    TEMPORARY_TOPIC: (True, True),
}
_PREFIXES: Final = {kind: prefix for prefix, kind in ADDRESSES.items()}

OWN: Final = frozenset(
    {
        *("destination", "content-length", "receipt", "transaction", "persistent", "priority", "expires", "expiration"),
        *("correlation-id", "reply-to", "type", "timestamp", "redelivered", "delivery-count"),
        *("message-id", "subscription", "ack", "id"),
        *("jms-id", "jms-timestamp", "jms-deliver-at", "jms-kind", "jms-types", "jms-quoted"),
        *("jms-producer", "jms-sequence"),
    }
)
"""Headers that have a meaning of their own and are not carried through as they are."""

TAKEN: Final = OWN | {
    *("browser", "durable", "exchange", "exclusive", "host", "login", "message", "passcode", "selector", "server"),
    *("session", "transformation", "version"),
}
"""Names that a property cannot have for a header, because some broker would act on it."""

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|^\s|\s$|^$")
_JSON: Final = "/json"
_QUOTED_FIELDS: Final = frozenset({"correlation-id", "type", "jms-id", "reply-to"})


class HeaderError(ValueError):
    """A header that means nothing; the text says which."""


def parse_destination(text: str) -> Address:
    """The destination that `/queue/NAME` and its like name; a plain name is a queue's."""
    for prefix, (topic, temporary) in ADDRESSES.items():
        if text.startswith(prefix):
            return Address(text[len(prefix) :], topic, temporary)
    return Address(text)


def write_destination(address: Address) -> str:
    """The reverse of `parse_destination`."""
    return _PREFIXES[address.topic, address.temporary] + address.name


def read(headers: dict[str, str], body: bytes) -> Envelope:
    """The envelope of a SEND or MESSAGE frame; HeaderError if a header makes no sense."""
    envelope = Envelope(
        destination=parse_destination(headers.get("destination", "")),
        persistent=headers.get("persistent", "").lower() == "true",
        body_kind=_body_kind(headers),
        body=body,
    )
    if "priority" in headers:
        envelope.priority = min(9, _number(headers, "priority"))
    envelope.expires_at_ms = _number(headers, "expires")
    envelope.timestamp_ms = _number(headers, "jms-timestamp" if "jms-timestamp" in headers else "timestamp")
    envelope.deliver_at_ms = _number(headers, "jms-deliver-at")
    if not _QUOTED_FIELDS.isdisjoint(headers):
        _read_texts(headers, envelope)
    used: set[str] = set()
    if "jms-types" in headers:
        read_properties = _read_properties(headers)
        envelope.properties = {name: entry for name, (_, entry) in read_properties.items()}
        used = {header for header, _ in read_properties.values()}
    if not OWN.issuperset(headers):
        envelope.headers = {name: value for name, value in headers.items() if name not in OWN and name not in used}
    return envelope


def _read_texts(headers: dict[str, str], envelope: Envelope) -> None:
    quoted = headers.get("jms-quoted", "").split(",")
    fields = {
        name: _unquote(headers[name]) if name in quoted else headers[name] for name in _QUOTED_FIELDS if name in headers
    }
    envelope.message_id = fields.get("jms-id", "")
    envelope.correlation_id = fields.get("correlation-id")
    envelope.type = fields.get("type")
    if "reply-to" in fields:
        envelope.reply_to = parse_destination(fields["reply-to"])


def write(envelope: Envelope) -> dict[str, str]:
    """Headers for this envelope, without its content-length and destination."""
    headers = dict(envelope.headers)
    if envelope.properties:
        _write_properties(envelope.properties, headers)
    headers["persistent"] = "true" if envelope.persistent else "false"
    headers["priority"] = str(envelope.priority)
    headers["jms-kind"] = envelope.body_kind.value
    for name, milliseconds in (
        ("expires", envelope.expires_at_ms),
        ("jms-timestamp", envelope.timestamp_ms),
        ("jms-deliver-at", envelope.deliver_at_ms),
    ):
        if milliseconds:
            headers[name] = str(milliseconds)
    quoted = []
    for name, text in (
        ("jms-id", envelope.message_id or None),
        ("correlation-id", envelope.correlation_id),
        ("type", envelope.type),
        ("reply-to", write_destination(envelope.reply_to) if envelope.reply_to else None),
    ):
        if text is not None:
            if _UNSAFE.search(text):
                quoted.append(name)
                headers[name] = json.dumps(text)
            else:
                headers[name] = text
    if quoted:
        headers["jms-quoted"] = ",".join(quoted)
    return headers


def _body_kind(headers: dict[str, str]) -> BodyKind:
    kind = headers.get("jms-kind")
    if kind is not None:
        try:
            return BodyKind(kind)
        except ValueError:
            raise HeaderError(f"jms-kind:{kind[:40]!r} is no kind of body") from None
    content_type = headers.get("content-type")
    if "content-length" in headers and not (content_type or "").startswith("text/"):
        return BodyKind.BYTES
    return BodyKind.TEXT


def _number(headers: dict[str, str], name: str) -> int:
    text = headers.get(name)
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise HeaderError(f"{name}:{text[:40]!r} is no number")
    return int(text)


def _header_of(name: str) -> str:
    return f"jms-p-{name}" if name.lower() in TAKEN or name.startswith("jms-") else name


def _write_properties(properties: dict[str, tuple[JMSType, PropertyValue]], headers: dict[str, str]) -> None:
    types = []
    for name, (jms_type, value) in properties.items():
        if jms_type is JMSType.NULL or value is None:
            text, mark = "-", "null"
        else:
            text = str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value)
            mark = jms_type.value
            if _UNSAFE.search(text):
                text, mark = json.dumps(text), mark + _JSON
        headers[_header_of(name)] = text
        types.append(f"{name}={mark}")
    headers["jms-types"] = ",".join(types)


def _read_properties(headers: dict[str, str]) -> dict[str, tuple[str, tuple[JMSType, PropertyValue]]]:
    types = headers.get("jms-types")
    properties: dict[str, tuple[str, tuple[JMSType, PropertyValue]]] = {}
    for entry in types.split(",") if types else ():
        name, _, mark = entry.partition("=")
        header = _header_of(name)
        text = headers.get(header)
        if text is None:
            raise HeaderError(f"jms-types names the property {name[:40]!r}, which is not there")
        try:
            jms_type = JMSType(mark.removesuffix(_JSON))
            if mark.endswith(_JSON):
                text = _unquote(text)
            properties[name] = header, (jms_type, _value(text, jms_type))
        except ValueError:
            raise HeaderError(f"the property {entry[:80]!r} cannot be read from {text[:40]!r}") from None
    return properties


def _value(text: str, jms_type: JMSType) -> PropertyValue:
    if jms_type is JMSType.NULL:
        return None
    if jms_type is JMSType.BOOLEAN:
        return text == "true"
    if jms_type in INTEGER_BITS:
        return int(text)
    if jms_type in (JMSType.FLOAT, JMSType.DOUBLE):
        return float(text)
    return text


def _unquote(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise HeaderError(f"{text[:40]!r} is no JSON string") from None
