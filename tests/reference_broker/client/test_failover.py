from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reference_broker.client.driver import Endpoint
from reference_broker.client.failover import ENDED, SERVING, TRANSITIONS, Action, FailoverMachine, State
from reference_broker.client.policy import Attempt

HERE = Endpoint("here", 1)
BROKEN = OSError("broken")


def some(count: int) -> Iterator[Attempt]:
    return itertools.repeat(Attempt(HERE, 0.0), count)


def machine(again: int = 3, **options: bool) -> FailoverMachine:
    return FailoverMachine(lambda: some(2), lambda _lost: some(again), **options)


def connected(again: int = 3) -> FailoverMachine:
    made = machine(again)
    made.open()
    made.succeeded(made.epoch)
    return made


def test_a_loss_closes_the_valve_before_anything_else() -> None:
    made = connected()
    actions = made.lost(made.epoch, BROKEN)
    assert actions[0] is Action.CLOSE_VALVE
    assert actions.index(Action.NOTIFY_LOST) < actions.index(Action.ATTEMPT)


def test_of_many_reports_of_one_loss_only_the_first_counts() -> None:
    made = connected()
    epoch = made.epoch
    assert made.lost(epoch, BROKEN)
    assert [made.lost(epoch, BROKEN) for _ in range(16)] == [()] * 16


def test_a_late_report_does_not_harm_the_new_transport() -> None:
    made = connected()
    old = made.epoch
    made.lost(old, BROKEN)
    made.succeeded(made.epoch)
    made.restored(made.epoch)
    assert made.lost(old, BROKEN) == ()
    assert made.state is State.CONNECTED


def test_a_transport_that_was_lost_before_its_success_is_known_is_a_failed_attempt() -> None:
    made = connected()
    made.lost(made.epoch, BROKEN)
    epoch = made.epoch
    assert made.lost(epoch, BROKEN) == ()
    assert Action.ATTEMPT in made.succeeded(epoch)
    assert made.state is State.RECONNECTING


def test_a_loss_while_restoring_is_the_same_episode() -> None:
    made = connected()
    made.lost(made.epoch, BROKEN)
    made.succeeded(made.epoch)
    actions = made.lost(made.epoch, BROKEN)
    assert made.state is State.RECONNECTING
    assert Action.NOTIFY_LOST not in actions
    assert made.losses == 1


def test_attempts_are_counted_over_the_whole_episode_and_start_over_with_the_next() -> None:
    made = connected(again=2)
    for _ in range(5):
        made.lost(made.epoch, BROKEN)
        made.failed(made.epoch, BROKEN)
        made.succeeded(made.epoch)
        made.restored(made.epoch)
        assert made.state is State.CONNECTED
    made.lost(made.epoch, BROKEN)
    made.succeeded(made.epoch)
    made.lost(made.epoch, BROKEN)
    assert Action.NOTIFY_EXHAUSTED in made.failed(made.epoch, BROKEN)
    assert made.state is State.FAILED


def test_without_attempts_a_loss_is_final() -> None:
    made = connected(again=0)
    actions = made.lost(made.epoch, BROKEN)
    assert made.state is State.FAILED
    assert {Action.NOTIFY_FINAL, Action.FAIL_VALVE} <= set(actions)
    assert Action.NOTIFY_LOST not in actions


def test_closing_serves_on_until_it_is_finished() -> None:
    made = connected()
    assert made.close() == ()
    assert made.state is State.CLOSING
    assert made.closed() == (Action.RETIRE, Action.FAIL_VALVE)


def test_no_transition_leaves_a_closed_connection() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is State.CLOSED]


def test_a_valve_that_may_be_open_is_closed_or_failed_on_every_way_out_of_serving() -> None:
    for (state, _), (target, actions) in TRANSITIONS.items():
        if state in SERVING and target not in SERVING:
            assert {Action.CLOSE_VALVE, Action.FAIL_VALVE} & set(actions)
        if target in ENDED:
            assert Action.FAIL_VALVE in actions


class Episodes(RuleBasedStateMachine):
    """Any order of events, late and doubled ones among them, leaves the promises intact."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = machine(again=3)
        self.open = self.failed = False
        self.told = 0
        self.do(self.machine.open())

    def do(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if action is Action.OPEN_VALVE:
                assert not self.failed
                self.open = True
            elif action is Action.CLOSE_VALVE:
                self.open = False
            elif action is Action.FAIL_VALVE:
                self.open, self.failed = False, True
            elif action in {Action.NOTIFY_LOST, Action.NOTIFY_FINAL}:
                self.told += 1
            elif action is Action.ATTEMPT:
                assert not self.failed

    @rule(back=st.integers(0, 3))
    def lost(self, back: int) -> None:
        self.do(self.machine.lost(self.machine.epoch - back, BROKEN))

    @rule(back=st.integers(0, 1))
    def succeeded(self, back: int) -> None:
        if self.machine.state in {State.CONNECTING, State.RECONNECTING}:
            self.do(self.machine.succeeded(self.machine.epoch - back))

    @rule(back=st.integers(0, 1), refused=st.booleans())
    def failed_attempt(self, back: int, refused: bool) -> None:
        self.do(self.machine.failed(self.machine.epoch - back, BROKEN, refused=refused))

    @rule(back=st.integers(0, 1))
    def restored(self, back: int) -> None:
        self.do(self.machine.restored(self.machine.epoch - back))

    @precondition(lambda self: self.machine.state is not State.CONNECTING)
    @rule()
    def close(self) -> None:
        self.do(self.machine.close())

    @rule()
    def closed(self) -> None:
        self.do(self.machine.closed())

    @invariant()
    def the_valve_is_open_exactly_while_a_transport_serves(self) -> None:
        assert self.open == (self.machine.state in SERVING)

    @invariant()
    def nobody_is_left_waiting(self) -> None:
        assert self.failed == (self.machine.state in ENDED)

    @invariant()
    def each_loss_is_told_once(self) -> None:
        assert self.told == self.machine.losses


TestEpisodes = Episodes.TestCase
TestEpisodes.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
