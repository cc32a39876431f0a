"""From the records of a run to its certificate."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance import certificate as certificates
from conformance.catalogue import Profile, Requirement, load
from conformance.catalogue.applicability import not_applicable
from conformance.certificate import Certificate, InjectedFault, Tally
from conformance.certification.profiles import certification_profile
from conformance.outcomes import Finding, Outcome, Trial, Waiver, judge
from conformance.record import Record, RunResults, Source


def make_certificate(
    results: RunResults, waivers: Sequence[Waiver], started: dt.datetime, replay: str, logs: Path
) -> Certificate:
    """Judge the run; still to be written, and complete only then."""
    failovers: tuple[Profile, ...] = msgspec.convert(results.failovers, tuple[Profile, ...])
    profile = certification_profile(results.profile)
    rows = [load().requirement(row) for row in profile.requirements]
    finished = dt.datetime.now(dt.UTC)
    judgement = judge(
        rows,
        [_showing(record) for record in results.records],
        excused=_excused(rows, failovers, results.lacks),
        waivers=waivers,
        broker=results.broker,
        adapter=results.adapter,
        today=finished.date(),
        expected_tests=results.expected,
    )
    return certificates.certify(
        judgement,
        broker=results.broker,
        adapter=results.adapter,
        engine=results.engine,
        certification_profile=results.profile,
        failover_profiles=failovers,
        seed=results.seed,
        proxy=results.proxy,
        products={results.broker_title: results.versions.get(results.broker_title, "unknown")},
        versions={name: version for name, version in results.versions.items() if name != results.broker_title},
        started=started,
        finished=finished,
        replay=replay,
        faults=_faults(results.records),
        tallies=msgspec.convert(results.tallies, tuple[Tally, ...]),
        notes=(_scope(len(rows)), f"Delivery logs: {logs.name}/ beside this certificate."),
    )


def _showing(record: Record) -> Trial | Finding:
    outcome = Outcome(record.outcome)
    if record.source is Source.VERDICT:
        return Finding(
            rule=record.rule,
            scenario=record.test.partition("[")[2].removesuffix("]"),
            outcome=outcome,
            requirements=record.requirements,
            messages=record.messages,
            positions=record.positions,
            fault=record.fault,
            failover=msgspec.convert(record.failover, Profile) if record.failover else None,
            message=record.message,
            replay=record.replay,
            log=record.log,
        )
    return Trial(
        test=record.test,
        outcome=outcome,
        requirements=record.requirements,
        fault=record.fault,
        failover=msgspec.convert(record.failover, Profile),
        seconds=record.seconds,
        failover_seconds=record.failover_seconds,
        message=record.message,
        replay=record.replay,
        log=record.log,
    )


def _scope(rows: int) -> str:
    return (
        f"The profile asks for {rows} of the {len(load())} requirements of the catalogue; about the others this "
        "certificate says nothing (jms-conformance catalogue --untested lists what has no test yet)."
    )


def _excused(rows: Sequence[Requirement], failovers: Sequence[Profile], lacks: dict[str, str]) -> dict[str, str]:
    """Rows that apply in none of the failover profiles that were run, with the reason."""
    excused = {}
    for row in rows:
        reasons = [not_applicable(row, failover, lacks) for failover in failovers]
        if reasons and all(reasons):
            excused[row.id] = next(reason for reason in reasons if reason)
    return excused


def _faults(records: Sequence[Record]) -> tuple[InjectedFault, ...]:
    """What was injected, by code, with a few of the proofs."""
    evidence: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    for record in records:
        if record.source is Source.TEST and record.evidence and record.fault != "none":
            counts[record.fault] += len(record.evidence)
            evidence[record.fault].append(record.evidence[0])
    return tuple(
        InjectedFault(kind=fault, count=counts[fault], evidence=tuple(evidence[fault][:3])) for fault in sorted(counts)
    )
