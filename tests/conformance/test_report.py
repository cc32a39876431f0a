"""The report shows everything that the certificate holds, asks nothing of a network, and trusts no text."""

import datetime as dt
import re
from html.parser import HTMLParser

import msgspec
import pytest

from conformance.outcomes import Outcome
from conformance.report.page import OUTCOME_ORDER, rate, render, spell, summary, write_report
from tests.conformance.sample_certificate import sample

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """A strict reading: tags must nest, and what the tests ask about is kept."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.requirements: list[dict[str, str | None]] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "details" and "requirement" in (found.get("class") or ""):
            self.requirements.append(found)
        if "id" in found:
            self.ids.append(found["id"])
        self.addresses += [found[name] for name in ("src", "href", "action", "srcset") if name in found]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def test_every_requirement_is_there_and_what_did_not_pass_comes_first():
    certificate = sample()
    page = Page(render(certificate))
    assert sorted(row["id"] for row in page.requirements) == sorted(result.id for result in certificate.results)
    places = [OUTCOME_ORDER.index(Outcome(row["data-outcome"])) for row in page.requirements]
    assert places == sorted(places)
    assert [row["id"] for row in page.requirements if "open" in row] == ["MSG-09", "SND-05", "TX-03"]


def test_the_page_asks_nothing_of_a_network():
    html = render(sample())
    assert all(address.startswith("#") for address in Page(html).addresses)
    assert not re.search(r"https?://|//[a-z]|@import|url\(", html)


def test_every_anchor_leads_somewhere_and_no_id_is_given_twice():
    page = Page(render(sample()))
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses} <= set(page.ids)


def test_every_piece_of_evidence_is_shown():
    certificate = sample()
    html = render(certificate).replace("&#39;", "'").replace("&#34;", '"')
    for result in certificate.results:
        assert result.detail in html
        for trial in result.tests:
            assert trial.test in html
            assert trial.message in html
            if trial.outcome is not Outcome.PASSED:
                assert trial.replay in html
        for finding in result.findings:
            assert finding.rule in html
            assert all(message in html for message in finding.messages)
            assert ", ".join(map(str, finding.positions)) in html
    for fault in certificate.faults:
        assert all(line in html for line in fault.evidence)
    assert certificate.replay in html
    assert all(problem in html for problem in certificate.problems)


def test_text_of_a_product_is_never_markup():
    attack = "<script>alert(1)</script>"
    certificate = msgspec.structs.replace(sample(), broker=attack, problems=(attack,), notes=(attack,))
    results = tuple(msgspec.structs.replace(result, detail=attack) for result in certificate.results)
    html = render(msgspec.structs.replace(certificate, results=results))
    assert attack not in html
    Page(html)


def test_a_run_without_anything_still_gives_a_page():
    empty = msgspec.structs.replace(
        sample(), results=(), faults=(), tallies=(), failover_times=(), problems=("Nothing ran.",), exit_status=3
    )
    html = render(empty)
    Page(html)
    for words in (
        "Nothing ran.",
        "No requirement was judged.",
        "No fault was injected.",
        "No delivery log was judged.",
    ):
        assert words in html


def test_the_summary_names_what_stands_against_it():
    assert summary(sample()) == (
        "8 of 15 tested requirements passed; 3 failed, 1 harness failed, 1 setup failed, 1 warning, 1 waived. "
        "Beside these, 3 not applicable and 1 untested."
    )


def test_the_page_is_written(tmp_path):
    write_report(sample(), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (59.6, "1 min"), (449, "7 min 29 s"), (3600, "1 h")])
def test_durations_are_said_as_people_do(seconds, words):
    assert spell(dt.timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("count", "total", "words"), [(0, 10, ""), (3, 24000, "0.013 %"), (1, 100, "1 %"), (1, 50000, "1 in 50,000")]
)
def test_rates_are_readable(count, total, words):
    assert rate(count, total) == words
