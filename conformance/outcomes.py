"""From what tests and verdicts showed to one outcome for each requirement, and from those to the exit status.

A requirement usually has several *showings*: trials (one run of a test under one fault and failover profile) and
findings (one rule of the verdict on one delivery log). They fold by the worst word that any of them says:

    failed > harness-failed > setup-failed > warning > passed > not-applicable > untested

A failure of a SHOULD or a MAY is a warning. A declared lack of a capability comes before all of it: the row is then
not applicable, with the reason. Last come waivers, which turn a failure or a warning into `waived` for one named
requirement until a date; a waiver that has expired, or that matches no failure any more, fails the run.

Nothing that did not happen is ever green: no showing means untested, a run in which nothing ran is a problem of the
run, and so is a test that was to be run and came to no result. What the suite has no test for is listed as untested and
does not count against a product.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path

import msgspec

from conformance.catalogue import Catalogue, Profile, Requirement
from conformance.errors import UserError


class Outcome(StrEnum):
    """The word on one showing, or on one requirement."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    WAIVED = "waived"
    NOT_APPLICABLE = "not-applicable"
    UNTESTED = "untested"
    SETUP_FAILED = "setup-failed"
    HARNESS_FAILED = "harness-failed"


class ExitStatus(IntEnum):
    """What a run tells the shell; 2 is left to errors in what the user gave."""

    CONFORMS = 0
    NON_CONFORMANCE = 1
    NO_VERDICT = 3


WORST_FIRST = (
    Outcome.FAILED,
    Outcome.HARNESS_FAILED,
    Outcome.SETUP_FAILED,
    Outcome.WARNING,
    Outcome.PASSED,
    Outcome.NOT_APPLICABLE,
    Outcome.UNTESTED,
)
RAN = frozenset({Outcome.PASSED, Outcome.FAILED, Outcome.WARNING})
GREEN = frozenset({Outcome.PASSED, Outcome.WAIVED, Outcome.NOT_APPLICABLE})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a test: `test` is its pytest node ID, parameters included, `replay` a command that repeats it.

    `seconds` is the duration of the test; `failover_seconds` are the times from injected fault to restored service that
    it measured; `message` says what was seen instead of what is required, or why it does not apply.
    """

    test: str
    outcome: Outcome
    requirements: tuple[str, ...] = ()
    fault: str = "none"
    failover: Profile | None = None
    seconds: float = 0.0
    failover_seconds: tuple[float, ...] = ()
    message: str = ""
    replay: str = ""
    log: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule of the verdict says about one scenario's delivery log.

    `positions` are the numbers of the log's events that show it, `messages` the ids of the messages concerned.
    """

    rule: str
    scenario: str
    outcome: Outcome
    requirements: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    mode: str = ""
    fault: str = ""
    failover: Profile | None = None
    message: str = ""
    replay: str = ""
    log: str = ""


Showing = Trial | Finding


class Waiver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Someone's word that a named requirement may fail, for a stated reason, until the end of a date.

    With `broker` or `adapter` it holds for that one only.
    """

    requirement: str
    reason: str
    owner: str
    expires: dt.date
    broker: str | None = None
    adapter: str | None = None

    def concerns(self, broker: str, adapter: str) -> bool:
        """Whether the waiver is about this run at all."""
        return self.broker in {None, broker} and self.adapter in {None, adapter}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement with its outcome, the sentence that explains it, and what showed it."""

    requirement: Requirement
    outcome: Outcome
    detail: str
    trials: tuple[Trial, ...] = ()
    findings: tuple[Finding, ...] = ()
    waiver: Waiver | None = None

    @property
    def green(self) -> bool:
        """Whether it is no obstacle to conformance."""
        return self.outcome in GREEN


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of each requirement of the profile, and what is wrong with the run as a whole.

    `problems` fail the run although no requirement of it failed; `unjudged` says which of them are no failure of the
    product (nothing ran, a test vanished), so that the exit status can tell the two apart.
    """

    results: tuple[Judged, ...]
    problems: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    def exit_status(self) -> ExitStatus:
        """0 only if every MUST that the suite can test passed, is waived or does not apply, and there is no problem."""
        if self.problems or any(judged.outcome is Outcome.FAILED for judged in self.results):
            return ExitStatus.NON_CONFORMANCE
        broken = any(judged.outcome in {Outcome.SETUP_FAILED, Outcome.HARNESS_FAILED} for judged in self.results)
        if self.unjudged or broken or any(r.requirement.level == "MUST" and not r.green for r in self.results):
            return ExitStatus.NO_VERDICT
        return ExitStatus.CONFORMS


class _WaiverFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    waiver: tuple[Waiver, ...] = ()


def read_waivers(file: Path, catalogue: Catalogue) -> tuple[Waiver, ...]:
    """The waivers in a TOML file of `[[waiver]]` tables; `UserError` if it cannot be read or names no requirement."""
    try:
        waivers = msgspec.toml.decode(file.read_bytes(), type=_WaiverFile).waiver
    except OSError as error:
        raise UserError(f"The waivers in {file} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise UserError(f"The waivers in {file} cannot be understood: {error}.") from error
    for waiver in waivers:
        if waiver.requirement not in catalogue.requirements:
            raise UserError(f"{file} waives {waiver.requirement!r}, which the catalogue does not have.")
        if not waiver.reason.strip() or not waiver.owner.strip():
            raise UserError(f"{file}: the waiver of {waiver.requirement} needs a reason and an owner.")
    return waivers


def fold(row: Requirement, showings: Sequence[Showing], excused: str | None = None) -> tuple[Outcome, str]:
    """The outcome of one requirement and a sentence about it; `excused` is why it does not apply, if it does not."""
    if excused is not None:
        return Outcome.NOT_APPLICABLE, excused
    outcomes = [showing.outcome for showing in showings]
    worst = next((outcome for outcome in WORST_FIRST if outcome in outcomes), Outcome.UNTESTED)
    if worst is Outcome.UNTESTED:
        return worst, "No test or verdict of this run shows it."
    loudest = next(showing for showing in showings if showing.outcome is worst)
    first_line = loudest.message.strip().split("\n", 1)[0]
    if worst is Outcome.PASSED:
        return worst, _passed(row, showings)
    if worst is Outcome.NOT_APPLICABLE:
        return worst, first_line or "Each of its tests says that it does not apply, without a reason."
    ran = sum(outcome is not Outcome.NOT_APPLICABLE for outcome in outcomes)
    detail = f"{outcomes.count(worst)} of {ran} {worst.value}: {first_line or 'no message'}"
    if worst is Outcome.FAILED and row.level != "MUST":
        worst = Outcome.WARNING
    return worst, detail


def _passed(row: Requirement, showings: Sequence[Showing]) -> str:
    passed = [showing for showing in showings if showing.outcome is Outcome.PASSED]
    trials = sum(isinstance(showing, Trial) for showing in passed)
    counts = [
        f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((trials, "test"), (len(passed) - trials, "verdict")) if n
    ]
    missing = [fault for fault in row.faults if fault not in {"all", *(showing.fault for showing in passed)}]
    return " and ".join(counts) + (f"; not injected: {', '.join(missing)}" if missing else "")


def judge(
    rows: Iterable[Requirement],
    showings: Sequence[Showing],
    *,
    excused: Mapping[str, str],
    waivers: Sequence[Waiver] = (),
    broker: str,
    adapter: str,
    today: dt.date,
    expected_tests: Collection[str] = (),
) -> Judgement:
    """Fold a run: one outcome for each of `rows`, the requirements of the certification profile.

    `excused` gives, by ID, why a row does not apply. `expected_tests` are node IDs, with or without parameters, that
    the run must have brought to a result.
    """
    required = {row.id: row for row in rows}
    by_row: dict[str, list[Showing]] = {row_id: [] for row_id in required}
    problems: list[str] = []
    unjudged: list[str] = []
    for showing in showings:
        concerned = [row for row in dict.fromkeys(showing.requirements) if _concerns(showing, required.get(row))]
        for row_id in concerned:
            by_row[row_id].append(showing)
        if not concerned and showing.outcome in {Outcome.FAILED, Outcome.HARNESS_FAILED, Outcome.SETUP_FAILED}:
            stray = f"{_name(showing)}: {showing.outcome.value}, and it shows no requirement of this profile."
            (problems if showing.outcome is Outcome.FAILED else unjudged).append(stray)

    results = []
    concerning = [waiver for waiver in waivers if waiver.concerns(broker, adapter)]
    for row in required.values():
        outcome, detail = fold(row, by_row[row.id], excused.get(row.id))
        waiver = next((w for w in concerning if w.requirement == row.id and w.expires >= today), None)
        if waiver is not None and outcome in {Outcome.FAILED, Outcome.WARNING}:
            detail = f"Waived by {waiver.owner} until {waiver.expires}: {waiver.reason} ({detail})"
            outcome = Outcome.WAIVED
        else:
            waiver = None
        results.append(
            Judged(
                requirement=row,
                outcome=outcome,
                detail=detail,
                trials=tuple(s for s in by_row[row.id] if isinstance(s, Trial)),
                findings=tuple(s for s in by_row[row.id] if isinstance(s, Finding)),
                waiver=waiver,
            )
        )
    problems += _waiver_problems(concerning, results, today)
    return Judgement(
        results=tuple(results),
        problems=tuple(problems),
        unjudged=(*unjudged, *_nothing_ran(results), *vanished(expected_tests, showings)),
    )


def _concerns(showing: Showing, row: Requirement | None) -> bool:
    """Whether the showing is about the row: in failover profiles that the row leaves out it says nothing."""
    return row is not None and (showing.failover is None or showing.failover in row.profiles)


def vanished(expected: Collection[str], showings: Iterable[Showing]) -> tuple[str, ...]:
    """A sentence for each expected test without a result, for example because the process that ran it died."""
    there = {s.test for s in showings if isinstance(s, Trial)}
    there |= {test.split("[", 1)[0] for test in there}
    return tuple(f"{test} was to be run and came to no result." for test in expected if test not in there)


def _nothing_ran(results: Sequence[Judged]) -> list[str]:
    trials = any(trial.outcome in RAN for judged in results for trial in judged.trials)
    findings = any(finding.outcome in RAN for judged in results for finding in judged.findings)
    return [] if trials or findings else ["Nothing ran: no test and no verdict of this profile came to a result."]


def _waiver_problems(waivers: Sequence[Waiver], results: Sequence[Judged], today: dt.date) -> list[str]:
    used = {id(judged.waiver) for judged in results}
    outcomes = {judged.requirement.id: judged.outcome for judged in results}
    problems = []
    for waiver in waivers:
        name = f"The waiver of {waiver.requirement} by {waiver.owner}"
        if waiver.expires < today:
            problems.append(f"{name} expired on {waiver.expires}: renew it or remove it.")
        elif id(waiver) not in used:
            now = outcomes.get(waiver.requirement)
            state = "is not part of this profile" if now is None else f"is {now.value}"
            problems.append(f"{name} matches no failure: {waiver.requirement} {state}; remove the waiver.")
    return problems


def _name(showing: Showing) -> str:
    return showing.test if isinstance(showing, Trial) else f"Rule {showing.rule} on {showing.scenario}"
