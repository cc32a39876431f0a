"""Which JMS value type may be read as which: the conversion tables of JM 3.5.4 and 3.11.3 as data.

Python has one int and one float; a value keeps beside it the JMS type it was set with, so that a byte
stays a byte and a float a 32-bit float (MSG-12, MSG-16).
"""

from __future__ import annotations

import struct
from enum import StrEnum

from .exceptions import MessageFormatException

Value = bool | int | float | str | bytes | None


class JMSType(StrEnum):
    """The types a property, map entry or stream value can have; BYTES and CHAR only in bodies."""

    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    CHAR = "char"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    NULL = "null"


INTEGER_BITS = {JMSType.BYTE: 8, JMSType.SHORT: 16, JMSType.INT: 32, JMSType.LONG: 64}

READABLE_AS: dict[JMSType, frozenset[JMSType]] = {
    JMSType.BOOLEAN: frozenset({JMSType.BOOLEAN, JMSType.STRING}),
    JMSType.BYTE: frozenset({JMSType.BYTE, JMSType.SHORT, JMSType.INT, JMSType.LONG, JMSType.STRING}),
    JMSType.SHORT: frozenset({JMSType.SHORT, JMSType.INT, JMSType.LONG, JMSType.STRING}),
    JMSType.CHAR: frozenset({JMSType.CHAR, JMSType.STRING}),
    JMSType.INT: frozenset({JMSType.INT, JMSType.LONG, JMSType.STRING}),
    JMSType.LONG: frozenset({JMSType.LONG, JMSType.STRING}),
    JMSType.FLOAT: frozenset({JMSType.FLOAT, JMSType.DOUBLE, JMSType.STRING}),
    JMSType.DOUBLE: frozenset({JMSType.DOUBLE, JMSType.STRING}),
    JMSType.STRING: frozenset(
        {
            JMSType.BOOLEAN,
            JMSType.BYTE,
            JMSType.SHORT,
            JMSType.INT,
            JMSType.LONG,
            JMSType.FLOAT,
            JMSType.DOUBLE,
            JMSType.STRING,
        }
    ),
    JMSType.BYTES: frozenset({JMSType.BYTES}),
}


def check_value(value: Value, jms_type: JMSType | None, *, bytes_allowed: bool = False) -> tuple[JMSType, Value]:
    """The value with its type; MessageFormatException if it is of no JMS type or out of its range."""
    chosen = jms_type or natural_type(value)
    if chosen is JMSType.BYTES and not bytes_allowed:
        raise MessageFormatException("a property cannot hold bytes")
    if chosen in INTEGER_BITS:
        return chosen, _in_range(value, chosen)
    if chosen is JMSType.FLOAT and isinstance(value, int | float):
        return chosen, struct.unpack("f", struct.pack("f", value))[0]
    return chosen, value


def natural_type(value: object) -> JMSType:
    """The JMS type that a Python value has when none is named."""
    if value is None:
        return JMSType.NULL
    for python, jms_type in (
        (bool, JMSType.BOOLEAN),
        (int, JMSType.LONG),
        (float, JMSType.DOUBLE),
        (str, JMSType.STRING),
        (bytes, JMSType.BYTES),
    ):
        if isinstance(value, python):
            return jms_type
    raise MessageFormatException(f"{type(value).__name__} is no type of a JMS value")


def _in_range(value: Value, jms_type: JMSType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MessageFormatException(f"{value!r} is no {jms_type}")
    limit = 1 << (INTEGER_BITS[jms_type] - 1)
    if not -limit <= value < limit:
        raise MessageFormatException(f"{value} does not fit a {jms_type}")
    return value


def convert(value: Value, source: JMSType, target: JMSType) -> Value:
    """Read a value set as `source` as `target`; MessageFormatException where the table has no entry.

    Null reads as null string, as False, and as a number error (ValueError) otherwise, as JM 3.5.4 says.
    """
    if source is JMSType.NULL:
        if target in (JMSType.STRING, JMSType.BYTES):
            return None
        if target is JMSType.BOOLEAN:
            return False
        raise ValueError(f"null is no {target}")
    if target not in READABLE_AS[source]:
        raise MessageFormatException(f"a {source} cannot be read as {target}")
    if source is JMSType.STRING and target is not JMSType.STRING:
        return _parse(str(value), target)
    if target is JMSType.STRING:
        return str(value).lower() if source is JMSType.BOOLEAN else str(value)
    return value


def _parse(text: str, target: JMSType) -> Value:
    if target is JMSType.BOOLEAN:
        return text.strip().lower() == "true"
    if target in INTEGER_BITS:
        return _in_range(int(text), target)
    return float(text)
