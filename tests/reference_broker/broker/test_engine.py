"""The engine, rule by rule."""

from __future__ import annotations

import pytest

from reference_broker.broker.commands import (
    AskFate,
    Begin,
    CloseConsumer,
    CloseSession,
    Commit,
    Connect,
    Connected,
    Deliver,
    Disconnect,
    Done,
    Fate,
    FateIs,
    Grant,
    OpenConsumer,
    OpenSession,
    Ping,
    Recover,
    Refusal,
    Rollback,
    Send,
    Settlement,
)
from reference_broker.broker.effects import HangUp
from reference_broker.broker.envelope import Address

from .dialogue import Stage, bodies, deliveries, flags, message, refusals


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.attach(1)
    return stage


# -- connection ----------------------------------------------------------------------------------------------


def test_connect_tells_node_epoch_and_the_shorter_heartbeat() -> None:
    (answer,) = Stage().say(1, Connect(request=7, connection="c", heartbeat_ms=300))
    assert answer == Connected(request=7, node="node", epoch=1, heartbeat_ms=300)


@pytest.mark.parametrize("command", [Ping(request=1), Connect(connection="c", version=99)])
def test_what_does_not_speak_the_protocol_is_cut_off(command: Ping | Connect) -> None:
    refused, end = Stage().say(1, command)
    assert refusals([refused])[0].why is Refusal.PROTOCOL
    assert end == HangUp()


def test_a_second_connect_on_one_transport_ends_it(stage: Stage) -> None:
    stage.send(1, "m")
    stage.consume(1)
    assert HangUp() in stage.say(1, Connect(connection="c1"))
    assert stage.left() == ["m"]


def test_client_id_of_another_connection_is_refused(stage: Stage) -> None:
    stage.say(2, Connect(connection="x", client_id="id"))
    (answer,) = stage.say(3, Connect(connection="y", client_id="id"))
    assert refusals([answer])[0].why is Refusal.CLIENT_ID_IN_USE
    assert isinstance(stage.say(4, Connect(connection="x", client_id="id"))[0], Connected)


def test_disconnect_gives_everything_back_and_ends_the_transport(stage: Stage) -> None:
    stage.send(1, "m")
    stage.consume(1)
    assert stage.say(1, Disconnect(request=3)) == [Done(request=3), HangUp()]
    assert stage.left() == ["m"]


def test_the_ghost_of_a_connection_ends_before_its_successor_hears_anything(stage: Stage) -> None:
    stage.attach(2, "same")
    stage.send(1, "a", "b")
    assert bodies(stage.consume(2)) == ["a", "b"]
    stage.attach(3, "same")
    assert stage.hear(2) == [HangUp()]
    found = stage.consume(3)
    assert bodies(found) == ["a", "b"]
    assert flags(found) == [True, True]
    assert refusals(stage.acknowledge(2, 1))[0].why is Refusal.PROTOCOL
    assert stage.acknowledge(3, 1, 2) == [Done(request=1)]


def test_creations_repeated_are_harmless_and_changed_ones_refused(stage: Stage) -> None:
    again = OpenSession(request=1, session="s")
    assert stage.say(1, again, again) == [Done(request=1)] * 2
    assert refusals(stage.say(1, OpenSession(session="s", transacted=True)))[0].why is Refusal.ILLEGAL_STATE
    consumer = OpenConsumer(request=2, session="s", consumer="k", source=Address("q"))
    assert stage.say(1, consumer, consumer) == [Done(request=2)] * 2
    other = OpenConsumer(session="s", consumer="k", source=Address("other"))
    assert refusals(stage.say(1, other))[0].why is Refusal.ILLEGAL_STATE


@pytest.mark.parametrize(
    ("source", "selector", "why"),
    [
        (Address("t", topic=True), None, Refusal.UNSUPPORTED),
        (Address("t", temporary=True), None, Refusal.UNSUPPORTED),
        (Address("q"), "x = 1", Refusal.UNSUPPORTED),
        (Address(""), None, Refusal.INVALID_DESTINATION),
    ],
)
def test_what_this_release_has_not_is_refused(
    stage: Stage, source: Address, selector: str | None, why: Refusal
) -> None:
    command = OpenConsumer(session="s", consumer="k", source=source, selector=selector)
    assert refusals(stage.say(1, command))[0].why is why


def test_no_local_means_nothing_on_a_queue(stage: Stage) -> None:
    stage.send(1, "own")
    command = OpenConsumer(session="s", consumer="k", source=Address("q"), no_local=True, credit=1)
    assert bodies(deliveries(stage.say(1, command))) == ["own"]


# -- queues --------------------------------------------------------------------------------------------------


def test_first_delivery_is_unflagged_and_counted_one(stage: Stage) -> None:
    stage.send(1, "m")
    (found,) = stage.consume(1)
    assert (found.redelivered, found.delivery_count) == (False, 1)


def test_higher_priority_first_and_fifo_within(stage: Stage) -> None:
    for number, priority in enumerate([4, 9, 4, 0, 9, 12]):
        stage.say(1, Send(session="s", envelope=message(f"{priority}.{number}", priority=priority)))
    assert bodies(stage.consume(1)) == ["9.1", "9.4", "12.5", "4.0", "4.2", "0.3"]


def test_credit_bounds_what_is_out_and_grants_add(stage: Stage) -> None:
    stage.send(1, *"abcde")
    assert bodies(stage.consume(1, credit=2)) == ["a", "b"]
    assert bodies(deliveries(stage.say(1, Grant(consumer="k", credit=2)))) == ["c", "d"]


def test_consumers_take_turns(stage: Stage) -> None:
    stage.attach(2)
    stage.consume(1)
    stage.consume(2)
    stage.send(1, *"abcd")
    stage.settle()
    heard = {link: bodies(deliveries(stage.heard[link])) for link in (1, 2) if link in stage.heard}
    assert sorted(heard.get(2, [])) in (["a", "c"], ["b", "d"])


def test_a_slow_reader_gets_nothing_until_it_reads(stage: Stage) -> None:
    stage.consume(1)
    stage.broker.hold_up(1)
    stage.attach(2)
    stage.send(2, "a")
    assert stage.hear(1) == []
    stage.broker.go_on(1, stage.now)
    assert bodies(deliveries(stage.hear(1))) == ["a"]


def test_expired_messages_are_not_handed_out_and_leave_the_disk(stage: Stage) -> None:
    stage.say(1, Send(session="s", envelope=message("old", expires_at_ms=stage.now + 100)))
    stage.send(1, "young")
    stage.pass_time(100)
    assert len(stage.disk.messages) == 1
    assert bodies(stage.consume(1)) == ["young"]


def test_a_message_that_expired_while_no_broker_served_is_not_delivered(stage: Stage) -> None:
    stage.say(1, Send(session="s", envelope=message("old", expires_at_ms=stage.now + 100)))
    stage.now += 200
    stage.crash()
    assert stage.left() == []


def test_delivery_time_is_kept_over_a_takeover(stage: Stage) -> None:
    stage.say(1, Send(session="s", envelope=message("later", deliver_at_ms=stage.now + 500)))
    stage.send(1, "now")
    stage.crash()
    stage.attach(1)
    assert bodies(stage.consume(1)) == ["now"]
    stage.pass_time(499)
    assert stage.hear(1) == []
    stage.pass_time(1)
    assert bodies(deliveries(stage.hear(1))) == ["later"]


def test_on_send_settlement_forgets_at_once(stage: Stage) -> None:
    stage.send(1, "m")
    command = OpenConsumer(session="s", consumer="k", source=Address("q"), credit=1, settlement=Settlement.ON_SEND)
    assert bodies(deliveries(stage.say(1, command))) == ["m"]
    stage.lose(1)
    assert stage.left() == []
    assert not stage.disk.messages


# -- giving back ---------------------------------------------------------------------------------------------


def test_recover_starts_over_with_the_oldest_and_flags_what_was_seen(stage: Stage) -> None:
    stage.send(1, *"abcd")
    stage.consume(1, credit=3)
    answers = stage.say(1, Recover(request=5, session="s", delivered=(1, 2)))
    assert answers[0] == Done(request=5)
    again = deliveries(answers)
    assert [(a.envelope.body, a.redelivered, a.delivery_count) for a in again] == [
        (b"a", True, 2),
        (b"b", True, 2),
        (b"c", False, 1),
    ]


def test_stale_deliveries_cannot_be_acknowledged_and_nothing_is_done_by_halves(stage: Stage) -> None:
    stage.send(1, *"ab")
    stage.consume(1)
    stage.say(1, Recover(session="s"))
    assert refusals(stage.acknowledge(1, 3, 1))[0].why is Refusal.ILLEGAL_STATE
    assert len(stage.disk.messages) == 2


def test_closing_a_consumer_keeps_what_was_seen_with_the_session(stage: Stage) -> None:
    stage.send(1, *"ab")
    stage.consume(1)
    stage.say(1, CloseConsumer(consumer="k", delivered=(1,)))
    assert stage.left() == ["b"]
    assert stage.acknowledge(1, 1) == [Done(request=1)]


def test_closing_a_session_flags_only_what_was_seen(stage: Stage) -> None:
    stage.send(1, *"ab")
    stage.consume(1)
    stage.say(1, CloseSession(session="s", delivered=(1,)))
    stage.attach(2)
    assert flags(stage.consume(2)) == [True, False]


def test_a_lost_link_gives_everything_back_flagged_in_order(stage: Stage) -> None:
    stage.send(1, *"abc")
    stage.attach(2)
    assert bodies(stage.consume(2, credit=2)) == ["a", "b"]
    stage.lose(2)
    stage.attach(3)
    found = stage.consume(3)
    assert bodies(found) == ["a", "b", "c"]
    assert flags(found) == [True, True, False]


# -- takeover ------------------------------------------------------------------------------------------------


def test_persistent_messages_survive_in_order_others_do_not(stage: Stage) -> None:
    stage.send(1, *"ab")
    stage.say(1, Send(session="s", envelope=message("volatile", persistent=False)))
    stage.send(1, "c")
    stage.crash()
    assert stage.left() == ["a", "b", "c"]


def test_what_was_handed_out_comes_flagged_from_the_other_node_and_nothing_else(stage: Stage) -> None:
    stage.send(1, *"abc")
    stage.consume(1, credit=2)
    stage.acknowledge(1, 1)
    stage.crash()
    stage.attach(1)
    found = stage.consume(1)
    assert bodies(found) == ["b", "c"]
    assert flags(found) == [True, False]
    assert found[0].delivery_count == 2


# -- repeated sends ------------------------------------------------------------------------------------------


def sequenced(body: str, sequence: int, transaction: str = "") -> Send:
    return Send(
        request=1, session="s", envelope=message(body), producer="p", sequence=sequence, transaction=transaction
    )


def test_a_repeated_send_is_confirmed_and_not_stored_again_also_after_takeover(stage: Stage) -> None:
    stage.say(1, sequenced("a", 1))
    assert stage.say(1, sequenced("a", 1)) == [Done(request=1)]
    stage.crash()
    stage.attach(1)
    assert stage.say(1, sequenced("a", 1)) == [Done(request=1)]
    assert stage.say(1, sequenced("b", 2)) == [Done(request=1)]
    assert stage.left() == ["a", "b"]


def test_a_sequence_in_a_transaction_counts_once_committed(stage: Stage) -> None:
    stage.say(1, sequenced("a", 1, "t1"), sequenced("a", 1, "t1"), Rollback(session="s", transaction="t1"))
    stage.say(1, sequenced("a", 1, "t2"), sequenced("a", 1, "t2"), Commit(session="s", transaction="t2"))
    stage.say(1, sequenced("a", 1, "t3"), Commit(session="s", transaction="t3"))
    assert stage.left() == ["a"]


@pytest.mark.parametrize("sequence", [-1, 2**63])
def test_a_sequence_that_no_store_can_hold_is_against_the_protocol(stage: Stage, sequence: int) -> None:
    assert refusals(stage.say(1, sequenced("a", sequence)))[0].why is Refusal.PROTOCOL


# -- transactions --------------------------------------------------------------------------------------------


def test_commit_makes_sends_visible_and_receipts_final(stage: Stage) -> None:
    stage.send(1, "in")
    stage.consume(1)
    stage.acknowledge(1, 1, transaction="c/s/1")
    stage.send(1, "out", queue="r", transaction="c/s/1")
    assert stage.left("r") == []
    assert stage.say(1, Commit(request=2, session="s", transaction="c/s/1")) == [Done(request=2)]
    stage.crash()
    assert stage.left("q") == []
    assert stage.left("r") == ["out"]


def test_rollback_undoes_and_starts_over(stage: Stage) -> None:
    stage.send(1, *"ab")
    stage.consume(1)
    stage.acknowledge(1, 1, transaction="t")
    stage.send(1, "never", transaction="t")
    answers = stage.say(1, Rollback(request=3, session="s", transaction="t", delivered=(1,)))
    assert answers[0] == Done(request=3)
    assert bodies(deliveries(answers)) == ["a", "b"]
    assert flags(deliveries(answers)) == [True, False]
    assert refusals(stage.say(1, Commit(session="s", transaction="t")))[0].why is Refusal.ROLLED_BACK


def test_several_transactions_of_a_session_do_not_touch_each_other(stage: Stage) -> None:
    stage.send(1, *"abc")
    stage.consume(1)
    stage.acknowledge(1, 1, transaction="t1")
    stage.acknowledge(1, 2, transaction="t2")
    again = deliveries(stage.say(1, Rollback(session="s", transaction="t1", delivered=(1,))))
    assert bodies(again) == ["a", "c"]
    assert stage.say(1, Commit(request=1, session="s", transaction="t2")) == [Done(request=1)]
    stage.lose(1)
    assert stage.left() == ["a", "c"]


def test_a_transaction_dies_with_its_transport_and_cannot_be_committed_later(stage: Stage) -> None:
    stage.send(1, "x", transaction="c1/s/1")
    stage.lose(1)
    stage.attach(2, "c1")
    assert refusals(stage.say(2, Commit(session="s", transaction="c1/s/1")))[0].why is Refusal.ROLLED_BACK
    assert refusals(stage.say(2, Send(session="s", envelope=message("y"), transaction="c1/s/1")))
    assert stage.left() == []


def test_commit_of_unknown_work_is_refused_after_takeover_and_of_an_opened_one_is_not(stage: Stage) -> None:
    stage.send(1, "x", transaction="c1/s/1")
    stage.crash()
    stage.attach(1)
    assert refusals(stage.say(1, Commit(session="s", transaction="c1/s/1")))[0].why is Refusal.ROLLED_BACK
    commands = Begin(session="s", transaction="c1/s/2"), Commit(request=1, session="s", transaction="c1/s/2")
    assert stage.say(1, *commands) == [Done(request=1)]


@pytest.mark.parametrize("crash", [False, True])
def test_fates(stage: Stage, crash: bool) -> None:
    stage.send(1, "x", transaction="c1/s/1")
    stage.say(1, Commit(session="s", transaction="c1/s/1"))
    stage.send(1, "y", transaction="c1/s/2")
    if crash:
        stage.crash()
    stage.attach(2, "c1")
    fates = stage.say(2, AskFate(request=1, transaction="c1/s/1"), AskFate(request=2, transaction="c1/s/2"))
    assert fates == [FateIs(request=1, fate=Fate.COMMITTED), FateIs(request=2, fate=Fate.ROLLED_BACK)]
    assert stage.say(2, Commit(request=1, session="s", transaction="c1/s/1")) == [Done(request=1)]
    assert refusals(stage.say(2, Commit(session="s", transaction="c1/s/2")))
    assert stage.left() == ["x"]


def test_the_fate_of_an_open_transaction_is_unknown(stage: Stage) -> None:
    stage.send(1, "x", transaction="t")
    assert stage.say(1, AskFate(transaction="t")) == [FateIs(fate=Fate.UNKNOWN)]


def test_answers_are_given_only_where_asked_and_in_order(stage: Stage) -> None:
    stage.send(1, "m")
    answers = stage.say(
        1,
        Ping(),
        OpenConsumer(request=1, session="s", consumer="k", source=Address("q"), credit=1),
        Ping(request=2),
    )
    assert [type(answer) for answer in answers] == [Done, Deliver, Done]
