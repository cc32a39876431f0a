"""Every rule seen to pass and to fail on hand-written logs, with the messages and positions that show it."""

import pytest

from spark_analysis.rules import RULES
from spark_analysis.schema import Kind
from tests.spark_analysis.scene import ATTEMPT, FAILED, INDETERMINATE, OK, Scene

# --- lost ---------------------------------------------------------------------------------------------------------


def test_confirmed_and_received_is_not_lost() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.receive("a")
    scene.drain("b")
    finding = scene.findings()["lost"]
    assert finding.outcome == "passed"
    assert finding.mode == "AUTO"
    assert {"MSG-11", "ACK-AUTO-09"} <= set(finding.requirements)
    assert scene.failed() == set()


def test_a_confirmed_message_that_never_came_is_lost() -> None:
    scene = Scene()
    scene.send("a")
    sent = scene.send("b")
    scene.receive("a")
    scene.crash()
    scene.drain()
    finding = scene.findings()["lost"]
    assert finding.outcome == "failed"
    assert finding.messages == ("b",)
    assert {sent, sent + 1} <= set(finding.positions)
    assert "b, sent at 2 and confirmed at 3" in finding.detail
    assert scene.failed() == {"lost"}


@pytest.mark.parametrize("outcome", [INDETERMINATE, None])
def test_an_unknown_send_may_come_or_not(outcome: None) -> None:
    for came in ((), ("b",)):
        scene = Scene()
        scene.send("a")
        scene.send("b", outcome=outcome)
        scene.crash("p")
        scene.drain("a", *came)
        assert scene.failed() == set()
        assert scene.outcomes()["lost"] == "passed"


def test_without_a_drain_nobody_knows_of_what_did_not_come() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.receive("a")
    finding = scene.findings()["lost"]
    assert finding.outcome == "indeterminate"
    assert "nobody read q to the end" in finding.detail
    scene.receive("b")
    assert scene.outcomes()["lost"] == "passed"
    scene.send("late")
    assert scene.outcomes()["lost"] == "indeterminate"


def test_an_unacknowledged_receipt_proves_nothing_without_a_drain() -> None:
    scene = Scene("CLIENT")
    scene.send("a")
    scene.receive("a")
    assert scene.outcomes()["lost"] == "indeterminate"
    scene.acknowledge()
    assert scene.outcomes()["lost"] == "passed"


def test_only_the_last_definite_verdict_counts_over_an_undrained_queue() -> None:
    scene = Scene()
    scene.send("a")
    scene.send("x", to="other")
    scene.drain()
    assert scene.outcomes()["lost"] == "failed"


@pytest.mark.parametrize(("fault", "verdict"), [(True, "passed"), (False, "failed")])
def test_non_persistent_messages_are_lost_by_failures_only(fault: bool, verdict: str) -> None:
    scene = Scene()
    scene.send("a", persistent=False)
    if fault:
        scene.crash()
    scene.drain()
    finding = scene.findings()["lost"]
    assert finding.outcome == verdict
    assert "MSG-10" in finding.requirements


def test_a_harmless_fault_excuses_nothing() -> None:
    scene = Scene()
    scene.send("a", persistent=False)
    scene.fault("kill-backup")
    scene.drain()
    assert scene.failed() == {"lost"}


def test_a_non_persistent_message_sent_after_the_failure_must_come() -> None:
    scene = Scene()
    scene.crash()
    scene.send("a", persistent=False)
    scene.drain()
    assert scene.failed() == {"lost"}


def test_a_transparent_failover_excuses_nothing() -> None:
    scene = Scene(transparent="on")
    scene.send("a", persistent=False)
    scene.crash()
    scene.drain()
    assert scene.failed() == {"lost"}


def test_a_volatile_destination_may_be_emptied_by_a_failure() -> None:
    scene = Scene(volatile__q="temporary queue")
    scene.send("a")
    scene.crash()
    scene.drain()
    assert scene.outcomes()["lost"] == "passed"


def test_an_expired_message_is_not_lost() -> None:
    scene = Scene()
    scene.send("a", expires_at_ms=100)
    scene.drain(wall_ms=200)
    assert scene.outcomes()["lost"] == "passed"
    early = Scene()
    early.send("a", expires_at_ms=300)
    early.drain(wall_ms=200)
    assert early.failed() == {"lost"}


def test_a_rolled_back_receive_is_no_consumption() -> None:
    scene = Scene("TRANSACTED")
    scene.send("a")
    received = scene.receive("a", transaction="t1")
    scene.rollback("t1")
    scene.drain()
    finding = scene.findings()["lost"]
    assert finding.outcome == "failed"
    assert received in finding.positions
    assert "given back" in finding.detail
    assert {"TX-03"} <= set(finding.requirements)


def test_what_an_open_session_still_holds_is_not_lost_but_a_closed_one_gives_it_back() -> None:
    for closed, verdict in ((False, "passed"), (True, "failed")):
        scene = Scene("CLIENT")
        scene.send("a")
        scene.receive("a")
        if closed:
            scene.close("c/s")
        scene.drain()
        assert scene.outcomes()["lost"] == verdict


def test_an_unknown_acknowledge_leaves_the_message_gone_or_redelivered() -> None:
    for came in ((), ("a",)):
        scene = Scene("CLIENT")
        scene.send("a")
        scene.receive("a")
        scene.fault()
        scene.acknowledge("a", outcome=INDETERMINATE)
        scene.failover()
        scene.drain(*came, again=True)
        assert scene.failed() == set()


# --- topics -------------------------------------------------------------------------------------------------------


def subscribe(scene: Scene, endpoint: str, name: str = "", durable: bool = False) -> None:
    connection, _, rest = endpoint.partition("/")
    scene.add(
        Kind.SUBSCRIBE,
        connection=connection,
        session=rest.partition("/")[0],
        endpoint=endpoint,
        destination="t",
        detail=name,
        persistent=durable,
    )


def test_each_subscription_is_owed_its_own_copy() -> None:
    scene = Scene()
    subscribe(scene, "c/s/c1", "news", durable=True)
    subscribe(scene, "d/s/c1", "audit", durable=True)
    scene.send("a", to="t")
    scene.receive("a", at="t")
    scene.add(Kind.DRAINED, destination="t")
    finding = scene.findings()["lost"]
    assert finding.outcome == "failed"
    assert "t [audit]" in finding.detail
    assert scene.failed() == {"lost"}


def test_a_subscription_is_owed_only_what_was_sent_while_it_existed() -> None:
    scene = Scene()
    scene.send("before", to="t")
    subscribe(scene, "c/s/c1")
    scene.send("during", to="t")
    scene.receive("during", at="t")
    scene.add(Kind.DRAINED, destination="t")
    scene.close("c/s")
    scene.send("after", to="t", persistent=False)
    assert scene.outcomes()["lost"] == "passed"
    assert scene.failed() == set()


def test_a_non_durable_subscriber_may_miss_messages_in_a_failure_a_durable_one_may_not() -> None:
    for durable in (False, True):
        scene = Scene()
        subscribe(scene, "c/s/c1", "news", durable=durable)
        scene.send("a", to="t")
        scene.crash()
        scene.add(Kind.DRAINED, destination="t", endpoint="c/s/c1")
        assert scene.failed() == ({"lost"} if durable else set())


# --- duplicated: AUTO ---------------------------------------------------------------------------------------------


def consumed(scene: Scene) -> Scene:
    scene.send("a", "b", "c")
    scene.receive("a", "b")
    return scene


def test_auto_the_last_consumed_may_come_again_flagged() -> None:
    scene = consumed(Scene())
    scene.crash()
    scene.receive("b", again=True)
    scene.receive("c")
    scene.drain()
    assert scene.failed() == set()
    assert scene.findings()["redelivered-flag-missing"].outcome == "passed"


def test_auto_an_earlier_message_may_not_come_again() -> None:
    scene = consumed(Scene())
    scene.crash()
    again = scene.receive("a", again=True)
    scene.receive("c")
    scene.drain()
    finding = scene.findings()["duplicated"]
    assert finding.outcome == "failed"
    assert finding.messages == ("a",)
    assert again in finding.positions
    assert "ACK-AUTO-02" in finding.requirements
    assert "duplicated" in scene.failed()


def test_auto_only_one_message_a_failure() -> None:
    scene = consumed(Scene())
    scene.fault()
    scene.add(Kind.FAILOVER_BEGUN, connection="c")
    scene.receive("c")  # handed over while the failover ran
    scene.epochs["c"] = 1
    scene.add(Kind.FAILOVER_DONE, connection="c")
    scene.receive("b", "c", again=True)
    scene.drain()
    finding = scene.findings()["duplicated"]
    assert finding.messages == ("c",)
    assert "message b had come again already" in finding.detail


def test_auto_a_message_handed_over_between_fault_and_loss_is_the_last() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.receive("a")
    scene.fault()
    scene.receive("b")
    scene.failover()
    scene.receive("b", again=True)
    scene.drain()
    assert scene.failed() == set()
    scene.receive("a", again=True, session="drain/s")
    assert "duplicated" in scene.failed()


def test_auto_without_a_failure_nothing_comes_again() -> None:
    scene = consumed(Scene())
    scene.receive("b", again=True)
    scene.drain("c")
    assert scene.failed() == {"duplicated"}


def test_auto_each_failure_has_its_own_last_message() -> None:
    scene = consumed(Scene())
    scene.crash()
    scene.receive("b", again=True)
    scene.receive("c")
    scene.crash()
    scene.receive("c", again=True)
    scene.drain()
    assert scene.failed() == set()
    scene.receive("c", again=True)
    assert "duplicated" in scene.failed()


def test_auto_the_epoch_alone_shows_a_loss() -> None:
    scene = consumed(Scene())
    scene.epochs["c"] = 1
    scene.receive("b", again=True)
    scene.receive("c")
    scene.drain()
    assert scene.failed() == set()


def test_auto_a_connection_that_died_of_the_fault_leaves_its_last_message_to_others() -> None:
    scene = consumed(Scene(failover="NF"))
    scene.fault("client-kill")
    scene.drain("b", again=True)
    assert scene.outcomes()["duplicated"] == "passed"
    scene.receive("a", again=True, session="drain/s")
    assert scene.outcomes()["duplicated"] == "failed"


def test_auto_the_failover_listeners_own_epochs_do_not_count_a_failure_twice() -> None:
    scene = consumed(Scene())
    scene.fault()
    scene.add(Kind.NOTE, connection="c", epoch=1, detail="FAILURE_DETECTED")
    scene.add(Kind.FAILOVER_BEGUN, connection="c", epoch=1)
    scene.receive("c", epoch=1)
    scene.add(Kind.FAILOVER_DONE, connection="c", epoch=2)
    scene.receive("c", again=True, epoch=1)
    scene.drain()
    assert scene.failed() == set()
    scene.receive("b", again=True)
    assert "duplicated" in scene.failed()


def test_auto_without_failover_events_one_message_after_the_fault_may_come_again() -> None:
    for again, failed in ((("b",), set()), (("a", "b"), {"duplicated"})):
        scene = Scene(failover="NF")
        scene.add(Kind.CONNECT, connection="c")
        scene.send("a", "b")
        scene.fault("blackhole")
        scene.receive("a", "b")
        scene.drain(*again, again=True)
        assert scene.failed() == failed


def test_auto_a_fault_on_another_connection_is_no_excuse() -> None:
    scene = consumed(Scene())
    scene.fault("cut", connection="other")
    scene.receive("b", again=True)
    scene.drain("c")
    assert scene.failed() == {"duplicated"}


def test_auto_a_listener_that_raised_gets_its_message_again() -> None:
    scene = Scene()
    scene.send("a")
    attempt = scene.add(
        Kind.RECEIVE, ATTEMPT, connection="c", session="s", mode="AUTO", destination="q", message="a", endpoint="c1"
    )
    scene.add(Kind.RECEIVE, FAILED, op=attempt, connection="c", session="s")
    scene.drain("a", again=True)
    assert scene.failed() == set()


def test_a_second_copy_of_one_send_is_a_duplicate_even_unflagged() -> None:
    scene = consumed(Scene())
    scene.crash()
    scene.receive("a", "c")
    scene.drain()
    assert scene.failed() == {"duplicated"}


# --- duplicated: DUPS_OK, CLIENT, TRANSACTED ------------------------------------------------------------------------


def test_dups_ok_any_number_if_flagged() -> None:
    scene = consumed(Scene("DUPS_OK"))
    scene.crash()
    scene.receive("a", "b", again=True)
    scene.crash()
    scene.receive("a", "b", again=True)
    scene.drain("c")
    assert scene.failed() == set()
    assert "ACK-DUPS-02" in scene.findings()["redelivered-flag-missing"].requirements


def test_dups_ok_unflagged_is_a_missing_flag_after_a_failure_and_a_second_copy_without_one() -> None:
    for crash, rule in ((True, "redelivered-flag-missing"), (False, "duplicated")):
        scene = consumed(Scene("DUPS_OK"))
        if crash:
            scene.crash()
        scene.receive("b")
        scene.drain("c")
        assert scene.failed() == {rule}


def test_client_what_was_not_acknowledged_may_come_again() -> None:
    scene = Scene("CLIENT")
    scene.send("a", "b")
    scene.receive("a")
    scene.acknowledge("a")
    scene.receive("b")
    scene.crash()
    scene.receive("b", again=True)
    scene.acknowledge()
    scene.drain()
    assert scene.failed() == set()
    assert scene.outcomes()["delivered-after-acknowledge"] == "passed"


def test_client_what_was_acknowledged_may_not() -> None:
    scene = Scene("CLIENT")
    scene.send("a", "b")
    scene.receive("a", "b")
    confirmed = scene.acknowledge() + 1
    scene.crash()
    again = scene.receive("a", again=True)
    scene.drain()
    findings = scene.findings()
    assert scene.failed() == {"duplicated", "delivered-after-acknowledge"}
    assert {confirmed, again} <= set(findings["delivered-after-acknowledge"].positions)
    assert findings["delivered-after-acknowledge"].requirements == ("ACK-CLIENT-01",)


def test_client_no_second_consumer_while_the_first_holds_the_message() -> None:
    scene = Scene("CLIENT")
    scene.send("a")
    scene.receive("a")
    scene.receive("a", session="d/s", again=True)
    scene.drain()
    assert "duplicated" in scene.failed()
    assert "MSG-25" in scene.findings()["duplicated"].requirements


def test_client_recover_gives_back() -> None:
    scene = Scene("CLIENT")
    scene.send("a", "b")
    scene.receive("a", "b")
    scene.recover()
    scene.receive("a", "b", again=True)
    scene.acknowledge()
    scene.drain()
    assert scene.failed() == set()


def test_client_a_stale_acknowledge_gives_back_and_the_next_one_covers_only_the_new() -> None:
    scene = Scene("CLIENT")
    scene.send("a", "b")
    scene.receive("a", "b")
    scene.crash()
    scene.receive("a", again=True)
    scene.acknowledge(outcome=FAILED, error="StaleSessionException", code="SESSION_STALE")
    scene.receive("a", "b", again=True)
    scene.acknowledge()
    scene.drain()
    assert scene.failed() == set()


def test_client_a_stale_acknowledge_that_succeeds_silently_is_caught() -> None:
    scene = Scene("CLIENT")
    scene.send("a")
    scene.receive("a")
    scene.crash()
    scene.acknowledge("a")
    scene.drain("a", again=True)
    assert "delivered-after-acknowledge" in scene.failed()


def test_transacted_what_was_rolled_back_comes_again_what_was_committed_does_not() -> None:
    scene = Scene("TRANSACTED")
    scene.send("a", "b")
    scene.receive("a", transaction="t1")
    scene.commit("t1")
    scene.receive("b", transaction="t2")
    scene.crash()
    scene.commit("t2", FAILED)
    scene.receive("b", transaction="t3", again=True)
    scene.commit("t3")
    scene.drain()
    assert scene.failed() == set()
    scene.receive("a", again=True, session="drain/s", mode="AUTO")
    assert {"duplicated", "delivered-after-acknowledge"} <= scene.failed()


def test_transacted_a_commit_that_silently_succeeds_after_failover_is_caught() -> None:
    scene = Scene("TRANSACTED")
    scene.send("a")
    scene.receive("a", transaction="t1")
    scene.crash()
    scene.commit("t1")
    scene.drain("a", again=True)
    findings = scene.findings()
    assert findings["duplicated"].outcome == "failed"
    assert "TX-03" in findings["duplicated"].requirements


def test_two_consumers_commit_one_message() -> None:
    scene = Scene("TRANSACTED")
    scene.send("a")
    scene.receive("a", transaction="t1")
    scene.crash()
    scene.receive("a", transaction="t2", session="d/s", again=True)
    scene.commit("t2", session="d/s")
    scene.commit("t1")
    scene.drain()
    assert "TX-20" in scene.findings()["duplicated"].requirements
    assert "duplicated" in scene.failed()


# --- duplicated: producing ------------------------------------------------------------------------------------------


def test_a_uid_sent_twice_may_come_twice_unless_duplicate_detection_is_promised() -> None:
    for options, failed in (({}, set()), ({"duplicate_detection": "on"}, {"duplicated"})):
        scene = Scene(**options)
        scene.send("a", outcome=INDETERMINATE)
        scene.crash("p")
        scene.send("a")
        scene.drain("a", "a")
        assert scene.failed() == failed
        if failed:
            assert "SND-03" in scene.findings()["duplicated"].requirements


def test_one_unknown_send_makes_one_copy_at_most() -> None:
    scene = Scene()
    scene.send("a", outcome=INDETERMINATE)
    scene.crash("p")
    scene.drain("a", "a")
    assert scene.failed() == {"duplicated"}
    assert "SND-02" in scene.findings()["duplicated"].requirements


def test_a_refused_retry_is_no_second_copy() -> None:
    scene = Scene()
    scene.send("a", outcome=FAILED)
    scene.send("a")
    scene.drain("a", "a")
    assert scene.failed() == {"duplicated"}


# --- redelivered-flag-missing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["AUTO", "CLIENT", "TRANSACTED"])
def test_an_allowed_repeat_must_be_flagged(mode: str) -> None:
    scene = Scene(mode)
    scene.send("a")
    first = scene.receive("a", **({"transaction": "t1"} if mode == "TRANSACTED" else {}))
    scene.crash()
    if mode == "TRANSACTED":
        scene.commit("t1", FAILED)
    scene.drain("a")
    finding = scene.findings()["redelivered-flag-missing"]
    assert scene.failed() == {"redelivered-flag-missing"}
    assert finding.positions[0] == first
    assert finding.mode == mode
    assert finding.requirements[0].startswith(("ACK-", "TX-"))


def test_a_non_persistent_repeat_without_flag_is_named_so() -> None:
    scene = Scene()
    scene.send("a", persistent=False)
    scene.receive("a")
    scene.crash()
    scene.drain("a")
    assert "MSG-10" in scene.findings()["redelivered-flag-missing"].requirements


# --- phantom ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uid", "why"),
    [
        ("ghost", "nobody sent it"),
        ("refused", "its send failed definitely"),
        ("stray", "it was sent to other"),
        ("undone", "its transaction t1 was rolled back"),
        ("denied", "its transaction t2 was rolled back"),
        ("dangling", "its transaction t3 was never committed"),
    ],
)
def test_phantoms(uid: str, why: str) -> None:
    scene = Scene()
    scene.send("refused", outcome=FAILED)
    scene.send("stray", to="other")
    scene.send("undone", transaction="t1")
    scene.rollback("t1", session="p/s")
    scene.send("denied", transaction="t2")
    scene.commit("t2", FAILED, session="p/s")
    scene.send("dangling", transaction="t3")
    clean = scene.outcomes()["phantom"]
    scene.drain(uid)
    finding = scene.findings()["phantom"]
    assert clean == "passed"
    assert finding.outcome == "failed"
    assert finding.messages == (uid,)
    assert why in finding.detail


def test_a_browser_may_not_see_phantoms_either() -> None:
    scene = Scene()
    scene.send("a", transaction="t1")
    browsed = scene.add(Kind.BROWSE, destination="q", messages=("a",), connection="c", session="s")
    scene.rollback("t1", session="p/s")
    finding = scene.findings()["phantom"]
    assert finding.outcome == "failed"
    assert browsed in finding.positions
    assert "TX-13" in finding.requirements


# --- reordered --------------------------------------------------------------------------------------------------------


def test_first_deliveries_overtaking_each_other() -> None:
    scene = Scene()
    scene.send("a", "b", "c")
    scene.receive("a", "c", "b")
    scene.drain()
    finding = scene.findings()["reordered"]
    assert scene.failed() == {"reordered"}
    assert set(finding.messages) == {"b", "c"}
    assert "ORD-01" in finding.requirements


def test_gaps_priorities_persistence_and_other_producers_are_no_disorder() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.send("high", priority=9)
    scene.send("fast", persistent=False)
    scene.send("x", session="p/s2")
    scene.receive("x", "high", "fast", "b")
    scene.drain()
    assert scene.outcomes()["reordered"] == "passed"


def test_order_holds_over_a_failure_for_a_lone_consumer() -> None:
    scene = Scene()
    scene.send("a", "b", "c", "d")
    scene.receive("a", "b")
    scene.crash()
    scene.receive("d", "c")
    scene.drain()
    finding = scene.findings()["reordered"]
    assert scene.failed() == {"reordered"}
    assert "ORD-04" in finding.requirements


def test_what_another_consumer_had_prefetched_may_come_late_after_a_failure_only() -> None:
    for crash in (True, False):
        scene = Scene()
        scene.send("a", "b", "c", "d", "e")
        scene.receive("a", session="d/s")
        scene.receive("d")
        if crash:
            scene.crash("c", "d")
        scene.receive("b", "c", "e")
        scene.drain()
        assert scene.failed() == (set() if crash else {"reordered"})


def test_returned_messages_come_before_unseen_ones() -> None:
    for order, failed in ((("a", "b", "c"), set()), (("c", "a", "b"), {"reordered"})):
        scene = Scene("CLIENT")
        scene.send("a", "b", "c")
        scene.receive("a", "b")
        scene.recover()
        for uid in order:
            scene.receive(uid, again=uid != "c")
        scene.acknowledge()
        scene.drain()
        assert scene.failed() == failed


def test_a_resent_uid_stands_anywhere_between_its_sends() -> None:
    scene = Scene()
    scene.send("a", outcome=INDETERMINATE)
    scene.send("b")
    scene.send("a")
    scene.receive("b", "a")
    scene.drain()
    assert scene.failed() == set()


# --- torn-transaction -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [OK, INDETERMINATE, None, FAILED])
def test_half_of_a_transactions_sends_came(outcome: None) -> None:
    scene = Scene("TRANSACTED")
    scene.send("a", "b", transaction="t1")
    ended = scene.commit("t1", outcome, session="p/s")
    scene.crash("p")
    scene.drain("a")
    finding = scene.findings()["torn-transaction"]
    assert finding.outcome == "failed"
    assert set(finding.messages) == {"a", "b"}
    assert ended in finding.positions or ended + 1 in finding.positions
    assert "TX-16" in finding.requirements


@pytest.mark.parametrize("came", [(), ("a", "b")])
def test_an_unknown_commit_may_go_either_way(came: tuple[str, ...]) -> None:
    scene = Scene("TRANSACTED")
    scene.send("a", "b", transaction="t1")
    scene.commit("t1", INDETERMINATE, session="p/s")
    scene.crash("p")
    scene.drain(*came)
    assert scene.failed() == set()
    assert scene.outcomes()["torn-transaction"] == "passed"


@pytest.mark.parametrize(
    ("again", "torn"), [((), False), (("x", "y"), True), (("x",), True)], ids=["done", "undone", "half"]
)
def test_sends_and_receipts_share_their_fate(again: tuple[str, ...], torn: bool) -> None:
    scene = Scene("TRANSACTED")
    scene.send("x", "y", to="in", session="f/s")
    scene.receive("x", "y", transaction="t1", at="in")
    scene.send("a", transaction="t1", session="c/s")
    scene.commit("t1", INDETERMINATE)
    scene.crash("c")
    scene.drain("a")
    scene.drain(*again, at="in", again=True)
    assert ("torn-transaction" in scene.failed()) is torn


def test_half_of_the_receipts_came_again() -> None:
    scene = Scene("TRANSACTED")
    scene.send("x", "y")
    scene.receive("x", "y", transaction="t1")
    scene.commit("t1", INDETERMINATE)
    scene.crash("c")
    scene.drain("y", again=True)
    assert scene.failed() == {"torn-transaction"}


def test_a_rollback_is_whole() -> None:
    scene = Scene("TRANSACTED")
    scene.send("x", "y")
    scene.receive("x", "y", transaction="t1")
    scene.rollback("t1")
    scene.drain("x", "y", again=True)
    assert scene.failed() == set()


def test_non_persistent_parts_are_no_evidence_of_a_tear() -> None:
    scene = Scene("TRANSACTED")
    scene.send("a", transaction="t1")
    scene.send("b", transaction="t1", persistent=False)
    scene.commit("t1", session="p/s")
    scene.crash("p")
    scene.drain("a")
    assert scene.failed() == set()


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_changed_body() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.receive("a")
    assert scene.outcomes()["body-changed"] == "passed"
    scene.receive("b", digest="other")
    scene.drain()
    assert scene.failed() == {"body-changed"}
    assert scene.findings()["body-changed"].messages == ("b",)


def test_expired_delivered() -> None:
    scene = Scene()
    scene.send("a", "b", expires_at_ms=1000)
    scene.receive("a", wall_ms=1100)
    assert scene.outcomes()["expired-delivered"] == "passed"
    scene.receive("b", wall_ms=1300)
    scene.drain()
    assert scene.failed() == {"expired-delivered"}
    assert scene.findings()["expired-delivered"].requirements == ("MSG-04",)
    patient = Scene(expiry_tolerance_ms="500")
    patient.events = scene.events
    assert patient.failed() == set()


def test_delivery_count() -> None:
    scene = Scene("CLIENT")
    scene.send("a")
    scene.receive("a")
    scene.crash()
    scene.receive("a", again=True, delivery_count=0)
    assert "delivery-count" not in scene.outcomes()
    scene.crash()
    scene.receive("a", again=True, delivery_count=2)
    assert scene.outcomes()["delivery-count"] == "passed"
    scene.crash()
    scene.drain("a", again=True)
    bad = scene.receive("a", again=True, delivery_count=1)
    assert bad in scene.findings()["delivery-count"].positions
    assert scene.findings()["delivery-count"].requirements == ("MSG-09",)


def test_an_unfinished_log_passes_nothing_but_still_fails() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.drain("a")
    scene.finished = False
    outcomes = scene.outcomes()
    assert outcomes["unfinished"] == "failed"
    assert outcomes["lost"] == "failed"
    assert "passed" not in outcomes.values()


def test_an_attempt_without_an_end_is_fine_in_a_finished_log() -> None:
    scene = Scene("CLIENT")
    scene.send("a", outcome=None)
    scene.receive("a")
    scene.acknowledge("a", outcome=None)
    scene.crash()
    scene.drain("a", again=True)
    assert scene.failed() == set()


def test_an_exemption_needs_a_rule_and_a_reason() -> None:
    scene = Scene(exempt__lost="the queue is purged on purpose")
    scene.send("a")
    scene.drain()
    finding = scene.findings()["lost"]
    assert finding.outcome == "not-applicable"
    assert finding.detail == "the queue is purged on purpose"
    assert scene.failed() == set()
    assert Scene(exempt__lost=" ").failed() == {"unfinished"}
    assert Scene(exempt__losst="typo").failed() == {"unfinished"}
    assert Scene(exempt__unfinished="no").failed() == {"unfinished"}


def test_an_empty_scenario_judges_only_its_log() -> None:
    assert Scene().outcomes() == {"unfinished": "passed"}


def test_the_table_of_rules_is_complete() -> None:
    assert [rule.name for rule in RULES] == [
        "lost",
        "duplicated",
        "phantom",
        "reordered",
        "torn-transaction",
        "redelivered-flag-missing",
        "body-changed",
        "delivered-after-acknowledge",
        "expired-delivered",
        "delivery-count",
        "unfinished",
    ]
    assert all(rule.meaning.endswith(".") for rule in RULES)
