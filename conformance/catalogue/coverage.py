"""Which tests, rules and negative controls show each requirement, found without running anything."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import pytest

import conformance
from conformance.catalogue import Catalogue
from conformance.catalogue.collect import Binding
from conformance.controls import CONTROLS
from conformance.errors import UserError
from spark_analysis.rules import RULES

COLLECTION_LIMIT_SECONDS = 120
SUITE_PLUGIN = "conformance.plugin"
CHAPTERS = Path(conformance.__file__).parent


class Coverage(msgspec.Struct, frozen=True):
    """By requirement ID: bindings of tests, rules of the verdict on logs, and controls that these must catch."""

    bindings: Mapping[str, tuple[Binding, ...]]
    rules: Mapping[str, tuple[str, ...]]
    controls: Mapping[str, tuple[str, ...]]

    def tests(self, requirement_id: str) -> tuple[str, ...]:
        """Node IDs, without parameters, of the tests that show the requirement."""
        return tuple(dict.fromkeys(b.test for b in self.bindings.get(requirement_id, ())))


def coverage(catalogue: Catalogue, chapters: Path = CHAPTERS) -> Coverage:
    """Collect tests under `chapters` and controls; `UserError` if one cites what the catalogue does not have."""
    bindings: dict[str, list[Binding]] = {}
    for binding in collected(chapters):
        _check(binding, catalogue)
        for requirement_id in binding.requirements:
            bindings.setdefault(requirement_id, []).append(binding)
    return Coverage(
        bindings={key: tuple(value) for key, value in bindings.items()},
        rules=_by_requirement(((rule.name, ids) for rule in RULES for ids in rule.requirements.values()), catalogue),
        controls=_by_requirement(((control.name, control.requirement_ids) for control in CONTROLS), catalogue),
    )


def collected(chapters: Path) -> list[Binding]:
    """What the tests under `chapters` bind; collected in a process of its own, since importing tests has effects."""
    with tempfile.TemporaryDirectory(prefix="jms-conformance-") as scratch:
        target = Path(scratch) / "bindings.json"
        command = [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-c", os.devnull),
            *("--rootdir", str(chapters.parent), "-p", "no:cacheprovider", "-W", "ignore"),
            *(
                "-p",
                f"no:{SUITE_PLUGIN}",
                "-p",
                "no:conformance.plugin",
            ),  # it would leave out what one broker or certification profile does not want
            *("-p", "conformance.catalogue.collect", "--write-bindings", str(target)),
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment.pop("PYTEST_ADDOPTS", None)
        run = subprocess.run(
            [*command, str(chapters)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COLLECTION_LIMIT_SECONDS,
            check=False,
        )
        if run.returncode not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} or not target.exists():
            said = (run.stdout + run.stderr).strip().splitlines()[-30:]
            raise UserError(f"The tests under {chapters} cannot be collected:\n" + "\n".join(said))
        return msgspec.json.decode(target.read_bytes(), type=list[Binding])


def _check(binding: Binding, catalogue: Catalogue) -> None:
    for kind, names, known in (
        ("requirement", binding.requirements, catalogue.requirements),
        ("fault", binding.faults, catalogue.faults),
    ):
        for name in names:
            if name not in known:
                raise UserError(f"{binding.test} cites {kind} {name!r}, which the catalogue does not have.")


def _by_requirement(
    showings: Iterable[tuple[str, tuple[str, ...]]], catalogue: Catalogue
) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for name, ids in showings:
        for requirement_id in ids:
            if requirement_id not in catalogue.requirements:
                raise UserError(f"{name} cites requirement {requirement_id!r}, which the catalogue does not have.")
            found.setdefault(requirement_id, {})[name] = None
    return {key: tuple(names) for key, names in found.items()}
