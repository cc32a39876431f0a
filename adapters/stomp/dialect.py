"""What differs between STOMP brokers, as data: the `[stomp]` table of a broker definition."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from adapters.spi import AdapterError


class GiveBack(StrEnum):
    """How a subscription's unacknowledged messages are made to come again, flagged and in order."""

    UNSUBSCRIBE = "unsubscribe"
    """UNSUBSCRIBE gives them back."""
    NACK = "nack"
    """UNSUBSCRIBE leaves them with the connection; NACK gives a message back to its place. RabbitMQ's way."""


class StompDialect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One broker's. The defaults fit a broker that keeps to what STOMP 1.2 says and to ActiveMQ's usual headers."""

    host: str = "/"
    """Virtual host for CONNECT."""
    connect_headers: dict[str, str] = {}
    send_headers: dict[str, str] = {}
    subscribe_headers: dict[str, str] = {}
    prefetch_header: str = "prefetch-count"
    unlimited_prefetch: int = 10_000
    """The window of sessions that hold messages unacknowledged; 0 is no limit at RabbitMQ, and nothing at ActiveMQ."""
    give_back: GiveBack = GiveBack.UNSUBSCRIBE
    names_delivered: bool = False
    """UNSUBSCRIBE understands `jms-delivered`: messages that the application has not seen go back unflagged."""
    persistent_false: bool = True
    """`persistent:false` may be sent; otherwise the header is left out."""
    receipts_in_transaction: bool = True
    """A SEND of a transaction is confirmed when it is taken. At RabbitMQ its RECEIPT comes after that of COMMIT, when
    the message is stored, and the COMMIT's does not wait for that: so a commit waits for all of them."""
    time_to_live_header: str = ""
    """For a time to live in milliseconds, beside `expires`; RabbitMQ knows only `expiration`."""
    delivery_count_header: str = ""
    """Of MESSAGE; empty if there is none."""
    delivery_count_from: int = 1
    """What that header says of a first delivery."""
    producer_sequence: bool = False
    """Repeated sends are known by `jms-producer` and `jms-sequence` (D-05)."""
    connection_header: str = ""
    """CONNECT header naming the JMS connection, so that a new transport replaces a half-open one."""
    selectors: bool = False
    no_local: bool = False
    not_serving: str = r"(?i)not[- ]serving|is down|starting|shutting down"
    """Refusals of CONNECT that mean: try another address (HA-SS-12)."""
    refused_credentials: str = r"(?i)access refused|password|credential|authenti|authori[sz]|not allowed"
    """Refusals of CONNECT that repeating does not cure."""
    stray: str = ""
    """ERROR frames for a delivery that met its subscription ended; the group is the subscription's id."""
    closing: str = r"(?i)CONNECTION_FORCED|shut ?down|server.*clos|being stopped|stopped"
    """ERROR frames that announce the end of the transport and answer no operation (DET-07)."""


def dialect_of(settings: Mapping[str, Any]) -> StompDialect:
    """From the table; AdapterError names what is wrong."""
    try:
        return msgspec.convert(dict(settings), StompDialect)
    except msgspec.ValidationError as error:
        raise AdapterError(f"the [stomp] table of the broker definition: {error}") from None
