"""What a scenario adds to the report's counts: loss and duplication."""

from __future__ import annotations

import msgspec

from spark_analysis.deliveries import Fate
from spark_analysis.history import History
from spark_analysis.redelivery import repeats
from spark_analysis.rules import lost


class ScenarioTally(msgspec.Struct, frozen=True):
    """Counts of messages in one scenario, with the conditions that the report groups by."""

    scenario: str
    mode: str  # acknowledge modes that the fault met
    fault: str
    failover: str
    confirmed: int  # messages that were confirmed to their sender
    indeterminate: int  # messages whose sender could not know
    received: int  # distinct messages received, once a stream
    lost: int
    duplicates_allowed: int
    duplicates_not_allowed: int
    flags_missing: int


def tally(history: History) -> ScenarioTally:
    """Count one scenario."""
    found = repeats(history)
    header = history.header
    return ScenarioTally(
        header.scenario,
        "+".join(history.exposed_modes()),
        header.fault,
        header.failover,
        confirmed=sum(message.confirmed is not None for message in history.messages.values()),
        indeterminate=sum(
            message.confirmed is None and any(send.fate is Fate.UNKNOWN for send in message.sends)
            for message in history.messages.values()
        ),
        received=len(history.by_message),
        lost=len({(miss.stream, miss.send.message) for miss in lost.accounts(history).missing}),
        duplicates_allowed=sum(repeat.allowed for repeat in found),
        duplicates_not_allowed=sum(not repeat.allowed for repeat in found),
        flags_missing=sum(repeat.flag_missing for repeat in found),
    )
