"""Finding a Java that can run Spark 4: version 17 or later, with the module ``jdk.incubator.vector``.

A run-time image cut down by ``jlink`` (as in some wheels) lacks that module and ends Spark's start with a stack trace,
so the ``release`` file of each candidate is read first: it lists version and modules without starting a JVM.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

LEAST_VERSION = 17
NEEDED_MODULE = "jdk.incubator.vector"
WHAT_TO_DO = "install a full JDK (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at one"


class JavaMissing(Exception):
    """No Java here can run Spark; the text says in one line what to install."""


class JavaHome(msgspec.Struct, frozen=True):
    """A Java installation that can run Spark."""

    path: Path
    version: int  # feature release: 17, 21, 25


def find_java(environ: Mapping[str, str] | None = None) -> JavaHome:
    """The first suitable Java of JAVA_HOME, PATH and the usual places; raises ``JavaMissing``."""
    environ = os.environ if environ is None else environ
    refused: list[str] = []
    for home in _candidates(environ):
        found = examine(home)
        if isinstance(found, JavaHome):
            return found
        refused.append(f"{home}: {found}")
    seen = "; ".join(dict.fromkeys(refused)) or "none found"
    raise JavaMissing(f"Spark needs Java {LEAST_VERSION} or later with {NEEDED_MODULE}: {WHAT_TO_DO} ({seen})")


def examine(home: Path) -> JavaHome | str:
    """The Java at ``home``, or why it will not do."""
    if not (home / "bin" / "java").exists():
        return "there is no bin/java"
    try:
        release = (home / "release").read_text(errors="replace")
    except OSError:
        return "it has no readable release file"
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if match is None:
        return "its release file names no version"
    version = int(match[1])
    if version < LEAST_VERSION:
        return f"it is version {version}"
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if modules is not None and NEEDED_MODULE not in modules[1].split():
        return f"it lacks the module {NEEDED_MODULE}"
    return JavaHome(home, version)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    home = Path(environ.get("HOME", "/nonexistent"))
    for parent, pattern in (
        (Path("/usr/lib/jvm"), "*"),
        (Path("/usr/java"), "*"),
        (Path("/opt"), "*j[dr][ke]*"),
        (Path("/Library/Java/JavaVirtualMachines"), "*/Contents/Home"),
        (home / ".sdkman/candidates/java", "*"),
        (home / ".jdks", "*"),
        (home / ".local/share/jvm", "*"),
    ):
        if parent.is_dir():
            yield from sorted(parent.glob(pattern), reverse=True)
