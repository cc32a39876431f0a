"""Switchable defects: the proof that the suite catches a wrong broker or client.

Each names its seam, says in one sentence what goes wrong, and the requirement that it violates and by which a run
has to catch it. They are armed by name, at start, by `--defect` or a client option, and by nothing else; the seam
asks `"name" in defects`. Where a defect acts only now and then, the rule is deterministic and stands in its
sentence.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class UnknownDefect(ValueError):
    """A name that no defect has."""


class Defect(msgspec.Struct, frozen=True):
    """One deliberate mistake."""

    name: str
    seam: str
    """The module and the place where it acts."""
    sentence: str
    violates: tuple[str, ...]
    """Requirement IDs; the first is the one that must catch it."""


BROKER_DEFECTS: tuple[Defect, ...] = ()

CLIENT_DEFECTS: tuple[Defect, ...] = ()


def arm(names: Iterable[str], known: Iterable[Defect]) -> frozenset[str]:
    """The names as a set, if all are known; UnknownDefect otherwise."""
    chosen, available = frozenset(names), {defect.name for defect in known}
    if missing := sorted(chosen - available):
        raise UnknownDefect(f"no such defect: {', '.join(missing)}; known are: {', '.join(sorted(available))}")
    return chosen
