"""What a rule says about a scenario, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from spark_analysis.history import History


class FindingOutcome(StrEnum):
    """A rule's word on one scenario; only ``PASSED`` says that the requirement was seen to hold."""

    PASSED = "passed"
    FAILED = "failed"
    INDETERMINATE = "indeterminate"
    NOT_APPLICABLE = "not-applicable"


class Finding(msgspec.Struct, frozen=True):
    """One rule's verdict on one scenario, with the message uids and log positions that show it."""

    scenario: str
    rule: str
    outcome: FindingOutcome
    messages: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    detail: str = ""
    requirements: tuple[str, ...] = ()
    mode: str = ""


class Judgement(msgspec.Struct):
    """What a rule found in one history; ``conditions`` select the requirement IDs that were at stake."""

    outcome: FindingOutcome
    detail: str
    conditions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()


class Rule(msgspec.Struct, frozen=True):
    """A rule of the verdict.

    ``requirements`` maps a condition to the catalogue IDs that the rule shows under it. Conditions are the acknowledge
    modes, ``any`` (always), ``NON_PERSISTENT``, ``failure`` and ``duplicate-detection``.
    ``judge`` returns None where the scenario gives the rule nothing to judge.
    """

    name: str
    meaning: str
    requirements: Mapping[str, tuple[str, ...]]
    judge: Callable[[History], Judgement | None]

    def shows(self, conditions: tuple[str, ...]) -> tuple[str, ...]:
        """The requirement IDs at stake under these conditions, each once, in the table's order."""
        wanted = {"any", *conditions}
        ids = [ident for name, row in self.requirements.items() if name in wanted for ident in row]
        return tuple(dict.fromkeys(ids))


def listed(names: list[str] | tuple[str, ...], most: int = 5) -> str:
    """Names for a sentence, cut after a few."""
    head = ", ".join(names[:most])
    return head if len(names) <= most else f"{head} and {len(names) - most} more"
