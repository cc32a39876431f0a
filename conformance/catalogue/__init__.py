"""The catalogue of requirements as data: what a broker and its client must do, in testable sentences.

A requirement has an ID that is never renumbered. Three *failover profiles* run through the catalogue, because the same
fault has a different right outcome in each: RA (re-attach: the session survived), RC (re-create: the session is lost
and its objects are made anew) and NF (no failover: the application opens a new connection). A row belongs to the
profiles in which it says something, and `Requirement.outcome` says what is right where a profile differs from the
sentence.

The files beside this module are the source: `groups/*.toml` a file a group, `faults.toml`, `decisions.toml`
(D-01 ... where the sources are silent or disagree) and `sources.toml`. The names of capabilities that a row needs are
those by which broker definitions and adapters say what they lack.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal, TypeVar, get_args

import msgspec

from conformance.errors import UserError
from fixtures.capabilities import Capability

Profile = Literal["RA", "RC", "NF"]
Level = Literal["MUST", "SHOULD", "MAY"]
Subject = Literal["client", "broker", "pair"]

PROFILES: tuple[Profile, ...] = get_args(Profile)

GROUP_ORDER = (
    *("MSG", "SND", "ACK-AUTO", "ACK-CLIENT", "ACK-DUPS", "TX", "XA", "TMP", "BRW", "SUB", "ORD", "LSN", "DET"),
    *("VLV", "RAT", "REP", "HA-SS", "HA-RP", "HA-FB", "HA-TOP", "RCN", "DUP", "CTL", "LNK", "SEC", "OBS"),
)


class CatalogueError(UserError):
    """A file of the catalogue is wrong; the message names the file, the row and the fault in it."""


class Requirement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: a sentence that a test can show to hold or not, and how it shows.

    `needs` are the capabilities without which the row does not apply, the group's included (`base` rows hold without
    the group's); "a|b" is satisfied by one of the two. `tier` says who demands it: 1 the seed documents, 2 the JMS
    specification alone, 3 the practice of real products.
    """

    id: str
    level: Level
    tier: Literal[1, 2, 3]
    subject: Subject
    profiles: tuple[Profile, ...]
    faults: tuple[str, ...]
    sentence: str
    observation: str
    sources: tuple[str, ...]
    needs: tuple[str, ...] = ()
    base: bool = False
    outcome: Mapping[Profile, str] = {}
    group: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements about one subject, with the capabilities that the whole group needs."""

    id: str
    title: str
    needs: tuple[str, ...]
    requirements: tuple[Requirement, ...]


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this suite holds to be right where the sources are silent or disagree."""

    id: str
    question: str
    answer: str


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """All requirements in catalogue order, by ID and by group, with the words that their codes stand for."""

    requirements: Mapping[str, Requirement]
    groups: Mapping[str, Group]
    faults: Mapping[str, str]
    capabilities: Mapping[str, str]
    decisions: Mapping[str, Decision]
    sources: Mapping[str, str]

    def __iter__(self) -> Iterator[Requirement]:
        """Requirements in catalogue order."""
        return iter(self.requirements.values())

    def __len__(self) -> int:
        """The number of requirements."""
        return len(self.requirements)

    def requirement(self, requirement_id: str) -> Requirement:
        """The row with this ID; `UserError` if there is none."""
        try:
            return self.requirements[requirement_id]
        except KeyError:
            raise UserError(
                f"There is no requirement {requirement_id!r} in the catalogue. "
                "`jms-conformance catalogue` lists all IDs."
            ) from None


class _GroupFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    title: str
    needs: tuple[str, ...]
    requirement: tuple[Requirement, ...]


class _Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    meaning: str


class _FaultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fault: tuple[_Fault, ...]


class _Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    title: str


class _SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: tuple[_Source, ...]


class _DecisionFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decision: tuple[Decision, ...]


T = TypeVar("T")


@cache
def load() -> Catalogue:
    """The project's own catalogue, read once and checked; `CatalogueError` if a file of it is wrong."""
    return load_from(resources.files(__name__))


def load_from(folder: Traversable) -> Catalogue:
    """The catalogue in `folder`; `CatalogueError` names file and row where it is wrong."""
    faults = {f.code: f.meaning for f in _decode(folder / "faults.toml", _FaultFile).fault}
    capabilities = {str(capability): capability.meaning for capability in Capability}
    decisions = {d.id: d for d in _decode(folder / "decisions.toml", _DecisionFile).decision}
    sources = {s.code: s.title for s in _decode(folder / "sources.toml", _SourceFile).source}

    files = {f.name: f for f in (folder / "groups").iterdir() if f.name.endswith(".toml")}
    if unknown := sorted(set(files) - {f"{g}.toml" for g in GROUP_ORDER}):
        raise CatalogueError(f"{unknown[0]}: no such group; add it to GROUP_ORDER or rename the file.")
    groups: dict[str, Group] = {}
    for name in GROUP_ORDER:
        if f"{name}.toml" in files:
            groups[name] = _group(files[f"{name}.toml"])
    requirements = {r.id: r for g in groups.values() for r in g.requirements}

    catalogue = Catalogue(
        requirements=requirements,
        groups=groups,
        faults=faults,
        capabilities=capabilities,
        decisions=decisions,
        sources=sources,
    )
    for requirement in catalogue:
        for fault in _faults_in(requirement, catalogue):
            raise CatalogueError(f"{requirement.group}.toml, {requirement.id}: {fault}")
    return catalogue


def _decode(file: Traversable, kind: type[T]) -> T:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, FileNotFoundError) as error:
        raise CatalogueError(f"{file.name}: {error}") from error


def _group(file: Traversable) -> Group:
    raw = _decode(file, _GroupFile)
    if file.name != f"{raw.group}.toml":
        raise CatalogueError(f"{file.name}: holds group {raw.group!r}; file and group must have one name.")
    rows = tuple(
        msgspec.structs.replace(row, group=raw.group, needs=row.needs if row.base else (*raw.needs, *row.needs))
        for row in raw.requirement
    )
    for number, row in enumerate(rows, start=1):
        expected = f"{raw.group}-{number:02}"
        if row.id != expected:
            raise CatalogueError(f"{file.name}: row {number} is {row.id}, not {expected}; IDs are never renumbered.")
    return Group(id=raw.group, title=raw.title, needs=raw.needs, requirements=rows)


def _faults_in(row: Requirement, catalogue: Catalogue) -> Iterator[str]:
    """What is wrong with a row, in words; nothing if it is sound."""
    yield from _faults_in_words(row)
    yield from _unknown_codes(row, catalogue)
    for name, values in (("profiles", row.profiles), ("faults", row.faults), ("sources", row.sources)):
        if not values:
            yield f"{name} are empty"
        for value, count in Counter(values).items():
            if count > 1:
                yield f"{name} name {value} twice"
    for profile in row.outcome:
        if profile not in row.profiles:
            yield f"says what is right under {profile}, which is not among its profiles"


def _faults_in_words(row: Requirement) -> Iterator[str]:
    if not re.search(rf"\b{row.level}\b", row.sentence):
        yield f"the sentence does not say {row.level}"
    if row.level != "MUST" and re.search(r"\bMUST\b", row.sentence):
        yield f"the sentence says MUST, but the level is {row.level}"


def _unknown_codes(row: Requirement, catalogue: Catalogue) -> Iterator[str]:
    for fault in row.faults:
        if fault not in catalogue.faults:
            yield f"{fault!r} is no fault code of faults.toml"
    for name in (name for need in row.needs for name in need.split("|")):
        if name not in catalogue.capabilities:
            yield f"{name!r} is no capability of fixtures/capabilities.py"
    for decision in re.findall(r"\bD-\d\d\b", " ".join((row.sentence, row.observation, *row.sources))):
        if decision not in catalogue.decisions:
            yield f"cites {decision}, which decisions.toml does not have"
