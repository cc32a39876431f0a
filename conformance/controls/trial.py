"""One control put to the test: the chapters that cite its requirements, run against the wrong reference."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

import conformance
from conformance.controls import Control, Side
from conformance.record import Record, RunResults
from fixtures.processes import ChildProcess
from fixtures.waiting import PATIENCE_VARIABLE

IMPATIENCE = "0.5"
"""Factor on all deadlines against a wrong reference: what never comes need not be waited for in full."""
LIMIT = 600.0
"""Seconds for one trial."""


class Trial(msgspec.Struct, frozen=True):
    """What came of it."""

    control: Control | None
    """None for the clean reference."""
    caught_by: tuple[Record, ...]
    """Failures that cite a requirement which the control violates."""
    other: tuple[Record, ...]
    """Anything else that did not pass, harness and set-up failures among it."""
    ran: int
    problem: str = ""
    """Why the trial itself did not work, empty if it did."""

    @property
    def caught(self) -> bool:
        """Whether the requirement that the control names first was seen to fail."""
        assert self.control is not None
        first = self.control.requirement_ids[0]
        return any(first in record.requirements for record in self.caught_by)

    @property
    def clean(self) -> bool:
        """For the reference without any defect: something ran and nothing failed."""
        return not self.problem and self.ran > 0 and not self.caught_by and not self.other


def put_to_trial(control: Control) -> Trial:
    """Run the chapters of the requirement that must catch it, with the defect armed; a few failures are enough."""
    option = "--broker-defect" if control.side is Side.BROKER else "--client-defect"
    return _run([option, control.name, "--maxfail=3"], control.requirement_ids[:1], control, IMPATIENCE)


def clean_trial(requirements: Sequence[str]) -> Trial:
    """Run the chapters of these requirements with nothing armed."""
    return _run([], requirements, None, os.environ.get(PATIENCE_VARIABLE, "1"))


def _run(options: list[str], requirements: Sequence[str], control: Control | None, patience: str) -> Trial:
    with tempfile.TemporaryDirectory(prefix="jmsc-control-") as directory:
        folder = Path(directory)
        argv = _command(folder, requirements) + options
        environment = {**os.environ, PATIENCE_VARIABLE: patience, "TMPDIR": directory}
        environment.pop("PYTEST_ADDOPTS", None)
        name = control.name if control else "clean reference"
        with ChildProcess(name, argv, env=environment, log=folder / "pytest.log") as child:
            child.wait(LIMIT)
            last = child.last_lines(5)
        return _read(folder / "results.json", control, last)


def _command(folder: Path, requirements: Sequence[str]) -> list[str]:
    argv = [sys.executable, "-m", "pytest", "--pyargs", "conformance.chapters", "-q", "-p", "no:cacheprovider"]
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\n")  # and no settings of a project that we stand in
    argv += ["-c", str(settings), "--rootdir", str(Path(conformance.__file__).parents[1])]
    argv += ["--broker", "reference", "--adapter", "core", "--judge", "inline", "--profile", "full"]
    argv += [f"--logs={folder / 'logs'}", f"--results={folder / 'results.json'}"]
    for requirement in requirements:
        argv += ["--requirement", requirement]
    return argv


def _read(path: Path, control: Control | None, last: list[str]) -> Trial:
    try:
        results = msgspec.json.decode(path.read_bytes(), type=RunResults)
    except (OSError, msgspec.MsgspecError) as error:
        return Trial(control, (), (), 0, f"no results ({error}); last lines: {' | '.join(last)}")
    bad = [record for record in results.records if record.outcome not in ("passed", "not-applicable")]
    violated = set(control.requirement_ids) if control else set()
    caught = [record for record in bad if record.outcome == "failed" and violated & set(record.requirements)]
    ran = sum(record.outcome != "not-applicable" for record in results.records)
    other = [record for record in bad if record not in caught]
    return Trial(control, tuple(caught), tuple(other), ran, results.interrupted)
