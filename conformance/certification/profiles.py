"""Certification profiles: which requirements, faults and failover profiles a run must show.

Not to be confused with the failover profiles RA, RC and NF, which say what a product claims to do at a loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from conformance.catalogue import Level, Requirement
from conformance.errors import UserError


class CertificationProfile(msgspec.Struct, frozen=True):
    """A named set of requirements and variants."""

    name: str
    meaning: str
    levels: tuple[Level, ...]
    tiers: tuple[int, ...]
    every_fault: bool
    """All fault codes of a test, or only its first."""
    every_failover: bool
    """All failover profiles that the broker claims, or only its first."""

    def wants(self, requirement: Requirement) -> bool:
        """Whether the requirement belongs to the profile."""
        return requirement.level in self.levels and requirement.tier in self.tiers

    def faults(self, faults: Sequence[str]) -> Sequence[str]:
        """The fault variants of a test to run."""
        return faults if self.every_fault else faults[:1]

    def failovers(self, claimed: Sequence[str]) -> Sequence[str]:
        """The failover profiles to run in."""
        return claimed if self.every_failover else claimed[:1]


PROFILES = {
    profile.name: profile
    for profile in (
        CertificationProfile(
            "core",
            "what gates a release in a minute or two: every MUST of the sources and the specification, "
            "each under its first fault, in the failover profile that the broker claims first",
            levels=("MUST",),
            tiers=(1, 2),
            every_fault=False,
            every_failover=False,
        ),
        CertificationProfile(
            "full",
            "everything: all levels and tiers, under every fault, in every failover profile that the broker claims",
            levels=("MUST", "SHOULD", "MAY"),
            tiers=(1, 2, 3),
            every_fault=True,
            every_failover=True,
        ),
    )
}


def certification_profile(name: str) -> CertificationProfile:
    """The profile of that name; UserError if there is none."""
    try:
        return PROFILES[name]
    except KeyError:
        known = ", ".join(PROFILES)
        raise UserError(f"There is no certification profile {name!r}; there are: {known}.") from None
