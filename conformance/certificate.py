"""`certificate.json`: what a run found, complete and on its own.

Reports and comparisons are made from a certificate and nothing else. It is written to a temporary file and renamed, and
its last member says `complete: true`, so that neither a run that was killed nor a file that was cut can be taken for a
pass.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from conformance.catalogue import Level, Profile, Subject, load
from conformance.errors import UserError
from conformance.outcomes import ExitStatus, Finding, Judged, Judgement, Outcome, Trial, Waiver

SCHEMA_VERSION = 1
CERTIFICATE_NAME = "certificate.json"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement: its outcome, why, whose merit or fault it is, and what showed it."""

    id: str
    outcome: Outcome
    detail: str
    group: str
    level: Level
    tier: int
    subject: Subject
    credited_to: str
    sentence: str
    observation: str = ""
    right_outcome: Mapping[Profile, str] = {}
    tests: tuple[Trial, ...] = ()
    findings: tuple[Finding, ...] = ()
    waiver: Waiver | None = None


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of fault: how often it was injected, and one line of evidence for each time or a sample of them."""

    kind: str
    count: int
    evidence: tuple[str, ...] = ()
    meaning: str = ""


class Tally(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Spark counted over all delivery logs of one acknowledge mode, fault and failover profile.

    `confirmed` are messages whose send was confirmed, `indeterminate` those whose sender never learned the outcome,
    `received` distinct messages. `lost` were confirmed, must not get lost, and never came. Later copies are counted by
    whether the mode allows them; `flags_missing` are those without the redelivered flag.
    """

    mode: str
    fault: str
    failover: str = ""
    scenarios: int = 0
    confirmed: int = 0
    indeterminate: int = 0
    received: int = 0
    lost: int = 0
    duplicates_allowed: int = 0
    duplicates_not_allowed: int = 0
    flags_missing: int = 0


class FailoverTime(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds from an injected fault to restored service, as the tests of one fault measured them."""

    fault: str
    failover: Profile
    seconds: tuple[float, ...]


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run.

    `engine` is who fails over; `products` and `versions` are names with versions, `groups` IDs with titles; times are
    UTC; `replay` is a command that repeats the run.
    """

    schema_version: int
    broker: str
    adapter: str
    engine: str
    certification_profile: str
    failover_profiles: tuple[Profile, ...]
    verdict: str
    exit_status: int
    seed: int
    proxy: str
    products: Mapping[str, str]
    versions: Mapping[str, str]
    started: dt.datetime
    finished: dt.datetime
    replay: str
    problems: tuple[str, ...]
    results: tuple[Result, ...]
    groups: Mapping[str, str] = {}
    faults: tuple[InjectedFault, ...] = ()
    tallies: tuple[Tally, ...] = ()
    failover_times: tuple[FailoverTime, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False

    def count(self, outcome: Outcome) -> int:
        """How many requirements have this outcome."""
        return sum(result.outcome is outcome for result in self.results)


VERDICTS = {
    ExitStatus.CONFORMS: "conforms",
    ExitStatus.NON_CONFORMANCE: "does not conform",
    ExitStatus.NO_VERDICT: "no verdict",
}


def credited_to(subject: Subject, broker: str, engine: str) -> str:
    """Whose merit or fault a row is; never the broker's for what the failover engine under the adapter did."""
    match subject:
        case "client":
            return engine
        case "broker":
            return broker
        case "pair":
            return f"{broker} with {engine}"


def result(judged: Judged, *, broker: str, engine: str) -> Result:
    """The certificate's row for a judged requirement; `engine` is who fails over, as the adapter says."""
    row = judged.requirement
    return Result(
        id=row.id,
        outcome=judged.outcome,
        detail=judged.detail,
        group=row.group,
        level=row.level,
        tier=row.tier,
        subject=row.subject,
        credited_to=credited_to(row.subject, broker, engine),
        sentence=row.sentence,
        observation=row.observation,
        right_outcome=row.outcome,
        tests=judged.trials,
        findings=judged.findings,
        waiver=judged.waiver,
    )


def certify(
    judgement: Judgement,
    *,
    broker: str,
    adapter: str,
    engine: str,
    certification_profile: str,
    failover_profiles: tuple[Profile, ...],
    seed: int,
    proxy: str,
    products: Mapping[str, str],
    versions: Mapping[str, str],
    started: dt.datetime,
    finished: dt.datetime,
    replay: str,
    faults: tuple[InjectedFault, ...] = (),
    tallies: tuple[Tally, ...] = (),
    notes: tuple[str, ...] = (),
) -> Certificate:
    """The certificate of a judged run; still to be written, and complete only then."""
    status = judgement.exit_status()
    present = {judged.requirement.group for judged in judgement.results}
    return Certificate(
        schema_version=SCHEMA_VERSION,
        broker=broker,
        adapter=adapter,
        engine=engine,
        certification_profile=certification_profile,
        failover_profiles=failover_profiles,
        verdict=VERDICTS[status],
        exit_status=int(status),
        seed=seed,
        proxy=proxy,
        products=products,
        versions=versions,
        started=started,
        finished=finished,
        replay=replay,
        problems=(*judgement.problems, *judgement.unjudged),
        results=tuple(result(judged, broker=broker, engine=engine) for judged in judgement.results),
        groups={group.id: group.title for group in load().groups.values() if group.id in present},
        faults=tuple(msgspec.structs.replace(f, meaning=f.meaning or load().faults.get(f.kind, "")) for f in faults),
        tallies=tallies,
        failover_times=_failover_times(judgement),
        notes=notes,
    )


def _failover_times(judgement: Judgement) -> tuple[FailoverTime, ...]:
    trials = dict.fromkeys(trial for judged in judgement.results for trial in judged.trials if trial.failover_seconds)
    found: dict[tuple[str, Profile], list[float]] = {}
    for trial in trials:
        if trial.failover is not None:
            found.setdefault((trial.fault, trial.failover), []).extend(trial.failover_seconds)
    return tuple(
        FailoverTime(fault=fault, failover=failover, seconds=tuple(seconds))
        for (fault, failover), seconds in sorted(found.items())
    )


def write(certificate: Certificate, path: Path) -> Certificate:
    """Write the certificate, marked complete, so that the file is there whole or not at all; returns it as written."""
    whole = msgspec.structs.replace(certificate, complete=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return whole


def read(path: Path) -> Certificate:
    """The certificate in a file or in a run's directory; `UserError` if it is missing, damaged or incomplete."""
    file = path / CERTIFICATE_NAME if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"There is no certificate at {file}: {error.strerror}. Did the run finish?") from error
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise UserError(f"{file} has schema version {version}; this program reads version {SCHEMA_VERSION}.")
        certificate = msgspec.json.decode(data, type=Certificate)
    except msgspec.DecodeError as error:
        raise UserError(f"{file} is no certificate, or a damaged one: {error}.") from error
    if not certificate.complete:
        raise UserError(f"{file} is not complete: the run did not finish, so it certifies nothing.")
    return certificate


class _Versioned(msgspec.Struct):
    schema_version: int
