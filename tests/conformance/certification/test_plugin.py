"""The plugin at work: a chapter of its own, run by pytest in a process, on the real reference pair."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from conformance.record import Record, RunResults, Source

ROOT = Path(__file__).resolve().parents[3]
CHAPTER = """
import pytest
from fixtures.scene import FaultDidNotHappen
from reference_broker.jms import JMSException

@pytest.mark.requirement("SND-01", faults=("none",), profiles=("RC", "NF"))
def test_passes(scene):
    queue = scene.queue()
    sent = scene.send(queue, 2)
    assert [scene.uid(message) for message in scene.drain(queue)] == sent

@pytest.mark.requirement("SND-02", faults=("cut", "kill-live"), profiles=("RC",))
def test_strikes(scene):
    scene.fail_over(scene.connect())

@pytest.mark.requirement("SND-03", faults=("none",), profiles=("RC",))
def test_fails(scene):
    assert scene.drain(scene.queue()) == ["a miracle"], "no miracle happened"

@pytest.mark.requirement("SND-04", faults=("cut",), profiles=("RC",))
def test_forgets_its_fault(scene):
    scene.send(scene.queue())

@pytest.mark.requirement("SND-05", faults=("none",), profiles=("RC",))
@pytest.mark.needs("xa")
def test_needs(scene):
    raise AssertionError("must not be run")

@pytest.mark.requirement("ORD-01", faults=("none",), profiles=("RC",))
def test_has_a_bug_of_ours(scene):
    raise KeyError("ours")

@pytest.mark.requirement("ORD-02", faults=("none",), profiles=("RC",))
def test_skips(scene):
    pytest.skip("flaky")

@pytest.mark.requirement("ORD-03", faults=("none",), profiles=("RA",))
def test_of_another_profile(scene):
    raise AssertionError("must not be run")
"""
EXPECTED = {
    "test_passes[RC-none]": "passed",
    "test_passes[NF-none]": "passed",
    "test_strikes[RC-cut]": "passed",
    "test_strikes[RC-kill-live]": "passed",
    "test_fails[RC-none]": "failed",
    "test_forgets_its_fault[RC-cut]": "harness-failed",
    "test_needs[RC-none]": "not-applicable",
    "test_has_a_bug_of_ours[RC-none]": "harness-failed",
    "test_skips[RC-none]": "untested",
}


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_tiny.py").write_text(textwrap.dedent(CHAPTER))
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    argv = [sys.executable, "-m", "pytest", "test_tiny.py", "-p", "conformance.plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*argv, "--judge", "inline", *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_every_kind_of_result_reaches_terminal_junit_results_and_status(tmp_path: Path, workers: str) -> None:
    done = run(tmp_path, "-n", workers, "--logs", "logs", "--results", "results.json", "--junit-xml", "junit.xml")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    results = msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=RunResults)
    records = {record.test.rpartition("::")[2]: record for record in results.records if record.source is Source.TEST}

    assert {name: record.outcome for name, record in records.items()} == EXPECTED
    assert {name.rpartition("::")[2] for name in results.expected} == set(EXPECTED)
    assert results.complete
    assert (results.broker, results.adapter, results.failovers) == ("reference", "core", ("RC", "NF"))
    assert "core" in done.stdout or results.proxy
    _says_what_happened(records)

    verdicts = [record for record in results.records if record.source is Source.VERDICT]
    assert any(verdict.outcome == "passed" for verdict in verdicts)
    reported = {case.get("name") for case in ET.parse(tmp_path / "junit.xml").iter("testcase")}
    assert set(EXPECTED) <= reported
    assert {verdict.test.rpartition("::")[2] for verdict in verdicts} <= reported
    assert not list(tmp_path.glob("jmsc-*"))


def _says_what_happened(records: dict[str, Record]) -> None:
    killed = records["test_strikes[RC-kill-live]"]
    assert "was killed" in killed.evidence[0]
    assert killed.requirements == ("SND-02",)
    assert killed.failover_seconds
    assert "no miracle happened" in records["test_fails[RC-none]"].message
    assert "ended without its fault" in records["test_forgets_its_fault[RC-cut]"].message
    assert "no xa" in records["test_needs[RC-none]"].message
    assert all((record.log != "") == (name != "test_needs[RC-none]") for name, record in records.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--broker", "acme"), "there is no broker 'acme'"),
        (("--adapter", "pigeon"), "'pigeon'"),
        (("--profile", "gold"), "no certification profile 'gold'"),
        (("--requirement", "SND-999"), "no requirement 'SND-999'"),
        (("--logs", "pytest.ini/logs"), "No delivery logs can be written"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_a_usage_error_in_one_line(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = run(tmp_path, *options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_a_requirement_or_profile_deselects_what_it_does_not_want(tmp_path: Path) -> None:
    done = run(tmp_path, "--collect-only", "-q", "--requirement", "SND-02", "--profile", "core")
    assert [line for line in done.stdout.splitlines() if "::" in line] == ["test_tiny.py::test_strikes[RC-cut]"]
    assert "deselected" in done.stdout
