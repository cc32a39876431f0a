"""Runs beside each other: differences first, and a run's own profile is respected."""

from pathlib import Path

import msgspec
import pytest

from conformance.certificate import Certificate, write
from conformance.cli import application, main
from conformance.outcomes import Outcome
from conformance.report.compare import compared, render, run_names
from tests.conformance.sample_certificate import sample
from tests.conformance.test_report import Page


def passing(certificate: Certificate, *ids: str) -> Certificate:
    results = tuple(
        msgspec.structs.replace(result, outcome=Outcome.PASSED) if result.id in ids else result
        for result in certificate.results
    )
    return msgspec.structs.replace(certificate, broker="reference", results=results)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    write(sample(), tmp_path / "one" / "certificate.json")
    write(passing(sample(), "TX-03", "SND-05"), tmp_path / "two" / "certificate.json")
    return tmp_path / "one", tmp_path / "two"


def test_differences_come_first_and_worst_first():
    rows = compared([sample(), passing(sample(), "TX-03", "ACK-AUTO-10")])
    assert [row.id for row in rows if row.differs] == ["TX-03", "ACK-AUTO-10"]
    assert [row.id for row in rows[:2]] == ["TX-03", "ACK-AUTO-10"]


def test_a_requirement_that_one_profile_lacks_is_no_difference():
    smaller = msgspec.structs.replace(sample(), results=sample().results[1:])
    rows = compared([sample(), smaller])
    assert not any(row.differs for row in rows)
    assert next(row for row in rows if row.id == sample().results[0].id).results[1] is None


def test_runs_of_one_broker_are_told_apart(runs):
    one, two = runs
    assert run_names([sample(), sample()], [one, two / "certificate.json"]) == [
        "activemq-classic / stomp (one)",
        "activemq-classic / stomp (two)",
    ]
    assert run_names([sample(), passing(sample())], [one, two]) == ["activemq-classic / stomp", "reference / stomp"]


def test_the_page_is_sound():
    certificates = [sample(), passing(sample(), "TX-03")]
    html = render(certificates, ["a", "b"], compared(certificates))
    Page(html)
    assert "1 of 19 requirements differ" in html


def invoke(monkeypatch, *arguments) -> int:
    monkeypatch.setattr("sys.argv", ["jms-conformance", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_the_command_prints_differences(runs, monkeypatch, capsys):
    assert invoke(monkeypatch, "compare", *runs) == 0
    said = capsys.readouterr().out
    assert "2 of 19 requirements differ." in said
    assert "TX-03" in said
    assert "MSG-20" not in said


def test_the_command_writes_a_page(runs, monkeypatch, tmp_path):
    assert invoke(monkeypatch, "compare", *runs, "--html", tmp_path / "page.html") == 0
    Page((tmp_path / "page.html").read_text())


def test_a_run_without_a_certificate_is_one_clear_message(tmp_path, monkeypatch, capsys):
    assert invoke(monkeypatch, "compare", tmp_path) == 2
    said = capsys.readouterr().err
    assert said.startswith("jms-conformance: There is no certificate at")
    assert "Traceback" not in said


@pytest.mark.parametrize("part", ["catalogue", "compare"])
def test_a_command_loads_only_its_own_part(part):
    app = application(part)
    assert [command.name for command in app.registered_commands] == [part]
    assert app.registered_groups == []
