"""What the engine hands to its shell: records to keep, and outputs to send once they are kept."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from .commands import BrokerAnswer
from .records import Record


class HangUp(msgspec.Struct, frozen=True):
    """The transport is to be closed once everything before is written."""


class Output(NamedTuple):
    """Something for a transport."""

    link: int
    what: BrokerAnswer | HangUp


class Effects(NamedTuple):
    """What became of the commands since the last `take`; the records are one unit, durable before the outputs."""

    records: list[Record]
    outputs: list[Output]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker says of itself."""

    node: str = "node"
    epoch: int = 1
    heartbeat_ms: int = 1000
    """The longest interval at which it promises to send something; a client that promises a shorter one gets that."""
