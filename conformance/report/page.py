"""`report.html`: a certificate as one page that needs no network, no server and no script to be read."""

from __future__ import annotations

import datetime as dt
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from conformance.certificate import Certificate, FailoverTime, Result
from conformance.outcomes import Outcome

OUTCOME_ORDER = (
    Outcome.FAILED,
    Outcome.HARNESS_FAILED,
    Outcome.SETUP_FAILED,
    Outcome.WARNING,
    Outcome.UNTESTED,
    Outcome.WAIVED,
    Outcome.NOT_APPLICABLE,
    Outcome.PASSED,
)

WORDS = {
    Outcome.FAILED: "failed",
    Outcome.HARNESS_FAILED: "harness failed",
    Outcome.SETUP_FAILED: "setup failed",
    Outcome.WARNING: "warning",
    Outcome.UNTESTED: "untested",
    Outcome.WAIVED: "waived",
    Outcome.NOT_APPLICABLE: "not applicable",
    Outcome.PASSED: "passed",
}

QUIET = frozenset({Outcome.PASSED, Outcome.NOT_APPLICABLE, Outcome.UNTESTED})
"""Showings that need one line, not a box."""


class Share(msgspec.Struct, frozen=True):
    """How many of a set of requirements have an outcome, for a bar and its legend."""

    outcome: Outcome
    count: int
    percent: float

    @property
    def word(self) -> str:
        """The outcome as people say it."""
        return WORDS[self.outcome]


class GroupSummary(msgspec.Struct, frozen=True):
    """A group of requirements with its shares."""

    id: str
    title: str
    total: int
    shares: tuple[Share, ...]


class Strip(msgspec.Struct, frozen=True):
    """Failover times of one fault, with each dot's place on a scale that all strips share."""

    time: FailoverTime
    dots: tuple[float, ...]
    median: float

    @property
    def median_seconds(self) -> float:
        """The median in seconds."""
        return statistics.median(self.time.seconds)


def write_report(certificate: Certificate, path: Path) -> None:
    """Write the page for a certificate to `path`."""
    path.write_text(render(certificate), encoding="utf-8")


def render(certificate: Certificate) -> str:
    """The page for a certificate, as HTML."""
    return template("report.html.j2").render(
        certificate=certificate,
        results=sorted(certificate.results, key=urgency),
        shares=shares(certificate.results),
        groups=group_summaries(certificate),
        strips=strips(certificate.failover_times),
        duration=certificate.finished - certificate.started,
        summary=summary(certificate),
        quiet=QUIET,
        levels=[level for level in ("MUST", "SHOULD", "MAY") if any(r.level == level for r in certificate.results)],
    )


def template(name: str) -> jinja2.Template:
    """A template beside this module, with its filters and the style and script that pages carry within them."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("conformance.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clock=lambda moment: moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        spell=spell,
        word=WORDS.__getitem__,
        number="{:,}".format,
        seconds=lambda value: f"{value:.2f} s",
        rate=rate,
    )
    folder = resources.files("conformance.report")
    environment.globals.update(
        style=Markup((folder / "page.css").read_text("utf-8")),
        script=Markup((folder / "page.js").read_text("utf-8")),
        WORDS=WORDS,
    )
    return environment.get_template(name)


def shares(results: Iterable[Result]) -> tuple[Share, ...]:
    """The outcomes that occur, worst first, with their share of all."""
    counts = Counter(result.outcome for result in results)
    total = counts.total()
    return tuple(Share(o, counts[o], 100 * counts[o] / total) for o in OUTCOME_ORDER if counts[o])


def group_summaries(certificate: Certificate) -> list[GroupSummary]:
    """Each group that the certificate has results of, in its order."""
    by_group: dict[str, list[Result]] = {}
    for result in certificate.results:
        by_group.setdefault(result.group, []).append(result)
    return [
        GroupSummary(group, certificate.groups.get(group, group), len(results), shares(results))
        for group, results in by_group.items()
    ]


def strips(times: Sequence[FailoverTime]) -> list[Strip]:
    """Failover times on one common scale that ends at the longest."""
    longest = max((second for time in times for second in time.seconds), default=0.0) or 1.0
    return [
        Strip(
            time,
            tuple(100 * second / longest for second in time.seconds),
            100 * statistics.median(time.seconds) / longest,
        )
        for time in times
        if time.seconds
    ]


def urgency(result: Result) -> int:
    """The order of requirements on the page: what did not pass first."""
    return OUTCOME_ORDER.index(result.outcome)


def summary(certificate: Certificate) -> str:
    """What stands for and against the verdict, in two sentences."""
    aside = {Outcome.NOT_APPLICABLE, Outcome.UNTESTED}
    tested = [result for result in certificate.results if result.outcome not in aside]
    against = [
        f"{count} {WORDS[outcome]}"
        for outcome in OUTCOME_ORDER
        if outcome not in {Outcome.PASSED, *aside} and (count := certificate.count(outcome))
    ]
    passed = f"{certificate.count(Outcome.PASSED)} of {len(tested)} tested requirements passed"
    beside = [f"{count} {WORDS[outcome]}" for outcome in sorted(aside) if (count := certificate.count(outcome))]
    sentence = f"{passed}; {', '.join(against)}." if against else f"{passed}."
    return f"{sentence} Beside these, {' and '.join(beside)}." if beside else sentence


def spell(duration: dt.timedelta) -> str:
    """A duration as people say it: "7 min 29 s"."""
    minutes, seconds = divmod(round(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
    return " ".join(f"{value} {unit}" for value, unit in parts if value) or "0 s"


def rate(count: int, total: int) -> str:
    """A share in percent, or one in so many where percents would need many zeros."""
    if not count or not total:
        return ""
    percent = 100 * count / total
    return f"{percent:.2g} %" if percent >= 0.01 else f"1 in {round(total / count):,}"
