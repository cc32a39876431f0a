"""What pytest's items leave behind: one record a test or verdict, small enough to travel between xdist processes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

PROPERTY = "jmsc"
"""The key in a report's `user_properties` under which a record travels from an xdist worker to the controller."""


class Source(StrEnum):
    """Who speaks in a record."""

    TEST = "test"
    VERDICT = "verdict"
    """A rule of the Spark stage about the delivery log of one scenario."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one test variant, or of one rule on its log. `outcome` is a value of `conformance.outcomes`."""

    source: Source
    test: str
    """pytest node id, with parameters."""
    requirements: tuple[str, ...]
    outcome: str
    failover: str = ""
    fault: str = ""
    seconds: float = 0.0
    failover_seconds: tuple[float, ...] = ()
    """From the fault to restored service, for each client that failed over."""
    message: str = ""
    log: str = ""
    """File name of the delivery log."""
    evidence: tuple[str, ...] = ()
    """What proves that the fault happened."""
    replay: str = ""
    """One command that does it again."""
    rule: str = ""
    messages: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()


class RunResults(msgspec.Struct, kw_only=True):
    """Everything that a pytest run hands to certification; `complete` is False until its very end."""

    broker: str
    broker_title: str
    adapter: str
    engine: str
    profile: str
    failovers: tuple[str, ...]
    seed: int
    lacks: dict[str, str]
    versions: dict[str, str] = {}
    proxy: str = ""
    expected: tuple[str, ...] = ()
    """Node IDs of all tests that were to be run: one without a record came to no result."""
    records: list[Record] = []
    tallies: list[dict[str, Any]] = []
    interrupted: str = ""
    complete: bool = False


def encode(record: Record) -> str:
    """For `user_properties`, which must be plain text."""
    return msgspec.json.encode(record).decode()


def decode(text: str) -> Record:
    """Back from `user_properties`."""
    return msgspec.json.decode(text, type=Record)
