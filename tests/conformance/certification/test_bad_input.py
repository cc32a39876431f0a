"""What a user can get wrong, each told by one clear message and an exit status, with nothing started left behind.

2: something given cannot be used. 3: the run came to no verdict, since the broker could not be brought to serve.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conformance import certify
from conformance.errors import UserError
from spark_analysis.java import JavaMissing
from tests.conformance.certification.traced import Traced
from tests.fixtures.definition_texts import PAIR, quick

CERTIFY = ("-m", "conformance.cli", "certify", "--output", "out", "-n", "1")
SPARK = ("-m", "spark_analysis")


def _nothing(_folder: Path) -> None:
    """The case needs no files."""


@dataclass
class Case:
    """One mistake: what is prepared, what is called, and what must be said of it."""

    argv: tuple[str, ...]
    says: tuple[str, ...]
    status: int = 2
    prepare: Callable[[Path], object] = _nothing
    env: Mapping[str, str] = field(default_factory=dict)


def _definition(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "mine.toml").write_text(text)


def _how(text: str, how: str) -> Callable[[Path], object]:
    return _definition(text.replace("how = []", f'how = ["{how}"]'))


def _occupied(folder: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    _occupying.append(listener)  # for as long as this process lives
    port = listener.getsockname()[1]
    fixed = PAIR.replace("[node.env]", f"fixed_ports.stomp = [{port}, {port + 1}]\n\n[node.env]")
    _definition(fixed)(folder)


def _unwritable(folder: Path) -> None:
    (folder / "out").write_text("a file where the directory would be")


def _foreign(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "thesis.tex").write_text("the only copy")
    (folder / "out" / "logs").mkdir()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


_occupying: list[socket.socket] = []
CASES = {
    "unknown broker": Case((*CERTIFY, "--broker", "acme"), ("no broker 'acme'", "reference", "docs/brokers.md")),
    "unknown adapter": Case((*CERTIFY, "--adapter", "carrier-pigeon"), ("carrier-pigeon", "core")),
    "unknown profile": Case((*CERTIFY, "--profile", "gold"), ("no certification profile 'gold'", "core, full")),
    "unknown failover": Case((*CERTIFY, "--failover", "XX"), ("'XX'", "RA, RC and NF")),
    "no TOML": Case(
        (*CERTIFY, "--broker", "mine.toml"),
        ("mine.toml", "not well-formed TOML", "line 2"),
        prepare=_definition("[broker]\nname = \n"),
    ),
    "unknown key": Case(
        (*CERTIFY, "--broker", "mine.toml"),
        ("mine.toml:3", "broker.nmae: unknown key", "name, title"),
        prepare=_definition(PAIR.replace("name =", "nmae =", 1)),
    ),
    "occupied port": Case(
        (*CERTIFY, "--broker", "mine.toml"),
        ("Nothing could be tested", "is taken by another program", "change fixed_ports"),
        status=3,
        prepare=_occupied,
    ),
    "a node that dies at its start": Case(
        (*CERTIFY, "--broker", "mine.toml"),
        ("Nothing could be tested", "node1 of tiny died before it was serving", "the store is on fire"),
        status=3,
        prepare=_how(PAIR, "die"),
    ),
    "a node that never serves": Case(
        (*CERTIFY, "--broker", "mine.toml"),
        ("Nothing could be tested", "node1 of tiny runs but is not serving after 1.2 s", "tiny broker 1.2.3"),
        status=3,
        prepare=_how(quick(PAIR), "stay-silent"),
    ),
    "Toxiproxy does not answer": Case(
        CERTIFY,
        ("TOXIPROXY_URL", "cannot be used", "unset TOXIPROXY_URL"),
        env={"TOXIPROXY_URL": f"http://127.0.0.1:{_closed_port()}"},
    ),
    "output is no directory": Case(CERTIFY, ("out", "choose another --output"), prepare=_unwritable),
    "output holds other things": Case(CERTIFY, ("no results of a certification", "--output"), prepare=_foreign),
    "no such waivers": Case((*CERTIFY, "--waivers", "none.toml"), ("none.toml", "cannot be read")),
    "no logs to judge": Case((*SPARK, "."), ("no delivery log",)),
    "no such logs": Case((*SPARK, "nowhere"), ("nowhere", "no such directory")),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_told_in_one_message(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    case.prepare(tmp_path)
    with Traced(case.argv, tmp_path, case.env) as run:
        status = run.status()
        assert status == case.status, run.stdout + run.stderr
        run.assert_nothing_left()
    assert "Traceback" not in run.stderr + run.stdout
    message = " ".join(run.stderr.split())
    assert [word for word in case.says if word not in message] == [], run.stderr
    assert not list(tmp_path.glob("out/certificate*"))
    assert not (tmp_path / "out" / "work").exists()


def test_without_java_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> None:
        raise JavaMissing("Spark needs Java 17 or later: install a full JDK")

    monkeypatch.setattr(certify, "find_java", find_none)
    with pytest.raises(UserError, match="Spark needs Java 17 or later: install"):
        certify._check("reference", None, "core", None)
