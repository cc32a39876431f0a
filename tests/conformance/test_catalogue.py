"""The catalogue loads, is whole, and a mistake in it is pointed at."""

import shutil
from importlib import resources
from pathlib import Path

import pytest

from adapters.registry import adapter_class
from conformance.catalogue import GROUP_ORDER, PROFILES, CatalogueError, load, load_from
from conformance.catalogue.applicability import needs_under, not_applicable
from conformance.errors import UserError

ROWS = {
    **{"MSG": 38, "SND": 7, "ACK-AUTO": 11, "ACK-CLIENT": 15, "ACK-DUPS": 4, "TX": 20, "XA": 16, "TMP": 11, "BRW": 7},
    **{"SUB": 12, "ORD": 7, "LSN": 14, "DET": 14, "VLV": 19, "RAT": 22, "REP": 15, "HA-SS": 13, "HA-RP": 12},
    **{"HA-FB": 8, "HA-TOP": 7, "RCN": 19, "DUP": 11, "CTL": 30, "LNK": 5, "SEC": 5, "OBS": 3},
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    with resources.as_file(resources.files("conformance.catalogue")) as source:
        return Path(shutil.copytree(source, tmp_path / "catalogue"))


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_every_row_is_there_and_none_was_renumbered():
    assert {group.id: len(group.requirements) for group in load().groups.values()} == ROWS
    assert len(load()) == 345
    assert tuple(ROWS) == GROUP_ORDER


def test_all_decisions_are_there():
    assert list(load().decisions) == [f"D-{n:02}" for n in range(1, 25)]


def test_no_two_rows_say_the_same():
    assert len({row.sentence for row in load()}) == len(load())


def test_every_capability_and_fault_is_used():
    rows = list(load())
    used = {
        name for row in rows for profile in PROFILES for need in needs_under(row, profile) for name in need.split("|")
    }
    assert set(load().capabilities) - used == {
        "persistent-redelivered-flag",  # no excuse: D-08 holds the flag to be a MUST
        "second-node",  # asked for by faults of a test, not by a row
    }
    assert {fault for row in rows for fault in row.faults} == set(load().faults)


def test_a_row_without_faults_in_a_core_group_applies_to_every_profile():
    for row in load():
        if row.faults == ("none",) and row.group in {"MSG", "TX", "SUB", "ORD", "ACK-CLIENT", "ACK-DUPS", "BRW"}:
            assert row.profiles == PROFILES, row.id


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("groups/SND.toml", 'id = "SND-02"', 'id = "SND-09"', "row 2 is SND-09, not SND-02"),
        ("groups/SND.toml", '"drop-reply"', '"drop-everything"', "SND-01: 'drop-everything' is no fault code"),
        ("groups/SND.toml", '"dup-detection|producer-sequence"', '"telepathy"', "SND-03: 'telepathy' is no capability"),
        ("groups/SND.toml", '"D-05"', '"D-99"', "SND-02: cites D-99"),
        ("groups/SND.toml", 'level = "MUST"', 'level = "SHOULD"', "SND-01: the sentence does not say SHOULD"),
        ("groups/SND.toml", 'level = "MUST"', 'level = "OUGHT"', "SND.toml: Invalid enum value 'OUGHT'"),
        ("groups/SND.toml", "outcome.RA", "outcome.XX", "SND.toml: Invalid enum value 'XX'"),
        ("groups/SND.toml", 'group = "SND"', 'group = "SNT"', "SND.toml: holds group 'SNT'"),
        ("groups/SND.toml", 'profiles = ["RC", "NF"]', "profiles = []", "SND-02: profiles are empty"),
        ("groups/SND.toml", 'profiles = ["RC", "NF"]', 'profiles = ["RC", "RC"]', "SND-02: profiles name RC twice"),
        (
            "groups/SND.toml",
            'profiles = ["RA", "RC", "NF"]',
            'profiles = ["RC"]',
            "SND-01: says what is right under RA",
        ),
        ("faults.toml", "meaning", "sense", "faults.toml: Object contains unknown field `sense`"),
    ],
)
def test_a_mistake_is_pointed_at(copy: Path, file: str, old: str, new: str, message: str):
    change(copy / file, old, new)
    with pytest.raises(CatalogueError) as caught:
        load_from(copy)
    assert message in str(caught.value)


def test_a_file_of_no_known_group_is_refused(copy: Path):
    (copy / "groups" / "NEW.toml").write_text("")
    with pytest.raises(CatalogueError, match=r"NEW\.toml: no such group"):
        load_from(copy)


def test_an_unknown_id_is_a_user_error():
    with pytest.raises(UserError, match="SND-99"):
        load().requirement("SND-99")


def test_a_group_capability_is_needed_by_its_rows_but_not_by_base_rows():
    assert load().requirement("TMP-02").needs == ("temp-failover",)
    assert load().requirement("TMP-01").needs == ("temporary-destinations",)


def test_an_absent_capability_excuses_with_its_reason():
    row = load().requirement("DUP-01")
    assert not_applicable(row, "RC", {}) is None
    assert not_applicable(row, "RC", {"dup-detection": "RabbitMQ has none"}) == "no dup-detection: RabbitMQ has none"


def test_one_alternative_is_enough():
    row = load().requirement("ORD-06")
    assert not_applicable(row, "RC", {"packet-replication": "no"}) is None
    assert not_applicable(row, "RC", {"packet-replication": "no", "replicated-store": "neither"}) == (
        "no replicated-store: neither; no packet-replication: no"
    )


def test_without_failover_auto_failover_is_not_asked_for():
    absent = {"auto-failover": "switched off"}
    assert not_applicable(load().requirement("LSN-01"), "NF", absent) is None
    assert not_applicable(load().requirement("LSN-01"), "RC", absent) == "no auto-failover: switched off"
    assert not_applicable(load().requirement("SND-01"), "RC", absent) == "no auto-failover: switched off"


def test_a_row_of_other_profiles_says_so():
    reason = not_applicable(load().requirement("RAT-01"), "RC", {})
    assert reason == "says nothing about failover profile RC (applies to RA)"


def test_a_session_outlives_its_broker_only_where_packets_are_replicated():
    row = load().requirement("ACK-AUTO-09")
    absent = {"packet-replication": "store only"}
    assert not_applicable(row, "RC", absent) is None
    assert not_applicable(row, "RA", absent) == "no packet-replication: store only"


@pytest.mark.parametrize("name", ["core"])
def test_what_an_adapter_lacks_has_names_that_the_catalogue_knows(name: str):
    assert set(adapter_class(name).lacks) <= set(load().capabilities)
