"""What is shipped: the wheel holds every file of the packages, and the entry points that the README names."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("adapters", "conformance", "fixtures", "reference_broker", "spark_analysis")
PRIVATE = shutil.ignore_patterns("__pycache__", ".*")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel built from a copy: a build inside the checkout would leave its folder there and take up old files."""
    pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools 77 or later")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=PRIVATE)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import setuptools.build_meta as b; b.build_wheel('..')"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_every_file_of_the_packages_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    here = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in path.parts[-3:])
    }
    assert here - set(wheel.namelist()) == set()


def test_tests_of_the_suite_are_not_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert not [name for name in wheel.namelist() if name.startswith(("tests/", "bench/", "docs/"))]


def test_the_command_and_the_pytest_plugin_are_registered(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    entries = configparser.ConfigParser()
    entries.read_string(wheel.read(name).decode())
    assert entries["console_scripts"]["jms-conformance"] == "conformance.cli:main"
    assert entries["pytest11"]["conformance.plugin"] == "conformance.plugin"


def test_the_amqp_extra_is_asked_for_and_never_default(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    required = [line for line in wheel.read(name).decode().splitlines() if line.startswith("Requires-Dist:")]
    proton = [line for line in required if "qpid-proton" in line]
    assert proton
    assert all('extra == "amqp"' in line for line in proton)
