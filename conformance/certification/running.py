"""One pytest run in a process of its own, followed while it goes and ended without a trace.

The output directory keeps `logs/`, `junit.xml`, `results.json` and `pytest.log`. Everything that brokers and proxies
write lives in `work/` inside it, the child's temporary directory, which is removed whatever happens.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from conformance.errors import UserError
from conformance.outcomes import Outcome
from conformance.record import RunResults
from fixtures.processes import ChildProcess

Step = dict[str, Any]
POLL = 0.1
SOURCES = Path(__file__).resolve().parents[2]
"""The folder of the package, to which pytest's node IDs are relative, wherever the command is given."""
LONGEST_TEST = 600
"""Seconds after which a test that hangs is ended: all its waits have deadlines of their own, far below."""
GRACE = 10.0
"""Seconds in which an interrupted run may end its brokers in order before it is killed with all that it began."""


class RunFailed(Exception):
    """The run came to no results, so there can be no verdict: says why, with the last lines of who failed."""


class Output:
    """The directory of one certification, made empty of what an earlier one left."""

    RESULTS = ("certificate.json", "report.html", "junit.xml", "results.json", "progress.jsonl", "pytest.log")

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / "logs"
        self.work = self.directory / "work"
        self.certificate = self.directory / "certificate.json"
        self.report = self.directory / "report.html"
        self.results = self.directory / "results.json"
        self.progress = self.directory / "progress.jsonl"
        self.junit = self.directory / "junit.xml"
        self.console = self.directory / "pytest.log"

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The directory, ready for a run; a block that fails leaves no certificate in it, not even an earlier one.

        Raises UserError if it cannot be written, holds something else, or belongs to a run that is going on.
        """
        with self._locked():
            try:
                self._empty()
                self.logs.mkdir()
                self.work.mkdir()
            except OSError as error:
                raise self._refused(error.strerror or str(error)) from error
            try:
                yield
            except BaseException:
                self.certificate.unlink(missing_ok=True)
                self.report.unlink(missing_ok=True)
                raise
            finally:
                shutil.rmtree(self.work, ignore_errors=True)
                self.progress.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.directory, os.O_RDONLY)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise self._refused("another certification is writing there") from None
        finally:
            os.close(descriptor)

    def _empty(self) -> None:
        there = {entry.name for entry in self.directory.iterdir()}
        if there and there.isdisjoint(self.RESULTS):
            raise self._refused("it holds files that are no results of a certification")
        for name in self.RESULTS:
            (self.directory / name).unlink(missing_ok=True)
        for folder in (self.logs, self.work):
            if folder.exists():
                shutil.rmtree(folder)

    def _refused(self, reason: str) -> UserError:
        return UserError(f"Nothing can be written to {self.directory}: {reason}; choose another --output.")


def run_chapters(output: Output, options: Sequence[str], workers: int, told: Callable[[Step], None]) -> RunResults:
    """Run the chapters; `told` is called with each step of progress. Raises RunFailed if no results came of it."""
    settings = output.work / "pytest.ini"
    settings.write_text(f"[pytest]\ntimeout = {LONGEST_TEST}\n")  # and no settings of a project that we stand in
    argv = [sys.executable, "-m", "pytest", "--pyargs", "conformance.chapters", "-p", "no:cacheprovider", "-q"]
    argv += ["-c", str(settings), "--rootdir", str(SOURCES)]
    # In one word each: pytest takes an existing path that stands alone for a hint at its root directory.
    argv += [f"--logs={output.logs}", f"--results={output.results}", f"--progress={output.progress}"]
    argv += [f"--junit-xml={output.junit}", f"--basetemp={output.work / 'pytest'}", *options]
    if workers > 1:
        argv += ["-n", str(workers)]
    environment = {**os.environ, "TMPDIR": str(output.work)}
    environment.pop("PYTEST_ADDOPTS", None)
    with ChildProcess("pytest", argv, env=environment, log=output.console) as child:
        try:
            _follow(child, output.progress, told)
        except BaseException:
            child.interrupt(GRACE)
            raise
    return _read(output)


def _follow(child: ChildProcess, progress: Path, told: Callable[[Step], None]) -> None:
    offset = 0
    running = True
    while running:
        running = child.running
        if progress.exists():
            with progress.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if line.endswith(b"\n"):
                        offset += len(line)
                        told(msgspec.json.decode(line))
        if running:
            time.sleep(POLL)


def _read(output: Output) -> RunResults:
    try:
        results = msgspec.json.decode(output.results.read_bytes(), type=RunResults)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunFailed(f"The test run gave no results: {_last_words(output)}") from error
    _refuse_if_nothing_was_set_up(results)
    if results.interrupted:
        raise RunFailed(f"The test run was cut short, {results.interrupted}: {_last_words(output)}")
    return results


def _refuse_if_nothing_was_set_up(results: RunResults) -> None:
    """A broker that could not be started has shown nothing: one reason says more than a list of all requirements."""
    tried = [record for record in results.records if record.outcome != Outcome.NOT_APPLICABLE]
    if tried and all(record.outcome == Outcome.SETUP_FAILED for record in tried):
        raise RunFailed(f"Nothing could be tested. {tried[0].message}")


def _last_words(output: Output) -> str:
    try:
        lines = output.console.read_text(errors="replace").splitlines()
    except OSError:
        return "it wrote nothing."
    errors = [line for line in lines if line.startswith(("ERROR", "E  "))]
    return " | ".join((errors or lines)[-8:]) + f" (all of it: {output.console})"
