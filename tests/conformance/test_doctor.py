"""`jms-conformance doctor`: each lack is found by trying, is named, and comes with what to do."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from conformance import doctor
from fixtures import ports
from fixtures.definition import known_brokers

app = typer.Typer()
app.command()(doctor.doctor)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing on PATH and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CC", "JAVA_HOME", "TOXIPROXY_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def no_java() -> None:
    raise doctor.JavaMissing("Spark needs Java: install it")


def test_every_shipped_broker_is_examined() -> None:
    examined = [doctor.broker(name) for name in known_brokers()]
    assert len(examined) >= 3
    assert all(finding.advice for finding in examined if finding.state != "ok")
    assert doctor.broker("reference").state == "ok"


def test_without_java_the_main_job_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_java", no_java)
    asked = CliRunner().invoke(app, ["--json"])
    assert asked.exit_code == doctor.EXIT_MISSING
    missing = [finding for finding in json.loads(asked.stdout) if finding["state"] == "missing"]
    assert [finding["what"] for finding in missing] == ["Java for Spark"]
    assert "install" in missing[0]["advice"]


def test_optional_lacks_do_not_fail(monkeypatch: pytest.MonkeyPatch, bare: Path) -> None:
    del bare
    lacks = [doctor.fault_proxy(), doctor.Finding(what="x", state="optional", found="", advice="do [this]")]
    monkeypatch.setattr(doctor, "examine", lambda: lacks)
    asked = CliRunner().invoke(app)
    assert asked.exit_code == 0
    assert "do [this]" in asked.stdout  # brackets are text, not markup


def test_a_bare_machine_has_the_embedded_proxy_only(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.fault_proxy().state == "optional"
    server = bare / "toxiproxy-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    assert doctor.fault_proxy() == doctor.Finding(what="fault proxy", state="ok", found=f"Toxiproxy, {server}")
    monkeypatch.setenv("TOXIPROXY_URL", "http://127.0.0.1:1")
    assert "127.0.0.1:1" in doctor.fault_proxy().found


def test_the_loopback_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.loopback().state == "ok"
    with socket.create_server((ports.LOOPBACK, 0)) as taken:
        monkeypatch.setattr(doctor.ports, "free_port", lambda: taken.getsockname()[1])
        finding = doctor.loopback()
    assert finding.state == "missing"
    assert finding.advice


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [finding.state for finding in doctor.folders()] == ["ok", "optional"]


def test_a_cache_that_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = list(doctor.folders())[1]
    assert cache.state == "optional"
    assert "XDG_CACHE_HOME" in cache.advice


def test_a_missing_compiler_names_the_packages(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _name: None)
    assert doctor.amqp().found == "pkg-config is not installed"
    pkg_config = bare / "pkg-config"
    pkg_config.write_text("#!/bin/sh\n")
    pkg_config.chmod(0o755)
    finding = doctor.amqp()
    assert finding.found == "no C compiler (cc)"
    assert "libssl-dev" in finding.advice
