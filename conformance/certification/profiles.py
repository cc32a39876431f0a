"""Certification profiles: which requirements, faults and failover profiles a run must show.

Not to be confused with the failover profiles RA, RC and NF, which say what a product claims to do at a loss.

A profile is a file beside this module, with a list of requirement IDs that is committed. So a test that is deleted or
renamed away leaves its requirement untested, which is no pass; and what the profile does not list, its certificate says
nothing about.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

from conformance.catalogue import Level, Requirement
from conformance.errors import UserError

NAMES = ("core", "full")


class CertificationProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named set of requirements and variants."""

    name: str
    meaning: str
    levels: tuple[Level, ...]
    tiers: tuple[int, ...]
    every_fault: bool
    """All fault codes of a test, or only its first."""
    every_failover: bool
    """All failover profiles that the broker claims, or only its first."""
    requirements: tuple[str, ...]
    """The IDs that a certificate of this profile speaks about."""

    def wants(self, requirement: Requirement) -> bool:
        """Whether tests of the requirement belong to a run, by level and tier."""
        return requirement.level in self.levels and requirement.tier in self.tiers

    def faults(self, faults: Sequence[str]) -> Sequence[str]:
        """The fault variants of a test to run."""
        return faults if self.every_fault else faults[:1]

    def failovers(self, claimed: Sequence[str]) -> Sequence[str]:
        """The failover profiles to run in."""
        return claimed if self.every_failover else claimed[:1]


@cache
def certification_profile(name: str) -> CertificationProfile:
    """The profile of that name; UserError if there is none."""
    if name not in NAMES:
        raise UserError(f"There is no certification profile {name!r}; there are: {', '.join(NAMES)}.")
    file = resources.files(__package__) / f"profile_{name}.toml"
    return msgspec.toml.decode(file.read_bytes(), type=CertificationProfile)
