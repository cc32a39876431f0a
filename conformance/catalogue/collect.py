"""A pytest plugin that writes which collected test shows which requirement, for `conformance.catalogue.coverage`.

Tests bind themselves by a marker; one may name several IDs, and a test may carry several:

    @pytest.mark.requirement("SND-02", faults=("drop-reply",), profiles=("RC", "NF"))
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conformance.catalogue import PROFILES, Profile

MARKER = (
    'requirement(*ids, faults=("none",), profiles=("RA", "RC", "NF")): '
    "the requirements of the catalogue that the test shows, the faults it injects, the failover profiles it knows"
)


class Binding(msgspec.Struct, frozen=True):
    """One marker on one test: the test (node ID without parameters), the IDs, faults and profiles that it names."""

    test: str
    requirements: tuple[str, ...]
    faults: tuple[str, ...] = ("none",)
    profiles: tuple[Profile, ...] = PROFILES


def bindings_of(item: pytest.Item) -> list[Binding]:
    """What the `requirement` markers of a test say; `pytest.UsageError` if one cannot be read."""
    test = item.nodeid.split("[", 1)[0]
    found = []
    for marker in item.iter_markers("requirement"):
        said = {"test": test, "requirements": marker.args, **marker.kwargs}
        try:
            found.append(msgspec.convert(said, Binding))
        except msgspec.ValidationError as error:
            raise pytest.UsageError(f"{test}: marker requirement{marker.args}: {error}") from error
        if unknown := set(marker.kwargs) - {"faults", "profiles"}:
            raise pytest.UsageError(f"{test}: marker requirement{marker.args} has no argument {sorted(unknown)[0]!r}")
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file to write."""
    parser.addoption("--write-bindings", type=Path, help="write requirement bindings of collected tests as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the bindings of all collected tests."""
    target: Path | None = session.config.getoption("--write-bindings")
    if target is not None:
        bindings = dict.fromkeys(b for item in session.items for b in bindings_of(item))
        target.write_bytes(msgspec.json.encode(list(bindings)))
