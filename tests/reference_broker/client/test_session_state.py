from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference_broker.client.driver import Delivery
from reference_broker.client.session_state import SessionState, Verdict
from reference_broker.jms import AcknowledgeMode, Message

_tokens = itertools.count()


def delivery() -> Delivery:
    return Delivery("c", next(_tokens), Message())


def client() -> SessionState:
    state = SessionState("s", AcknowledgeMode.CLIENT)
    state.moved(1)
    return state


def transacted(*defects: str) -> SessionState:
    return SessionState("s", AcknowledgeMode.SESSION_TRANSACTED, frozenset(defects))


def fail_over(state: SessionState, epoch: int = 2) -> None:
    state.lost()
    state.moved(epoch)


def test_a_session_that_holds_nothing_is_clean_over_a_failover() -> None:
    state = client()
    fail_over(state)
    assert not state.dirty
    state.handed_out(new := delivery())
    assert state.acknowledge(2).deliveries == (new,)


def test_case_one_acknowledge_before_anything_new_was_received() -> None:
    state = client()
    state.handed_out(delivery())
    fail_over(state)
    decision = state.acknowledge(1)
    assert (decision.verdict, decision.deliveries) == (Verdict.STALE, ())


def test_case_two_acknowledge_what_was_received_since() -> None:
    state = client()
    state.handed_out(delivery())
    fail_over(state)
    state.handed_out(new := delivery())
    decision = state.acknowledge(2)
    assert (decision.verdict, decision.deliveries) == (Verdict.STALE, (new,))


def test_case_three_recover_cleans_and_the_old_message_acknowledges_nothing() -> None:
    state = client()
    state.handed_out(delivery())
    fail_over(state)
    state.restarted()
    assert not state.dirty
    state.handed_out(new := delivery())
    assert state.acknowledge(1).verdict is Verdict.FOREIGN
    assert state.acknowledge(2).deliveries == (new,)


def test_a_dirty_transaction_is_doomed_together_with_what_is_added() -> None:
    state = transacted()
    state.begin()
    fail_over(state)
    name, fresh = state.begin()
    assert fresh
    state.handed_out(new := delivery())
    decision = state.commit()
    assert (decision.verdict, decision.deliveries, decision.transaction) == (Verdict.DOOMED, (new,), name)


def test_a_clean_transaction_survives() -> None:
    state = transacted()
    state.begin()
    state.finished()
    fail_over(state)
    assert state.commit().verdict is Verdict.NOTHING


def test_transactions_are_numbered_and_never_reused() -> None:
    state = transacted()
    names = []
    for _ in range(3):
        names.append(state.begin()[0])
        fail_over(state)
    assert len(set(names)) == 3


def test_only_receipts_that_are_not_in_the_transaction_yet_are_sent_at_commit() -> None:
    state = transacted()
    first, second = delivery(), delivery()
    state.handed_out(first)
    state.handed_out(second)
    state.acknowledged_in_transaction((first,))
    assert state.commit().deliveries == (second,)


def test_the_defect_commits_only_the_new_half() -> None:
    state = transacted("half-stale-transaction-commits")
    state.begin()
    fail_over(state)
    assert state.commit().verdict is Verdict.DOOMED
    state.begin()
    assert state.commit().verdict is Verdict.PROCEED


class AnySession(RuleBasedStateMachine):
    """Against a model: what is held, and whether a failover fell on it while something was."""

    def __init__(self) -> None:
        super().__init__()
        self.state: SessionState | None = None
        self.held: list[Delivery] = []
        self.marked = False
        self.work = False
        self.epoch = 1

    @precondition(lambda self: self.state is None)
    @rule(mode=st.sampled_from([mode for mode in AcknowledgeMode if mode is not AcknowledgeMode.NO_ACKNOWLEDGE]))
    def create(self, mode: AcknowledgeMode) -> None:
        self.state = SessionState("s", mode)
        self.state.moved(1)

    @precondition(lambda self: self.state is not None)
    @rule()
    def receive(self) -> None:
        assert self.state is not None
        self.held.append(delivery())
        self.state.handed_out(self.held[-1])

    @precondition(lambda self: self.state is not None and self.state.transacted)
    @rule()
    def send(self) -> None:
        assert self.state is not None
        self.state.begin()
        self.work = True

    @precondition(lambda self: self.state is not None)
    @rule()
    def fail_over(self) -> None:
        assert self.state is not None
        remembers = self.state.transacted or self.state.mode is AcknowledgeMode.CLIENT
        self.marked |= remembers and bool(self.held or self.work)
        self.held, self.work = [], False
        self.epoch += 1
        fail_over(self.state, self.epoch)

    @precondition(lambda self: self.state is not None)
    @rule()
    def start_over(self) -> None:
        assert self.state is not None
        self.state.restarted()
        self.held, self.marked, self.work = [], False, False

    @precondition(lambda self: self.state is not None and self.state.mode is AcknowledgeMode.CLIENT)
    @rule(old=st.booleans())
    def acknowledge(self, old: bool) -> None:
        assert self.state is not None
        decision = self.state.acknowledge(self.epoch - old)
        if self.marked:
            assert (decision.verdict, decision.deliveries) == (Verdict.STALE, tuple(self.held))
        elif old:
            assert decision.verdict is Verdict.FOREIGN
        else:
            assert decision.deliveries == tuple(self.held)
            self.state.settled(decision.deliveries)
            self.held = []

    @precondition(lambda self: self.state is not None and self.state.transacted)
    @rule()
    def commit(self) -> None:
        assert self.state is not None
        verdict = self.state.commit().verdict
        if self.marked:
            assert verdict is Verdict.DOOMED
        else:
            assert verdict is (Verdict.PROCEED if self.held or self.work else Verdict.NOTHING)
            self.state.finished()
            self.held, self.work = [], False

    @invariant()
    def dirty_is_exactly_what_a_loss_matters_to(self) -> None:
        if self.state is not None:
            assert self.state.held == self.held
            assert self.state.dirty == bool(self.held or self.work or self.marked)


TestAnySession = AnySession.TestCase
TestAnySession.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
