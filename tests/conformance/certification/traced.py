"""A command run as a user runs it, traced so that whatever it leaves behind is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from fixtures.waiting import await_condition

MARK = "JMSC_TRACED"
ROOT = Path(__file__).resolve().parents[3]
EXCUSED = ("jms-conformance-ports-", "hsperfdata_", "pytest-of-")
"""What stays in a temporary directory by design: reservations of ports, the JVM's own, pytest's last three runs."""
LIMIT = 120.0
"""Seconds for one command."""


class Traced:
    """The command, with its output in files, and everything that it started known by a mark in the environment."""

    def __init__(self, argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        base = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {**base, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), MARK: self._mark, **(env or {})}
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Traced:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def until(self, probe: Callable[[], object], what: str) -> None:
        """Wait for a moment in the life of the command."""

        def probed() -> bool:
            seen = bool(probe())
            assert seen or self._process.poll() is None, f"it ended before {what}: {self.stdout}{self.stderr}"
            return seen

        await_condition(probed, what, LIMIT)

    def send(self, number: signal.Signals) -> None:
        """To the command, as `kill` does."""
        self._process.send_signal(number)

    def send_to_group(self, number: signal.Signals) -> None:
        """To the command and its group, as a terminal does."""
        os.killpg(self._process.pid, number)

    def status(self) -> int:
        """How it ended."""
        return self._process.wait(LIMIT)

    def processes(self, word: str = "") -> list[int]:
        """What it started and is still there, itself among it; with `word`, only what has that in its command line."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{MARK}={self._mark}".encode() in (entry / "environ").read_bytes()
                if marked and word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it has ended meanwhile, or is not ours
                continue
        return found

    def assert_nothing_left(self) -> None:
        """No process, and so no port that anybody listens on, and no temporary file."""
        await_condition(lambda: not self.processes(), "all processes have ended", 3.0, self._describe)
        left = [entry.name for entry in self.temporary.iterdir() if not entry.name.startswith(EXCUSED)]
        assert left == []

    def _describe(self) -> str:
        lines = []
        for pid in self.processes():
            lines.append(f"{pid}: " + Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:150])
        return "; ".join(lines)
