"""The committed lists agree with what chapters cite: nothing vanishes unseen, nothing new is left out."""

import pytest

from conformance.catalogue import load
from conformance.catalogue.coverage import coverage
from conformance.certification.profiles import NAMES, certification_profile
from conformance.errors import UserError


@pytest.fixture(scope="module")
def cited():
    return coverage(load()).bindings


@pytest.mark.parametrize("name", NAMES)
def test_profile_lists_exactly_what_its_runs_can_show(name, cited):
    profile = certification_profile(name)
    failovers = {"RC", "NF"} if profile.every_failover else {"RC"}
    shown = {
        row
        for row, bindings in cited.items()
        if profile.wants(load().requirement(row)) and any(failovers & set(b.profiles) for b in bindings)
    }
    listed = set(profile.requirements)
    assert not listed - shown, f"no chapter shows these any more: {sorted(listed - shown)}"
    assert not shown - listed, (
        f"chapters show these, and profile_{name}.toml does not list them: {sorted(shown - listed)}"
    )


def test_core_is_part_of_full():
    core, full = (certification_profile(name) for name in NAMES)
    assert set(core.requirements) < set(full.requirements)


def test_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="core, full"):
        certification_profile("gold")
