"""How showings fold into outcomes, outcomes into an exit status, and what is never green."""

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.catalogue import load
from conformance.errors import UserError
from conformance.outcomes import (
    GREEN,
    ExitStatus,
    Finding,
    Judgement,
    Outcome,
    Trial,
    Waiver,
    fold,
    judge,
    read_waivers,
    vanished,
)

MUST = load().requirement("SND-01")
OTHER_MUST = load().requirement("TX-03")
SHOULD = load().requirement("TX-10")
TODAY = dt.date(2026, 11, 21)

said = st.sampled_from([o for o in Outcome if o is not Outcome.WAIVED])


def trial(outcome=Outcome.PASSED, row="SND-01", **fields):
    return Trial(**{"test": "chapters/test_snd.py::test_one[a]", "requirements": (row,), "outcome": outcome, **fields})


def finding(outcome=Outcome.PASSED, row="SND-01", **fields):
    return Finding(**{"rule": "no-loss", "scenario": "s", "requirements": (row,), "outcome": outcome, **fields})


def waiver(**fields):
    return Waiver(**{"requirement": "SND-01", "reason": "known", "owner": "ann", "expires": TODAY, **fields})


def judged(showings, rows=(MUST,), **fields) -> Judgement:
    settings = {"excused": {}, "broker": "reference", "adapter": "core", "today": TODAY, **fields}
    return judge(rows, showings, **settings)


@given(st.lists(said), st.integers(min_value=0))
def test_one_failure_outweighs_everything(outcomes, place):
    outcomes.insert(place % (len(outcomes) + 1), Outcome.FAILED)
    showings = [trial(outcome) for outcome in outcomes]
    assert fold(MUST, showings)[0] is Outcome.FAILED
    assert fold(SHOULD, showings)[0] is Outcome.WARNING


@given(st.lists(said))
def test_green_needs_a_pass_or_a_reason(outcomes):
    outcome, detail = fold(MUST, [trial(o) for o in outcomes])
    if outcome is Outcome.PASSED:
        assert set(outcomes) <= {Outcome.PASSED, Outcome.NOT_APPLICABLE, Outcome.UNTESTED}
        assert Outcome.PASSED in outcomes
    elif outcome in GREEN:
        assert set(outcomes) <= {Outcome.NOT_APPLICABLE, Outcome.UNTESTED}
    assert detail


@given(st.lists(said))
def test_the_order_of_showings_does_not_matter(outcomes):
    showings = [trial(outcome) for outcome in outcomes]
    assert fold(MUST, showings)[0] is fold(MUST, showings[::-1])[0]


def test_a_declared_lack_comes_first():
    assert fold(MUST, [trial(Outcome.FAILED)], "no xa: not built") == (Outcome.NOT_APPLICABLE, "no xa: not built")


def test_a_failure_says_how_often_and_what():
    showings = [trial(), trial(Outcome.FAILED, message="two copies stored\nlong story"), trial(Outcome.NOT_APPLICABLE)]
    assert fold(MUST, showings) == (Outcome.FAILED, "1 of 2 failed: two copies stored")


def test_a_pass_says_which_faults_were_not_injected():
    showings = [trial(fault="drop-reply"), trial(fault="drop-reply"), finding(fault="drop-reply")]
    assert fold(MUST, showings) == (Outcome.PASSED, "2 tests and 1 verdict; not injected: drop-req")


def test_a_verdict_can_fail_what_every_test_passed():
    assert judged([trial(), finding(Outcome.FAILED)]).results[0].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("showings", "status"),
    [
        ([trial()], ExitStatus.CONFORMS),
        ([trial(Outcome.FAILED)], ExitStatus.NON_CONFORMANCE),
        ([trial(Outcome.SETUP_FAILED)], ExitStatus.NO_VERDICT),
        ([trial(), trial(Outcome.HARNESS_FAILED)], ExitStatus.NO_VERDICT),
        ([trial(Outcome.FAILED), trial(Outcome.HARNESS_FAILED)], ExitStatus.NON_CONFORMANCE),
        ([trial(Outcome.NOT_APPLICABLE, message="no such thing")], ExitStatus.NO_VERDICT),
        ([], ExitStatus.NO_VERDICT),
    ],
)
def test_exit_status(showings, status):
    assert judged(showings).exit_status() is status


def test_an_untested_must_is_no_pass_but_an_untested_should_may_stay():
    assert judged([trial()], rows=(MUST, OTHER_MUST)).exit_status() is ExitStatus.NO_VERDICT
    assert judged([trial()], rows=(MUST, SHOULD)).exit_status() is ExitStatus.CONFORMS


def test_a_failed_should_is_a_warning_and_does_not_fail_the_run():
    judgement = judged([trial(), trial(Outcome.FAILED, row="TX-10")], rows=(MUST, SHOULD))
    assert judgement.results[1].outcome is Outcome.WARNING
    assert judgement.exit_status() is ExitStatus.CONFORMS


def test_nothing_ran_is_never_green():
    judgement = judged([], excused={"SND-01": "no auto-failover: plain client"})
    assert judgement.results[0].outcome is Outcome.NOT_APPLICABLE
    assert judgement.unjudged == ("Nothing ran: no test and no verdict of this profile came to a result.",)
    assert judgement.exit_status() is ExitStatus.NO_VERDICT


def test_a_failure_that_shows_no_requirement_of_the_profile_is_not_swallowed():
    judgement = judged([trial(), trial(Outcome.FAILED, row="TX-03")])
    assert judgement.exit_status() is ExitStatus.NON_CONFORMANCE
    assert "shows no requirement of this profile" in judgement.problems[0]
    assert judged([trial(), trial(Outcome.SETUP_FAILED, row="TX-03")]).exit_status() is ExitStatus.NO_VERDICT


def test_a_showing_says_nothing_about_a_row_outside_its_failover_profiles():
    reattach = load().requirement("RAT-16")
    judgement = judged([trial(), finding(row="RAT-16", failover="RC")], rows=(MUST, reattach))
    assert judgement.results[1].outcome is Outcome.UNTESTED
    stray = judged([trial(), finding(Outcome.FAILED, row="RAT-16", failover="RC")], rows=(MUST, reattach))
    assert "shows no requirement of this profile" in stray.problems[0]


def test_a_waiver_turns_a_failure_into_waived_until_its_date():
    judgement = judged(
        [trial(Outcome.FAILED, message="lost"), trial(row="TX-03")], (MUST, OTHER_MUST), waivers=[waiver()]
    )
    assert judgement.results[0].outcome is Outcome.WAIVED
    assert judgement.results[0].detail == "Waived by ann until 2026-11-21: known (1 of 1 failed: lost)"
    assert judgement.exit_status() is ExitStatus.CONFORMS


def test_an_expired_waiver_fails_the_run():
    judgement = judged([trial(Outcome.FAILED)], waivers=[waiver(expires=TODAY - dt.timedelta(days=1))])
    assert judgement.results[0].outcome is Outcome.FAILED
    assert judgement.problems == ("The waiver of SND-01 by ann expired on 2026-11-20: renew it or remove it.",)


@pytest.mark.parametrize("requirement", ["SND-01", "TX-03"])
def test_a_waiver_that_matches_no_failure_fails_the_run(requirement):
    judgement = judged([trial()], waivers=[waiver(requirement=requirement)])
    assert judgement.exit_status() is ExitStatus.NON_CONFORMANCE
    assert "matches no failure" in judgement.problems[0]


def test_a_waiver_of_another_broker_is_none_of_our_business():
    others = [waiver(broker="rabbitmq"), waiver(adapter="stomp")]
    assert judged([trial()], waivers=others).exit_status() is ExitStatus.CONFORMS
    assert judged([trial(Outcome.FAILED)], waivers=others).exit_status() is ExitStatus.NON_CONFORMANCE


@pytest.mark.parametrize("outcome", [Outcome.SETUP_FAILED, Outcome.HARNESS_FAILED])
def test_a_waiver_excuses_the_product_and_not_the_suite(outcome):
    assert judged([trial(outcome)], waivers=[waiver()]).results[0].outcome is outcome


def test_a_vanished_test_is_reported_and_is_no_pass():
    judgement = judged([trial()], expected_tests=["chapters/test_snd.py::test_one", "chapters/test_snd.py::test_two"])
    assert judgement.unjudged == ("chapters/test_snd.py::test_two was to be run and came to no result.",)
    assert judgement.exit_status() is ExitStatus.NO_VERDICT


def test_expected_tests_may_name_parameters():
    assert vanished(["chapters/test_snd.py::test_one[a]"], [trial()]) == ()
    assert len(vanished(["chapters/test_snd.py::test_one[b]"], [trial()])) == 1


GOOD = '[[waiver]]\nrequirement = "SND-01"\nreason = "known"\nowner = "ann"\nexpires = 2026-11-21\n'


def test_waivers_are_read(tmp_path: Path):
    file = tmp_path / "waivers.toml"
    file.write_text(GOOD + 'broker = "rabbitmq"\n')
    assert read_waivers(file, load()) == (waiver(broker="rabbitmq"),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("SND-01", "SND-99", "waives 'SND-99'"),
        ("2026-11-21", '"some day"', "Expected `date`"),
        ("owner", "possessor", "possessor"),
        ('"ann"', '""', "needs a reason and an owner"),
        ("[[waiver]]", "[[waver]]", "waver"),
        ("=", "~", "cannot be understood"),
    ],
)
def test_a_waiver_file_that_cannot_be_used_is_explained(tmp_path: Path, old, new, message):
    file = tmp_path / "waivers.toml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_waivers(file, load())
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_waiver_file_is_explained(tmp_path: Path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_waivers(tmp_path / "none.toml", load())
