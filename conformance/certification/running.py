"""One pytest run in a process of its own, followed while it goes and ended without a trace.

The output directory keeps `logs/`, `junit.xml`, `results.json` and `pytest.log`. Everything that brokers and proxies
write lives in `work/` inside it, the child's temporary directory, which is removed whatever happens.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from conformance.certification.record import RunResults
from conformance.errors import UserError
from fixtures.processes import ChildProcess

Step = dict[str, Any]
POLL = 0.1


class RunFailed(UserError):
    """pytest ended without results: a fault of the harness, told with its last lines."""


class Output:
    """The directory of one certification, made empty of what an earlier one left."""

    STALE = ("certificate.json", "report.html", "junit.xml", "results.json", "progress.jsonl", "pytest.log")

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / "logs"
        self.work = self.directory / "work"
        self.results = self.directory / "results.json"
        self.progress = self.directory / "progress.jsonl"
        self.junit = self.directory / "junit.xml"
        self.console = self.directory / "pytest.log"

    def prepare(self) -> None:
        """Create it; remove an earlier certificate first, so that a run which fails leaves none."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for name in self.STALE:
                (self.directory / name).unlink(missing_ok=True)
            shutil.rmtree(self.logs, ignore_errors=True)
            shutil.rmtree(self.work, ignore_errors=True)
            self.logs.mkdir()
            self.work.mkdir()
        except OSError as error:
            raise UserError(
                f"Nothing can be written to {self.directory}: {error.strerror}; choose another --output."
            ) from error

    def clean(self) -> None:
        """Remove what only the run needed."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.progress.unlink(missing_ok=True)


def run_chapters(output: Output, options: Sequence[str], workers: int, told: Callable[[Step], None]) -> RunResults:
    """Run the chapters; `told` is called with each step of progress. Raises RunFailed if no results came of it."""
    argv = [sys.executable, "-m", "pytest", "--pyargs", "conformance.chapters", "-p", "no:cacheprovider", "-q"]
    argv += ["--logs", str(output.logs), "--results", str(output.results), "--progress", str(output.progress)]
    argv += ["--junit-xml", str(output.junit), "--basetemp", str(output.work / "pytest"), *options]
    if workers > 1:
        argv += ["-n", str(workers)]
    environment = {**os.environ, "TMPDIR": str(output.work)}
    with ChildProcess("pytest", argv, env=environment, log=output.console) as child:
        try:
            _follow(child, output.progress, told)
        except BaseException:
            child.terminate()
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
    if results.interrupted:
        raise RunFailed(f"The test run was cut short, {results.interrupted}: {_last_words(output)}")
    return results


def _last_words(output: Output) -> str:
    try:
        lines = output.console.read_text(errors="replace").splitlines()
    except OSError:
        return "it wrote nothing."
    errors = [line for line in lines if line.startswith(("ERROR", "E  "))]
    return " | ".join((errors or lines)[-8:]) + f" (all of it: {output.console})"
