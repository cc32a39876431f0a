"""Spark's verdict on a whole run: the same as the rules' own, quiet, on loopback, and gone afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from spark_analysis.judge import Verdict, judge_run, judge_with
from spark_analysis.log import LogError, read_log
from spark_analysis.rules import judge
from spark_analysis.session import spark_session
from tests.spark_analysis.scene import INDETERMINATE, Scene

pytestmark = pytest.mark.xdist_group("spark")
ROOT = Path(__file__).resolve().parents[2]


def good(name: str, mode: str = "AUTO") -> Scene:
    scene = Scene(mode, scenario=name)
    scene.send("a", "b")
    scene.receive("a")
    if mode == "CLIENT":
        scene.acknowledge()
    scene.receive("b")
    scene.crash()
    scene.drain("b", again=True)
    return scene


def losing(name: str) -> Scene:
    scene = Scene("CLIENT", scenario=name)
    scene.send("a", "b", "c")
    scene.send("d", outcome=INDETERMINATE)
    scene.crash()
    scene.drain("a", "b", "b")
    return scene


class Run(NamedTuple):
    logs: Path
    output: Path
    verdict: Verdict
    listening: set[str]
    printed: tuple[str, str]
    event_rows: int


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session judges a run of good, bad, foreign, torn and twice-named logs."""
    logs = tmp_path_factory.mktemp("run") / "my logs %41 [x]{y}*"
    for number in range(5):
        good(f"good[{number}]").write(logs / "gw0")
    good("client/good", "CLIENT").write(logs)
    losing("bad").write(logs)
    torn = good("torn").write(logs)
    torn.write_bytes(torn.read_bytes()[:-40])
    (logs / "foreign.delivery.jsonl").write_text("no log\n")
    (logs / "README.txt").write_text("not looked at")
    good("twice").write(logs / "gw0")
    good("twice").write(logs / "gw1")
    output = tmp_path_factory.mktemp("kept")
    streams = [tmp_path_factory.mktemp("printed") / name for name in ("out", "err")]
    with captured_descriptors(streams), spark_session() as spark:
        verdict = judge_with(spark, logs, output)
        listening = {
            connection.laddr.ip
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        events = spark.read.parquet(f"{output}/events.parquet")
        rows = events.where("op = -1 AND message IS NOT NULL AND priority = 4").count()
    return Run(logs, output, verdict, listening, (streams[0].read_text(), streams[1].read_text()), rows)


class captured_descriptors:  # noqa: N801 - a context manager
    """Standard output and error of this process and its children, into files."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.saved = [os.dup(1), os.dup(2)]
        for number, path in enumerate(self.paths, start=1):
            with path.open("wb") as sink:
                os.dup2(sink.fileno(), number)

    def __exit__(self, *_: object) -> None:
        for number, saved in enumerate(self.saved, start=1):
            os.dup2(saved, number)
            os.close(saved)


def test_spark_agrees_with_the_rules(run: Run) -> None:
    alone = []
    for path in sorted(run.logs.rglob("*.delivery.jsonl")):
        if path.name != "foreign.delivery.jsonl":
            alone += judge(read_log(path))
    by_spark = [
        f for f in run.verdict.findings if "claim this scenario" not in f.detail and "foreign" not in f.scenario
    ]
    assert sorted(map(repr, by_spark)) == sorted(map(repr, alone))


def test_the_run_fails_for_what_is_wrong_and_nothing_else(run: Run) -> None:
    assert {(finding.scenario, finding.rule) for finding in run.verdict.failed} == {
        ("bad", "lost"),
        ("bad", "duplicated"),
        ("torn", "unfinished"),
        ("foreign.delivery.jsonl", "unfinished"),
        ("twice", "unfinished"),
    }
    assert run.verdict.unreadable == (str(run.logs / "foreign.delivery.jsonl"),)
    assert run.verdict.spark_version.startswith("4.")


def test_the_tallies_add_up(run: Run) -> None:
    tallies = {tally.mode: tally for tally in run.verdict.tallies}
    assert set(tallies) == {"AUTO", "CLIENT"}
    auto, client = tallies["AUTO"], tallies["CLIENT"]
    assert (auto.fault, auto.failover) == ("kill-live", "RC")
    assert (auto.scenarios, auto.confirmed, auto.received, auto.duplicates_allowed) == (9, 19, 18, 8)
    assert (client.scenarios, client.confirmed, client.received) == (1, 2, 2)
    assert client.duplicates_allowed == 1
    assert sum(tally.lost for tally in run.verdict.tallies) == 1
    assert sum(tally.indeterminate for tally in run.verdict.tallies) == 1
    assert sum(tally.duplicates_not_allowed for tally in run.verdict.tallies) == 1


def test_spark_prints_nothing_and_listens_on_loopback_only(run: Run) -> None:
    assert run.printed == ("", "")
    assert run.listening
    assert run.listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_spark_leaves_no_process_behind(run: Run) -> None:
    assert not [child for child in psutil.Process().children(recursive=True) if "java" in child.name()]


def test_parquet_is_kept_with_the_defaults_filled_in(run: Run) -> None:
    assert (run.output / "findings.parquet" / "_SUCCESS").exists()
    assert run.event_rows > 20


def test_no_logs_are_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no delivery log \(\*\.delivery\.jsonl\) in it"):
        judge_run(tmp_path)
    with pytest.raises(LogError, match="no such directory"):
        judge_run(tmp_path / "none")


def command(logs: Path, **environ: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **environ}
    return subprocess.Popen(
        [sys.executable, "-m", "spark_analysis", str(logs)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=logs,
    )


def test_the_command_prints_a_table_and_exits_with_one(tmp_path: Path) -> None:
    losing("bad").write(tmp_path)
    before = set(tmp_path.iterdir())
    with command(tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err == ""
    assert "never came" in out
    assert "ACK-CLIENT-12" in out or "ACK-AUTO-04" in out
    assert set(tmp_path.iterdir()) == before, "Spark left files in the working directory"


def test_bad_input_is_one_line_and_exit_two(tmp_path: Path) -> None:
    with command(tmp_path) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("moment", ["starting", "judging"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_jvm_outlives_an_interrupted_command(tmp_path: Path, number: signal.Signals, moment: str) -> None:
    good("good").write(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with command(tmp_path, TMPDIR=str(scratch)) as process:
        jvm = await_jvm(process.pid, scratch if moment == "judging" else None)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode != 0
    psutil.wait_procs([jvm], timeout=30)
    assert not jvm.is_running(), f"the JVM survived {number.name}"
    if number is not signal.SIGKILL:
        assert not list(scratch.glob("jms-conformance-spark-*"))


def await_jvm(pid: int, ready: Path | None) -> psutil.Process:
    """The command's JVM: as soon as it runs, or when it serves its driver."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children():
            running = child.status() != psutil.STATUS_ZOMBIE and "java" in child.name()
            if running and (ready is None or list(ready.glob("*/gateway"))):
                return child
        time.sleep(0.02)
    raise AssertionError("no JVM was started")
