"""A certification that is ended from outside, at every stage of its life: no certificate, and nothing left."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.certification.traced import Traced

QUICK = ["-m", "tests.conformance.certification.quick_certify"]
CHAPTERS = ["-m", "pytest", "--pyargs", "conformance.chapters", "-p", "no:cacheprovider", "--requirement", "SND-02"]


def _progress(folder: Path, word: str) -> bool:
    path = folder / "out" / "progress.jsonl"
    return path.exists() and word in path.read_text()


MOMENTS: dict[str, Callable[[Traced, Path], object]] = {
    "at once": lambda run, _folder: run.processes(),
    "pytest starts": lambda run, _folder: run.processes("conformance.chapters"),
    "brokers start": lambda run, _folder: run.processes("reference_broker"),
    "in the tests": lambda _run, folder: _progress(folder, '"test"'),
    "Spark judges": lambda run, _folder: run.processes("pyspark.daemon"),
}


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("at once", signal.SIGTERM),
        ("pytest starts", signal.SIGINT),
        ("brokers start", signal.SIGHUP),
        ("in the tests", signal.SIGTERM),
        ("Spark judges", signal.SIGINT),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value,
)
def test_an_aborted_certification_leaves_nothing(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    with Traced([*QUICK, "certify", "--output", "out", "-n", "2"], tmp_path) as run:
        run.until(lambda: MOMENTS[moment](run, tmp_path), moment)
        run.send(number)
        status = run.status()
        assert status in (130, -number), run.stderr
        run.assert_nothing_left()
        left = {entry.name for entry in (tmp_path / "out").iterdir()} if (tmp_path / "out").exists() else set()
        assert left <= {"logs", "pytest.log", "results.json", "junit.xml"}
        assert "Traceback" not in run.stderr
        if moment != "at once":
            assert "interrupted: everything that was started has been ended" in run.stderr


def test_ctrl_c_in_the_terminal_of_pytest_leaves_nothing(tmp_path: Path) -> None:
    with Traced([*CHAPTERS, "--logs", "logs", "-n", "2"], tmp_path) as run:
        run.until(lambda: run.processes("reference_broker"), "brokers start")
        run.send_to_group(signal.SIGINT)
        assert run.status() == pytest.ExitCode.INTERRUPTED
        run.assert_nothing_left()


def test_pytest_alone_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    with Traced([*CHAPTERS, "--logs", "logs"], tmp_path) as run:
        run.until(lambda: run.processes("reference_broker"), "brokers start")
        run.send(signal.SIGTERM)
        assert run.status() == pytest.ExitCode.INTERRUPTED
        run.assert_nothing_left()
