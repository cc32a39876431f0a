"""The command `./run`: what it finds, what it asks for, and how it ends where it cannot go on."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_SET_UP = 3


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script as a module, with a cache of its own and a machine on which nothing can be installed."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("run_script", str(ROOT / "run"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(module, "apt_install", lambda *_packages: False)
    monkeypatch.setattr(module, "unpacked", lambda _package: None)
    return module


def a_java(folder: Path, version: str, modules: str = "jdk.incubator.vector") -> Path:
    """A program that answers as a Java of that version with those modules does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\n[ "$1" = --add-modules ] || exit 9\n'
        f'case " {modules} " in *" $2 "*) ;; *) echo "module $2 not found" >&2; exit 1;; esac\n'
        f"echo 'openjdk version \"{version}\" 2024-01-16' >&2\n"
    )
    java.chmod(0o755)
    return java


def start(*arguments: str, path: str, checkout: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "HOME": str(checkout), "XDG_CACHE_HOME": str(checkout / "cache")}
    command = [sys.executable, str(checkout / "run"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("version", "fits"), [("1.8.0_392", False), ("11.0.2", False), ("16", False), ("17", True), ("25.0.1", True)]
)
def test_java_must_be_new_enough(run: ModuleType, tmp_path: Path, version: str, fits: bool) -> None:
    assert run.java_fits(a_java(tmp_path, version)) is fits


def test_java_without_the_vector_module_does_not_fit(run: ModuleType, tmp_path: Path) -> None:
    assert not run.java_fits(a_java(tmp_path, "25", modules="java.base java.sql"))


def test_java_that_cannot_be_started_does_not_fit(run: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "java").write_text("not a program")
    assert not run.java_fits(tmp_path / "java")


def test_java_home_comes_before_path(run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, on_path = a_java(tmp_path / "named", "21"), a_java(tmp_path / "path", "17")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "named"))
    assert run.find_java() == named
    monkeypatch.delenv("JAVA_HOME")
    assert run.find_java() == on_path


def test_a_java_home_that_does_not_fit_is_passed_over(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_java(tmp_path / "old", "11")
    fitting = a_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(fitting.parent))
    assert run.find_java() == fitting


def test_a_java_unpacked_earlier_is_found(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = a_java(run.CACHE / "debian" / "openjdk" / "usr" / "lib" / "jvm" / "java-17", "17")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert unpacked in list(run.javas())


def test_without_java_one_line_says_what_to_install(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "javas", lambda: iter(()))
    with pytest.raises(SystemExit) as ended:
        run.ensure_java()
    assert ended.value.code == NOT_SET_UP
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "apt-get install openjdk-17-jre-headless" in said


def test_without_a_compiler_the_tests_run_without_amqp(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert run.tox_arguments("test", run.commands()["test"]) == ["-e", "test-noamqp"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "amqp extra is left out" in said
    assert "libssl-dev" in said


def test_certify_never_asks_for_a_compiler(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> bool:
        raise AssertionError("the main job looked for a compiler")

    monkeypatch.setattr(run, "can_compile", asked)
    arguments = run.tox_arguments("certify", run.commands()["certify"])
    assert arguments == ["-e", "certify", "-x", "testenv:certify.commands=jms-conformance certify {posargs}"]


def test_go_comes_from_its_wheel_only_where_nothing_else_is(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def refused(_pip: list[str], lock: str, *_options: str) -> bool:
        asked.append(lock)
        return False

    monkeypatch.setattr(run, "installed", refused)
    monkeypatch.setattr(run, "GO_HOME", tmp_path / "go-home")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TOXIPROXY_URL", raising=False)
    assert run.go_from_wheel() is None
    assert asked == ["go"]
    assert "embedded fault proxy stands in" in capsys.readouterr().err

    (tmp_path / "go-home" / "go" / "bin").mkdir(parents=True)  # installed earlier
    assert run.go_from_wheel() == tmp_path / "go-home" / "go" / "bin"
    (run.CACHE / "bin" / "toxiproxy-server-2.12.0").mkdir(parents=True)  # built earlier
    assert run.go_from_wheel() is None
    assert asked == ["go"]


def test_the_lock_of_the_main_job_has_no_proton() -> None:
    assert "proton" not in (ROOT / "locks" / "certify.txt").read_text()
    assert "python-qpid-proton==" in (ROOT / "locks" / "amqp.txt").read_text()


@pytest.mark.parametrize("lock", sorted((ROOT / "locks").glob("*.txt")), ids=lambda lock: lock.stem)
def test_locks_are_exact_hashed_and_name_no_host(lock: Path) -> None:
    text = lock.read_text()
    requirements = [line for line in text.splitlines() if line and line[0] not in "# "]
    assert requirements
    assert all("==" in line and line.endswith("\\") for line in requirements)
    assert text.count("--hash=sha256:") >= len(requirements)
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_absolute_links_of_an_unpacked_package_stay_inside_it(run: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "etc/java").mkdir(parents=True)
    (tmp_path / "etc/java/security").write_text("policy")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/conf").symlink_to("/etc/java")
    (tmp_path / "usr/lib/elsewhere").symlink_to("/no/such/place")
    run.keep_links_inside(tmp_path)
    assert (tmp_path / "usr/lib/conf/security").read_text() == "policy"
    assert (tmp_path / "usr/lib/elsewhere").readlink() == Path("/no/such/place")


def test_an_old_python_goes_on_in_a_newer_one(run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_old, newer = tmp_path / "python3.19", tmp_path / "python3.12"
    too_old.write_text("#!/bin/sh\nexit 1\n")  # a shim for a version that is not installed
    newer.write_text("#!/bin/sh\nexit 0\n")
    for program in (too_old, newer):
        program.chmod(0o755)
    became: list[str] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(run.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(run.os, "execv", lambda program, _arguments: became.append(program))
    with pytest.raises(SystemExit):  # the stand-in for execv returns, which the real one never does
        run.use_new_enough_python()
    assert became == [str(newer)]


def test_every_command_of_tox_is_listed(run: ModuleType) -> None:
    listed = start(path="")
    assert listed.returncode == 2
    for command in ("certify", "test", "lint", "types", "bench", "compare", "controls", "doctor", "lock"):
        assert f"\n  {command} " in listed.stdout
    assert "noamqp" not in listed.stdout


def test_an_unknown_command_is_one_line() -> None:
    refused = start("certfy", path="")
    assert (refused.returncode, refused.stdout) == (NOT_SET_UP, "")
    assert refused.stderr == "run: there is no command 'certfy'; ./run lists them\n"
