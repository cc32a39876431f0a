"""Fates and sequences are remembered within bounds."""

from reference_broker.broker.commands import Fate
from reference_broker.broker.memory import FATES_PER_SESSION, Outcomes, Sequences


def test_rollback_is_presumed() -> None:
    outcomes = Outcomes(["c/s/1"])
    assert outcomes.presume("c/s/1") is Fate.COMMITTED
    assert outcomes.presume("c/s/2") is Fate.ROLLED_BACK
    assert outcomes.presume("never/heard/1") is Fate.ROLLED_BACK


def test_a_session_keeps_its_last_fates_and_says_which_it_forgot() -> None:
    outcomes = Outcomes()
    forgotten = [outcomes.record(f"c/s/{n}", Fate.COMMITTED) for n in range(FATES_PER_SESSION + 1)]
    assert forgotten[:-1] == [[]] * FATES_PER_SESSION
    assert forgotten[-1] == ["c/s/0"]
    assert outcomes.presume("c/s/0") is Fate.UNKNOWN
    assert outcomes.presume("c/s/99") is Fate.ROLLED_BACK
    assert outcomes.presume("c/s/named") is Fate.UNKNOWN


def test_rollbacks_push_no_commit_out() -> None:
    outcomes = Outcomes(["c/s/0"])
    for number in range(1, 100):
        assert outcomes.record(f"c/s/{number}", Fate.ROLLED_BACK) == []
    assert outcomes.presume("c/s/0") is Fate.COMMITTED
    assert outcomes.presume("c/s/1") is Fate.ROLLED_BACK


def test_once_sessions_were_dropped_an_unknown_one_has_an_unknown_fate() -> None:
    outcomes = Outcomes(sessions=2)
    assert outcomes.record("a/s/1", Fate.ROLLED_BACK) == []
    assert outcomes.record("b/s/1", Fate.COMMITTED) == []
    assert outcomes.record("c/s/1", Fate.COMMITTED) == []
    assert outcomes.presume("a/s/1") is Fate.UNKNOWN
    assert outcomes.presume("b/s/2") is Fate.ROLLED_BACK
    assert outcomes.record("d/s/1", Fate.COMMITTED) == ["b/s/1"]


def test_a_full_table_that_was_loaded_may_have_dropped_some() -> None:
    assert Outcomes(["a/s/1", "b/s/1"], sessions=2).presume("x/s/1") is Fate.UNKNOWN


def test_the_producer_heard_of_longest_ago_is_dropped() -> None:
    sequences = Sequences([("a", 3)], limit=2)
    assert sequences.advance("b", 1) is None
    assert sequences.advance("a", 4) is None
    assert sequences.advance("c", 1) == "b"
    assert (sequences.last("a"), sequences.last("b"), sequences.last("c")) == (4, 0, 1)
