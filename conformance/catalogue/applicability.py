"""Which requirements apply to a product: by failover profile, and by the capabilities that it declares it lacks.

Nothing is excused without a reason. A capability counts as claimed unless the broker definition declares it absent and
says why; that reason is what the certificate then prints.
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.catalogue import Profile, Requirement

SUITE_MUST_CONTROL_NODES = frozenset(
    {"kill-live", "kill-backup", "kill-both", "stop", "restart", "disk-err", "slow-disk"}
)
BROKER_DIES = frozenset({"kill-live", "kill-both", "stop", "restart"})
UNDISTURBED = frozenset({"none", "client-kill", "latency", "slow-disk", "disk-err"})
SURVIVAL = "shared-store|replicated-store|packet-replication|durable-restart"

_CLIENT_SEES_FAILOVER = frozenset(
    {"MSG", "SND", "ACK-AUTO", "ACK-CLIENT", "ACK-DUPS", "TX", "XA", "TMP", "BRW", "SUB", "ORD", "DUP", "LNK"}
)


def needs_under(requirement: Requirement, profile: Profile) -> tuple[str, ...]:
    """The capabilities that the row needs in this profile; "a|b" is satisfied by one of the two.

    Under NF failover is off, so `auto-failover` is never asked for. Rows about ordinary messaging whose every fault
    breaks the client's link need a client that comes back; those whose every fault ends the broker need a store that
    survives it, or under RA a backup that holds the session. Faults in a broker's process need a suite that
    controls it.
    """
    needs = list(requirement.needs)
    faults = set(requirement.faults)
    if requirement.group in _CLIENT_SEES_FAILOVER:
        if not faults & UNDISTURBED and "all" not in faults:
            needs.append("auto-failover")
        if faults <= BROKER_DIES:
            needs.append("packet-replication" if profile == "RA" else SURVIVAL)
    if faults <= SUITE_MUST_CONTROL_NODES:
        needs.append("process-control")
    if profile == "NF":
        needs = [need for need in needs if need != "auto-failover"]
    return tuple(dict.fromkeys(needs))


def not_applicable(requirement: Requirement, profile: Profile, absent: Mapping[str, str]) -> str | None:
    """Why the row does not apply, or None if it does.

    `absent` are the capabilities that the product declares it lacks, each with its reason.
    """
    if profile not in requirement.profiles:
        return f"says nothing about failover profile {profile} (applies to {', '.join(requirement.profiles)})"
    for need in needs_under(requirement, profile):
        alternatives = need.split("|")
        if all(name in absent for name in alternatives):
            return "; ".join(f"no {name}: {absent[name]}" for name in alternatives)
    return None
