"""Messages: headers, properties and the five kinds of body (JM 3).

Headers are attributes with JMS names less the `JMS` prefix. The provider overwrites what belongs to it on
send (MSG-01). Property and map/stream values keep the JMS type they were set with; reading converts by the one
table in `conversion` (MSG-12, MSG-16). A received message is read-only until cleared (MSG-13).
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Self

from .acknowledge import DEFAULT_PRIORITY, DeliveryMode
from .conversion import JMSType, Value, check_value, convert
from .destinations import Destination
from .exceptions import (
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
)

RESERVED_NAMES = frozenset({"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"})


def check_property_name(name: str) -> None:
    """Refuse what a selector could not name (MSG-14, JM 3.5.1)."""
    if not name or (not name.isidentifier() and not name.replace("$", "_").isidentifier()):
        raise ValueError(f"{name!r} is no property name: it must be an identifier")
    if name.upper() in RESERVED_NAMES:
        raise ValueError(f"{name!r} is a reserved word of selectors and no property name")


class Message:
    """A message without a body, and the base of all others."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self.timestamp: int = 0
        self.correlation_id: str | None = None
        self.reply_to: Destination | None = None
        self.destination: Destination | None = None
        self.delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
        self.redelivered: bool = False
        self.type: str | None = None
        self.expiration: int = 0
        self.delivery_time: int = 0
        self.priority: int = DEFAULT_PRIORITY
        self.delivery_count: int = 0
        """JMSXDeliveryCount; 0 where the wire does not carry it."""
        self._properties: dict[str, tuple[JMSType, Value]] = {}
        self._properties_read_only = False
        self._body_read_only = False
        self._acknowledger: Callable[[], None] | None = None

    # -- acknowledgement ---------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Acknowledge all that its session has delivered; no effect unless CLIENT mode (JM 6.2.10)."""
        if self._acknowledger is not None:
            self._acknowledger()

    def delivered_by(self, acknowledger: Callable[[], None] | None) -> None:
        """For providers: mark as received, hence read-only, and say what acknowledge() does."""
        self._acknowledger = acknowledger
        self._properties_read_only = True
        self._body_read_only = True

    def observe_acknowledge(self, around: Callable[[Callable[[], None]], None]) -> None:
        """For recorders: `around` is called with the real acknowledgement, which it must call."""
        inner = self._acknowledger
        if inner is not None:
            self._acknowledger = lambda: around(inner)

    def copy(self) -> Self:
        """For providers: as it is now, independent of what becomes of this one, and nobody's delivery (MSG-17)."""
        other = copy.copy(self)
        other._acknowledger = None
        for name, value in vars(self).items():
            if isinstance(value, dict | list | bytearray):
                setattr(other, name, value.copy())
        return other

    # -- properties --------------------------------------------------------------------------------------

    def set_property(self, name: str, value: Value, jms_type: JMSType | None = None) -> None:
        """Set a property; without `jms_type` an int is a long, a float a double (JM 3.5)."""
        if self._properties_read_only:
            raise MessageNotWriteableException("properties of a received message are read-only until cleared")
        check_property_name(name)
        self._properties[name] = check_value(value, jms_type)

    def get_property(self, name: str, jms_type: JMSType | None = None) -> Value:
        """The value, as it was set or converted to `jms_type`; a missing one behaves as null (MSG-12)."""
        source, value = self._properties.get(name, (JMSType.NULL, None))
        return value if jms_type is None else convert(value, source, jms_type)

    def property_exists(self, name: str) -> bool:
        """Whether it is set."""
        return name in self._properties

    @property
    def property_names(self) -> tuple[str, ...]:
        """Names of the application's properties, without the headers (MSG-14)."""
        return tuple(self._properties)

    def property_items(self) -> Iterator[tuple[str, JMSType, Value]]:
        """For providers: each property with its type."""
        return ((name, jms_type, value) for name, (jms_type, value) in self._properties.items())

    def load_property(self, name: str, jms_type: JMSType, value: Value) -> None:
        """For providers: set what came over the wire, names and read-only state unchecked."""
        self._properties[name] = (jms_type, value)

    def clear_properties(self) -> None:
        """Remove all properties and make them writeable again."""
        self._properties.clear()
        self._properties_read_only = False

    # -- body --------------------------------------------------------------------------------------------

    def clear_body(self) -> None:
        """Empty the body and make it writeable again."""
        self._body_read_only = False

    def _writeable(self) -> None:
        if self._body_read_only:
            raise MessageNotWriteableException("the body of a received message is read-only until cleared")


class TextMessage(Message):
    """A string, or None."""

    def __init__(self, text: str | None = None) -> None:
        super().__init__()
        self._text = text

    @property
    def text(self) -> str | None:
        """The body."""
        return self._text

    @text.setter
    def text(self, value: str | None) -> None:
        self._writeable()
        self._text = value

    def clear_body(self) -> None:
        """Empty the body and make it writeable again."""
        super().clear_body()
        self._text = None


class ObjectMessage(Message):
    """A serialised object; deserialised only when asked for, since that runs the sender's code."""

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self._pickled = b"" if value is None else pickle.dumps(value)

    @property
    def value(self) -> Any:
        """The object, made anew at each call."""
        return pickle.loads(self._pickled) if self._pickled else None  # the application trusts its senders

    @value.setter
    def value(self, value: Any) -> None:
        self._writeable()
        self._pickled = b"" if value is None else pickle.dumps(value)

    @property
    def serialized(self) -> bytes:
        """For providers: the bytes that travel."""
        return self._pickled

    def load_serialized(self, data: bytes) -> None:
        """For providers: the bytes that came."""
        self._pickled = data

    def clear_body(self) -> None:
        """Empty the body and make it writeable again."""
        super().clear_body()
        self._pickled = b""


class MapMessage(Message):
    """Names and typed values."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, tuple[JMSType, Value]] = {}

    def set(self, name: str, value: Value, jms_type: JMSType | None = None) -> None:
        """Set one entry."""
        self._writeable()
        if not name:
            raise ValueError("a map entry needs a name")
        self._values[name] = check_value(value, jms_type, bytes_allowed=True)

    def get(self, name: str, jms_type: JMSType | None = None) -> Value:
        """One entry, as set or converted; a missing one behaves as null (MSG-16)."""
        source, value = self._values.get(name, (JMSType.NULL, None))
        return value if jms_type is None else convert(value, source, jms_type)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all entries."""
        return tuple(self._values)

    def items(self) -> Iterator[tuple[str, JMSType, Value]]:
        """For providers: each entry with its type."""
        return ((name, jms_type, value) for name, (jms_type, value) in self._values.items())

    def clear_body(self) -> None:
        """Empty the body and make it writeable again."""
        super().clear_body()
        self._values.clear()


class StreamMessage(Message):
    """A sequence of typed values, read in the order written."""

    def __init__(self) -> None:
        super().__init__()
        self._values: list[tuple[JMSType, Value]] = []
        self._next = 0
        self._reading = False

    def write(self, value: Value, jms_type: JMSType | None = None) -> None:
        """Append one value."""
        if self._reading or self._body_read_only:
            raise MessageNotWriteableException("the stream is being read; clear_body() first")
        self._values.append(check_value(value, jms_type, bytes_allowed=True))

    def read(self, jms_type: JMSType | None = None) -> Value:
        """The next value; MessageEOFException past the end, position kept if conversion fails (MSG-16)."""
        if not (self._reading or self._body_read_only):
            raise MessageNotReadableException("the stream is being written; reset() first")
        if self._next >= len(self._values):
            raise MessageEOFException("no value is left in the stream")
        source, value = self._values[self._next]
        result = value if jms_type is None else convert(value, source, jms_type)
        self._next += 1
        return result

    def reset(self) -> None:
        """Make it read-only and start over at its first value."""
        self._reading = True
        self._next = 0

    def items(self) -> Iterator[tuple[JMSType, Value]]:
        """For providers: each value with its type."""
        return iter(self._values)

    def load(self, values: list[tuple[JMSType, Value]]) -> None:
        """For providers: what came over the wire."""
        self._values = values
        self.reset()

    def clear_body(self) -> None:
        """Empty the body and make it writeable again."""
        super().clear_body()
        self._values.clear()
        self._reading = False


class BytesMessage(Message):
    """Uninterpreted bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._data = bytearray()
        self._next = 0
        self._reading = False

    def write(self, data: bytes) -> None:
        """Append bytes."""
        if self._reading or self._body_read_only:
            raise MessageNotWriteableException("the bytes are being read; clear_body() first")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise MessageFormatException(f"a bytes body takes bytes, not {type(data).__name__}")
        self._data += data

    def read(self, length: int | None = None) -> bytes:
        """Up to `length` bytes, all that is left if None; MessageEOFException at the end."""
        if not (self._reading or self._body_read_only):
            raise MessageNotReadableException("the bytes are being written; reset() first")
        if length is not None and self._next >= len(self._data) and length > 0:
            raise MessageEOFException("no byte is left in the body")
        end = len(self._data) if length is None else self._next + length
        chunk = bytes(self._data[self._next : end])
        self._next += len(chunk)
        return chunk

    def reset(self) -> None:
        """Make it read-only and start over at its first byte."""
        self._reading = True
        self._next = 0

    @property
    def data(self) -> bytes:
        """The whole body, wherever reading stands."""
        return bytes(self._data)

    def load(self, data: bytes) -> None:
        """For providers: what came over the wire."""
        self._data = bytearray(data)
        self.reset()

    def clear_body(self) -> None:
        """Empty the body and make it writeable again."""
        super().clear_body()
        self._data.clear()
        self._reading = False
