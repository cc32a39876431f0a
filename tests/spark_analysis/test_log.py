"""The delivery log: what is recorded survives its writer, and a damaged log says where and how."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_analysis.log import LogError, LogWriter, log_path, parse_log, read_log
from spark_analysis.schema import Event, Header, Kind, Outcome

HEADER = Header(
    schema=1,
    run="run",
    scenario="log",
    test="tests::log",
    requirements=("MSG-11",),
    adapter="core",
    broker="reference",
    failover="RC",
    fault="kill-live",
    seed=7,
    started_wall_ms=1,
    options={"duplicate-detection": "on"},
)


def written(path: Path, count: int = 3) -> Path:
    with LogWriter(path, HEADER) as log:
        for number in range(count):
            log.record(kind=Kind.SEND, outcome=Outcome.OK, message=f"m{number}", destination="q", sequence=number)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.delivery.jsonl", HEADER) as log:
        attempt = log.record(kind=Kind.ACKNOWLEDGE, outcome=Outcome.ATTEMPT, messages=("a", "ü"), connection="c")
        end = log.record(kind=Kind.ACKNOWLEDGE, outcome=Outcome.OK, op=attempt, wall_ms=5)
    read = read_log(log.path)
    assert read.header == HEADER
    assert read.problems == ()
    assert [event.position for event in read.events] == [attempt, end] == [0, 1]
    assert read.events[0].messages == ("a", "ü")
    assert read.events[1].op == attempt
    assert read.events[0].at_ns <= read.events[1].at_ns
    assert read.footer is not None
    assert read.footer.events == 2


def test_many_threads_write_one_gapless_log(tmp_path: Path) -> None:
    path = tmp_path / "threads.delivery.jsonl"
    with LogWriter(path, HEADER) as log:

        def work(name: str) -> None:
            for _ in range(300):
                log.record(kind=Kind.NOTE, outcome=Outcome.OK, detail=name)

        threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read = read_log(path)
    assert read.problems == ()
    assert len(read.events) == 1800
    assert all(earlier.at_ns <= later.at_ns for earlier, later in zip(read.events, read.events[1:], strict=False))


CHILD = """
import sys
from pathlib import Path
from spark_analysis.log import LogWriter
from spark_analysis.schema import Header, Kind, Outcome
log = LogWriter(Path(sys.argv[1]), Header(1, "r", "s", "t", (), "core", "b", "RC", "none", 0, 0))
while True:
    position = log.record(kind=Kind.NOTE, outcome=Outcome.OK, detail="x" * 200)
    sys.stdout.write(f"{position}\\n")
    sys.stdout.flush()
"""


def test_a_killed_writer_loses_nothing_it_recorded(tmp_path: Path) -> None:
    path = tmp_path / "killed.delivery.jsonl"
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 500:
                os.kill(child.pid, signal.SIGKILL)
                break
        confirmed = [int(line) for line in child.stdout if line.endswith("\n")] or [500]
    read = read_log(path)
    assert len(read.events) > confirmed[-1]
    assert read.footer is None
    assert len(read.problems) == 1
    assert "no footer" in read.problems[0]


def test_closing_twice_is_harmless_and_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "closed.delivery.jsonl", HEADER)
    log.close()
    log.close()
    with pytest.raises(LogError, match="is closed"):
        log.record(kind=Kind.NOTE, outcome=Outcome.OK)
    assert read_log(log.path).problems == ()


def test_an_impossible_directory_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LogError, match="no directory for delivery logs: File exists"):
        LogWriter(tmp_path / "file" / "a.delivery.jsonl", HEADER)
    (tmp_path / "dir.delivery.jsonl").symlink_to(tmp_path / "nowhere" / "target")
    with pytest.raises(LogError, match="exists already"):
        LogWriter(tmp_path / "dir.delivery.jsonl", HEADER)
    written(tmp_path / "taken.delivery.jsonl")
    with pytest.raises(LogError, match="exists already"):
        LogWriter(tmp_path / "taken.delivery.jsonl", HEADER)


FULL = """
import resource, sys
from pathlib import Path
from spark_analysis.log import LogError, LogWriter
from tests.spark_analysis.test_log import HEADER
from spark_analysis.schema import Kind, Outcome

resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
log = LogWriter(Path(sys.argv[1]), HEADER)
recorded = 0
try:
    while True:
        log.record(kind=Kind.NOTE, outcome=Outcome.OK, detail="x" * 200)
        recorded += 1
except LogError as error:
    print(recorded, error)
"""


def test_a_full_disk_is_told_in_one_sentence_and_what_was_recorded_stays(tmp_path: Path) -> None:
    path = tmp_path / "full.delivery.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    recorded, _, said = done.stdout.partition(" ")
    assert "cannot be written: File too large" in said
    assert len(read_log(path).events) == int(recorded) > 0


def test_scenario_names_make_distinct_safe_file_names(tmp_path: Path) -> None:
    paths = {log_path(tmp_path, name) for name in ("a/b", "a_b", "a b", "../../etc", "", "x" * 500)}
    assert len(paths) == 6
    assert all(path.parent == tmp_path and len(path.name) < 200 for path in paths)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"hello\n", "not JSON"),
        (b"\xff\xfe\x00\n", "not JSON"),
        (b"[1]\n", "no header"),
        (b'{"a":1}\n', "no header"),
        (b'{"header":{"schema":99}}\n', "log schema 99, this program reads 1"),
        (b'{"header":{"schema":1}}\n', "the header is damaged"),
    ],
)
def test_foreign_files_are_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "foreign.delivery.jsonl"
    path.write_bytes(content)
    with pytest.raises(LogError, match=message) as raised:
        read_log(path)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be read: No such file"):
        read_log(tmp_path / "none.delivery.jsonl")


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_damage_is_named_with_file_and_line(tmp_path: Path) -> None:
    lines = lines_of(written(tmp_path / "good.delivery.jsonl"))
    changed = [*lines[:2], lines[2].replace(b'"m1"', b'"m9"'), *lines[3:]]
    assert parse_log(b"".join(changed), "f").problems == (
        "f: the checksum in the footer does not match: the log was changed after it was written",
    )
    missing = parse_log(b"".join([*lines[:2], *lines[3:]]), "f").problems
    assert any("event 2 follows 0" in problem for problem in missing)
    assert any("footer counts 3 events, the file holds 2" in problem for problem in missing)
    broken = parse_log(b"".join([*lines[:2], b"{nonsense\n", *lines[3:]]), "f").problems
    assert any(problem.startswith("f:3: no event") for problem in broken)
    foreign = parse_log(b"".join([*lines[:2], b'{"position":1,"at_ns":1,"colour":2}\n', *lines[3:]]), "f").problems
    assert any(problem.startswith("f:3: no event") for problem in foreign)
    after = parse_log(b"".join([*lines, lines[1]]), "f").problems
    assert any("no footer" in problem for problem in after)
    bad_footer = parse_log(b"".join([*lines[:-1], b'{"footer":{"events":"x"}}\n']), "f").problems
    assert any(problem.startswith("f:5: the footer is damaged") for problem in bad_footer)


def test_an_end_without_its_attempt_is_a_problem(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "op.delivery.jsonl", HEADER) as log:
        log.record(kind=Kind.SEND, outcome=Outcome.ATTEMPT)
        log.record(kind=Kind.COMMIT, outcome=Outcome.OK, op=0)
    assert any("no open commit attempt" in problem for problem in read_log(log.path).problems)


def test_every_cut_of_a_log_is_noticed_and_never_a_traceback(tmp_path: Path) -> None:
    data = written(tmp_path / "cut.delivery.jsonl", 2).read_bytes()
    header_end = data.index(b"\n")
    for end in range(1, len(data)):
        if end < header_end:
            with pytest.raises(LogError):
                parse_log(data[:end], "f")
        else:
            assert parse_log(data[:end], "f").problems, f"cut at byte {end} went unnoticed"


@given(st.binary(max_size=200))
def test_no_bytes_after_a_header_raise(tail: bytes) -> None:
    header = msgspec.json.encode({"header": HEADER}) + b"\n"
    assert parse_log(header + tail, "f").problems


texts = st.text(st.characters(codec="utf-8"), max_size=8)


@given(st.builds(Event, position=st.just(0), at_ns=st.integers(0, 2**62), op=st.just(-1), message=texts, detail=texts))
def test_every_event_survives_its_line(event: Event) -> None:
    line = msgspec.json.encode(event)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Event) == event
