"""Finding Java: only one that can run Spark will do, and a missing one is told in one line."""

from pathlib import Path

import pytest

from spark_analysis import java
from spark_analysis.java import JavaHome, JavaMissing, examine, find_java


def installed(home: Path, version: str = "17.0.15", modules: str | None = "java.base jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    lines = [f'JAVA_VERSION="{version}"'] + ([f'MODULES="{modules}"'] if modules is not None else [])
    (home / "release").write_text("\n".join(lines) + "\n")
    return home


@pytest.mark.parametrize(
    ("version", "modules", "answer"),
    [
        ("17.0.15", "java.base jdk.incubator.vector", 17),
        ("25.0.3", None, 25),
        ("11.0.2", "java.base jdk.incubator.vector", "version 11"),
        ("1.8.0_402", None, "version 8"),
        ("21", "java.base", "lacks the module"),
    ],
)
def test_what_will_do(tmp_path: Path, version: str, modules: str | None, answer: int | str) -> None:
    found = examine(installed(tmp_path / "jdk", version, modules))
    if isinstance(answer, int):
        assert found == JavaHome(tmp_path / "jdk", answer)
    else:
        assert answer in str(found)


def test_a_broken_installation_is_no_java(tmp_path: Path) -> None:
    assert examine(tmp_path) == "there is no bin/java"
    home = installed(tmp_path / "jdk")
    (home / "release").write_text("nothing")
    assert examine(home) == "its release file names no version"
    (home / "release").unlink()
    assert examine(home) == "it has no readable release file"


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    named, on_path = installed(tmp_path / "a", "21"), installed(tmp_path / "b", "17")
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin"), "HOME": str(tmp_path)}
    assert find_java(environ).path == named
    (named / "release").write_text('JAVA_VERSION="11"\n')
    assert find_java(environ).path == on_path


def test_a_missing_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda _environ: iter([installed(tmp_path / "old", "11")]))
    with pytest.raises(JavaMissing, match="it is version 11") as raised:
        find_java({})
    assert "openjdk-17-jre-headless" in str(raised.value)
    assert "\n" not in str(raised.value)
