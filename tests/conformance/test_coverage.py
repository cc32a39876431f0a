"""What tests show is found by collection, and a citation that leads nowhere is refused."""

import time
from pathlib import Path

import pytest

from conformance.catalogue import load
from conformance.catalogue.collect import Binding
from conformance.catalogue.coverage import collected, coverage
from conformance.errors import UserError

CHAPTER = """
import pytest

@pytest.mark.requirement("SND-01", "SND-02", faults=("drop-reply",), profiles=("RC", "NF"))
@pytest.mark.parametrize("mode", [1, 2, 3])
def test_lost_reply(mode):
    raise AssertionError("collection must not run anything")

@pytest.mark.requirement("TX-01")
class TestTransactions:
    def test_commit(self): ...

    @pytest.mark.requirement("TX-06", faults=("kill-live",), profiles=("RC",))
    def test_usable_again(self): ...

def test_bound_to_nothing(): ...
"""


@pytest.fixture
def chapters(tmp_path: Path) -> Path:
    folder = tmp_path / "chapters"
    folder.mkdir()
    (folder / "test_chapter.py").write_text(CHAPTER)
    return folder


def test_bindings_of_parameters_are_one(chapters: Path):
    lost_reply = Binding(
        "chapters/test_chapter.py::test_lost_reply", ("SND-01", "SND-02"), ("drop-reply",), ("RC", "NF")
    )
    assert collected(chapters).count(lost_reply) == 1


def test_requirements_lead_to_tests(chapters: Path):
    found = coverage(load(), chapters)
    assert found.tests("SND-02") == ("chapters/test_chapter.py::test_lost_reply",)
    assert found.tests("TX-01") == (
        "chapters/test_chapter.py::TestTransactions::test_commit",
        "chapters/test_chapter.py::TestTransactions::test_usable_again",
    )
    assert found.tests("SND-03") == ()


def test_collection_needs_seconds_only(chapters: Path):
    started = time.monotonic()
    collected(chapters)
    assert time.monotonic() - started < 20, "generous for a loaded machine; it takes about one second"


def test_an_empty_suite_covers_nothing(tmp_path: Path):
    assert coverage(load(), tmp_path).bindings == {}


def test_rules_and_controls_show_requirements_too(tmp_path: Path):
    found = coverage(load(), tmp_path)
    assert "lost" in found.rules["MSG-11"]
    assert found.controls


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('"SND-99"', "cites requirement 'SND-99'"),
        ('"SND-01", faults=("flood",)', "cites fault 'flood'"),
        ('"SND-01", profiles=("XX",)', "Invalid enum value 'XX'"),
        ('"SND-01", fault="cut"', "no argument 'fault'"),
        ('"SND-01", faults="cut"', "Expected `array`"),
    ],
)
def test_a_marker_that_leads_nowhere_is_refused(chapters: Path, marker: str, message: str):
    source = f"import pytest\n\n@pytest.mark.requirement({marker})\ndef test_one(): ...\n"
    (chapters / "test_wrong.py").write_text(source)
    with pytest.raises(UserError) as caught:
        coverage(load(), chapters)
    assert message in str(caught.value)


def test_a_module_that_cannot_be_imported_is_reported(chapters: Path):
    (chapters / "test_broken.py").write_text("import no_such_module")
    with pytest.raises(UserError, match="no_such_module"):
        collected(chapters)
