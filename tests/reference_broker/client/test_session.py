from __future__ import annotations

import threading
import time

import pytest

from reference_broker.broker.commands import (
    Acknowledge,
    CloseConsumer,
    Commit,
    OpenConsumer,
    OpenSession,
    Recover,
    Rollback,
    Send,
)
from reference_broker.client.connection import FailoverConnection
from reference_broker.client.driver import Feature
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    IllegalStateException,
    JMSException,
    Message,
    MessageConsumer,
    MessageNotWriteableException,
    Queue,
    StaleSessionException,
    TextMessage,
    TransactionOutcomeUnknownException,
    TransactionRolledBackException,
)
from tests.reference_broker.client.background import Background
from tests.reference_broker.client.events import Told
from tests.reference_broker.client.memory_wire import Network

QUEUE = Queue("q")
SOON = 2000


def fill(network: Network, *texts: str) -> None:
    with network.connect() as connection:
        producer = connection.create_session().create_producer(QUEUE)
        for text in texts:
            producer.send(TextMessage(text))


def take(consumer: MessageConsumer, timeout: int = SOON) -> tuple[str, bool]:
    message = consumer.receive(timeout)
    assert isinstance(message, TextMessage)
    return message.text or "", message.redelivered


def rest(network: Network) -> list[tuple[str, bool]]:
    with network.connect() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        found = []
        while (message := consumer.receive_no_wait()) is not None:
            assert isinstance(message, TextMessage)
            found.append((message.text or "", message.redelivered))
        return found


def cut(network: Network, connection: FailoverConnection) -> None:
    told = Told(connection)
    network.cut()
    told.restored()


# -- AUTO ----------------------------------------------------------------------------------------------------


def test_auto_acknowledges_each_message_and_prefetched_ones_come_again(network: Network) -> None:
    fill(network, *"abcdef")
    with network.connect() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        assert [take(consumer)[0] for _ in range(3)] == ["a", "b", "c"]
        cut(network, connection)
        assert [take(consumer)[0] for _ in range(3)] == ["d", "e", "f"]
        assert consumer.receive(1) is None
    assert rest(network) == []


@pytest.mark.parametrize("lost", [Acknowledge, Commit])
def test_an_auto_acknowledgement_that_was_undone_is_raised(network: Network, lost: type[Commit]) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        network.arm(lost, "drop-req")
        with pytest.raises(JMSException) as raised:
            consumer.receive(SOON)
        assert raised.value.code is Code.CALL_UNBLOCKED
        assert [take(consumer), take(consumer)[0]] == [("a", True), "b"]


def test_an_auto_acknowledgement_that_was_done_returns_the_message(network: Network) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        told = Told(connection)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        network.arm(Commit, "drop-reply")
        assert [take(consumer)[0], take(consumer)[0]] == ["a", "b"]
        told.restored()
        assert [error.code for error in told.errors] == [Code.CONNECTION_LOST]


def test_an_auto_acknowledgement_that_nobody_can_tell_of_hands_over_and_is_told(network: Network) -> None:
    network.features -= {Feature.COMMIT_FATE}
    fill(network, "a", "b")
    with network.connect() as connection:
        told = Told(connection)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        network.arm(Acknowledge, "drop-req")
        assert [take(consumer), take(consumer)] == [("a", False), ("a", True)]
        told.wait(lambda told: [error.code for error in told.errors] == [Code.CONNECTION_LOST, Code.CALL_UNBLOCKED])


def test_a_listeners_lost_acknowledgement_goes_to_the_exception_listener(network: Network) -> None:
    fill(network, "a")
    with network.connect() as connection:
        told = Told(connection)
        seen: list[tuple[str, bool]] = []
        done = threading.Semaphore(0)

        def listener(message: Message) -> None:
            assert isinstance(message, TextMessage)
            seen.append((message.text or "", message.redelivered))
            if len(seen) == 1:
                network.cut()
            done.release()

        connection.create_session().create_consumer(QUEUE).message_listener = listener
        connection.start()
        assert done.acquire(timeout=10)
        assert done.acquire(timeout=10)
        assert seen == [("a", False), ("a", True)]
        told.wait(lambda told: [error.code for error in told.errors] == [Code.CONNECTION_LOST, Code.CALL_UNBLOCKED])


def test_async_ack_reports_to_the_listener_and_repeats_only_the_last(network: Network) -> None:
    fill(network, "a", "b", "c")
    with network.connect(async_ack=True) as connection:
        told = Told(connection)
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        assert take(consumer) == ("a", False)
        network.wait_for(lambda: bool(network.of(Acknowledge)))
        network.arm(Acknowledge, "drop-req")
        assert take(consumer) == ("b", False)
        told.wait(lambda told: len(told.errors) == 2)
        assert {error.code for error in told.errors} == {Code.CONNECTION_LOST, Code.CALL_UNBLOCKED}
        assert take(consumer) == ("b", True)
        assert take(consumer)[0] == "c"


def test_a_listener_that_raises_gets_the_message_again_flagged(network: Network) -> None:
    fill(network, "a", "b")
    seen: list[tuple[str, bool]] = []
    done = threading.Event()
    with network.connect() as connection:

        def listener(message: Message) -> None:
            assert isinstance(message, TextMessage)
            seen.append((message.text or "", message.redelivered))
            if len(seen) == 1:
                raise RuntimeError("not yet")
            if message.text == "b":
                done.set()

        connection.create_session().create_consumer(QUEUE).message_listener = listener
        connection.start()
        assert done.wait(10)
    assert seen == [("a", False), ("a", True), ("b", False)]


# -- DUPS_OK -------------------------------------------------------------------------------------------------


def test_dups_ok_covers_only_what_was_handed_out_and_flushes_on_close(network: Network) -> None:
    fill(network, *"abcdefgh")
    with network.connect(dups_ok_batch=2) as connection:
        connection.start()
        consumer = connection.create_session(False, AcknowledgeMode.DUPS_OK).create_consumer(QUEUE)
        assert [take(consumer)[0] for _ in range(5)] == list("abcde")
        sent = [number for command in network.of(Acknowledge) for number in command.deliveries]  # type: ignore[attr-defined]
        assert len(sent) <= 4
    assert rest(network) == [("f", False), ("g", False), ("h", False)]


def test_dups_ok_flushes_when_the_listener_has_nothing_left(network: Network) -> None:
    fill(network, "a", "b", "c")
    with network.connect() as connection:
        session = connection.create_session(False, AcknowledgeMode.DUPS_OK)
        session.create_consumer(QUEUE).message_listener = lambda _: None
        connection.start()
        network.wait_for(lambda: sum(len(sent.deliveries) for sent in network.of(Acknowledge)) == 3)  # type: ignore[attr-defined]


def test_dups_ok_stays_lazy_while_another_listener_of_the_session_has_messages(network: Network) -> None:
    fill(network, "a", "b", "c")
    with network.connect() as connection:
        session = connection.create_session(False, AcknowledgeMode.DUPS_OK)
        session.create_consumer(QUEUE).message_listener = lambda _: None
        session.create_consumer(Queue("quiet")).message_listener = lambda _: None
        connection.start()
        network.wait_for(lambda: bool(network.of(Acknowledge)))
        assert [len(sent.deliveries) for sent in network.of(Acknowledge)] == [3]  # type: ignore[attr-defined]


def test_dups_ok_fails_over_silently_and_loses_nothing(network: Network) -> None:
    fill(network, *"abcd")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(False, AcknowledgeMode.DUPS_OK)
        consumer = session.create_consumer(QUEUE)
        assert take(consumer) == ("a", False)
        cut(network, connection)
        session.recover()
        assert [take(consumer)[0] for _ in range(4)] == list("abcd")
    assert rest(network) == []


# -- CLIENT --------------------------------------------------------------------------------------------------


def client_session(connection: FailoverConnection) -> tuple[FailoverConnection, MessageConsumer]:
    connection.start()
    return connection, connection.create_session(False, AcknowledgeMode.CLIENT).create_consumer(QUEUE)


def test_client_acknowledge_covers_all_consumers_of_the_session(network: Network) -> None:
    fill(network, "a", "b")
    with network.connect(prefetch=1) as connection:
        connection.start()
        session = connection.create_session(False, AcknowledgeMode.CLIENT)
        first, second = session.create_consumer(QUEUE), session.create_consumer(QUEUE)
        one, two = first.receive(SOON), second.receive(SOON)
        assert one is not None
        assert two is not None
        one.acknowledge()
    assert rest(network) == []


def test_stale_acknowledge_before_anything_new_raises_once_and_sends_no_recover(network: Network) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        _, consumer = client_session(connection)
        old = consumer.receive(SOON)
        assert old is not None
        cut(network, connection)
        with pytest.raises(StaleSessionException):
            old.acknowledge()
        assert not network.of(Recover)
        assert take(consumer) == ("a", True)
        new = consumer.receive(SOON)
        assert new is not None
        with pytest.raises(StaleSessionException):
            old.acknowledge()
        new.acknowledge()
    assert rest(network) == []


def test_stale_acknowledge_of_a_new_message_raises_and_gives_it_back(network: Network) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        _, consumer = client_session(connection)
        assert take(consumer)[0] == "a"
        cut(network, connection)
        assert take(consumer) == ("a", True)
        new = consumer.receive(SOON)
        assert new is not None
        with pytest.raises(StaleSessionException) as raised:
            new.acknowledge()
        assert raised.value.code is Code.SESSION_STALE
        assert len(network.of(Recover)) == 1
        assert take(consumer) == ("a", True)
        again = consumer.receive(SOON)
        assert again is not None
        again.acknowledge()
    assert rest(network) == []


def test_recover_after_a_failover_cleans(network: Network) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(False, AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(QUEUE)
        assert take(consumer)[0] == "a"
        cut(network, connection)
        assert take(consumer)[0] == "a"
        session.recover()
        assert take(consumer) == ("a", True)
        last = consumer.receive(SOON)
        assert last is not None
        last.acknowledge()
    assert rest(network) == []


def test_prefetch_alone_makes_nothing_stale_and_a_sibling_is_not_concerned(network: Network) -> None:
    fill(network, *"abc")
    with network.connect(prefetch=1) as connection:
        _, dirty = client_session(connection)
        _, clean = client_session(connection)
        held = dirty.receive(SOON)
        assert held is not None
        cut(network, connection)
        message = clean.receive(SOON)
        assert message is not None
        message.acknowledge()
        with pytest.raises(StaleSessionException):
            held.acknowledge()


@pytest.mark.parametrize(("fault", "left"), [("drop-req", [("a", True)]), ("drop-reply", [])])
def test_an_acknowledge_in_flight_is_reported_and_the_session_is_clean(
    network: Network, fault: str, left: list[tuple[str, bool]]
) -> None:
    fill(network, "a")
    with network.connect() as connection:
        _, consumer = client_session(connection)
        message = consumer.receive(SOON)
        assert message is not None
        network.arm(Acknowledge, fault)
        with pytest.raises(JMSException) as raised:
            message.acknowledge()
        assert raised.value.code is Code.CALL_UNBLOCKED
        for expected in left:
            again = consumer.receive(SOON)
            assert again is not None
            assert again.redelivered == expected[1]
            again.acknowledge()
    assert rest(network) == []


def test_recover_without_failure_gives_the_same_bodies_flagged(network: Network) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(False, AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(QUEUE)
        message = consumer.receive(SOON)
        assert isinstance(message, TextMessage)
        with pytest.raises(MessageNotWriteableException):
            message.text = "changed"
        message.clear_body()
        message.text = "changed"
        session.recover()
        assert [take(consumer), take(consumer)] == [("a", True), ("b", False)]


# -- transactions --------------------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(network: Network) -> None:
    fill(network, "in")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(True)
        consumer = session.create_consumer(QUEUE)
        out = Queue("out")
        producer = session.create_producer(out)
        assert take(consumer) == ("in", False)
        producer.send(TextMessage("1"))
        session.rollback()
        assert take(consumer) == ("in", True)
        producer.send(TextMessage("2"))
        session.commit()
        check = session.create_consumer(out)
        assert take(check) == ("2", False)
        assert check.receive_no_wait() is None
        session.commit()
    assert rest(network) == []


def test_a_dirty_transaction_is_rolled_back_with_what_was_added_and_the_session_goes_on(network: Network) -> None:
    fill(network, "in")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(True)
        consumer, producer = session.create_consumer(QUEUE), session.create_producer(Queue("out"))
        assert take(consumer) == ("in", False)
        producer.send(TextMessage("old half"))
        cut(network, connection)
        producer.send(TextMessage("new half"))
        with pytest.raises(TransactionRolledBackException):
            session.commit()
        assert take(consumer) == ("in", True)
        producer.send(TextMessage("replayed"))
        session.commit()
        check = session.create_consumer(Queue("out"))
        assert take(check) == ("replayed", False)
        assert check.receive_no_wait() is None
        session.commit()
    assert rest(network) == []


def test_rollback_after_a_failover_never_raises(network: Network) -> None:
    fill(network, "a")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(True)
        consumer = session.create_consumer(QUEUE)
        take(consumer)
        cut(network, connection)
        assert take(consumer) == ("a", True)
        session.rollback()
        assert take(consumer) == ("a", True)
        session.commit()
    assert rest(network) == []


def test_a_session_without_work_commits_after_a_failover(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session(True)
        session.create_producer(QUEUE).send(TextMessage("a"))
        session.commit()
        cut(network, connection)
        session.commit()
    assert rest(network) == [("a", False)]


def test_a_commit_whose_reply_was_lost_returns(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session(True)
        session.create_producer(QUEUE).send(TextMessage("a"))
        network.arm(Commit, "drop-reply")
        session.commit()
        session.commit()
    assert rest(network) == [("a", False)]


def test_a_commit_that_never_arrived_raises_rolled_back(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session(True)
        producer = session.create_producer(QUEUE)
        producer.send(TextMessage("a"))
        network.arm(Commit, "drop-req")
        with pytest.raises(TransactionRolledBackException):
            session.commit()
        producer.send(TextMessage("b"))
        session.commit()
    assert rest(network) == [("b", False)]


def test_a_commit_that_nobody_can_tell_of_is_unknown(network: Network) -> None:
    with network.connect(reconnect_attempts=1) as connection:
        session = connection.create_session(True)
        session.create_producer(QUEUE).send(TextMessage("a"))
        network.arm(Commit, "drop-reply")
        network.refusal = None
        network.down = True
        with pytest.raises(TransactionOutcomeUnknownException):
            session.commit()
        network.come_up()
    assert rest(network) == [("a", False)]


def test_a_loss_between_the_receipts_and_the_commit_rolls_back(network: Network) -> None:
    fill(network, "a")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(True)
        consumer = session.create_consumer(QUEUE)
        take(consumer)
        network.arm(Acknowledge, "drop-req")
        with pytest.raises(TransactionRolledBackException):
            session.commit()
        assert not network.of(Commit)
        assert take(consumer) == ("a", True)
        session.commit()


def test_a_send_in_flight_dooms_its_transaction(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session(True)
        producer = session.create_producer(QUEUE)
        network.arm(Send, "drop-reply")
        producer.send(TextMessage("a"))
        with pytest.raises(TransactionRolledBackException):
            session.commit()
    assert rest(network) == []


def test_without_credit_receipts_join_the_transaction_at_once(network: Network) -> None:
    network.features -= {Feature.CREDIT}
    fill(network, "a")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(True)
        take(session.create_consumer(QUEUE))
        assert len(network.of(Acknowledge)) == 1
        session.commit()
        assert len(network.of(Acknowledge)) == 1
    assert rest(network) == []


@pytest.mark.parametrize("transacted", [True, False])
def test_closing_gives_back_what_is_open(network: Network, transacted: bool) -> None:
    fill(network, "a", "b")
    with network.connect() as connection:
        connection.start()
        session = connection.create_session(transacted, AcknowledgeMode.CLIENT)
        take(session.create_consumer(QUEUE))
        session.close()
        session.close()
        with pytest.raises(IllegalStateException):
            session.create_producer(QUEUE)
    assert rest(network) == [("a", True), ("b", False)]


# -- receiving -----------------------------------------------------------------------------------------------


def test_receive_returns_none_in_time_during_an_outage(network: Network) -> None:
    with network.connect() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        network.go_down()
        begun = time.monotonic()
        assert consumer.receive(50) is None
        assert consumer.receive_no_wait() is None
        assert 0.05 <= time.monotonic() - begun < 5


def test_a_blocked_receive_goes_on_over_the_next_transport(network: Network) -> None:
    with network.connect() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        waiting = Background(lambda: take(consumer, 0))
        network.cut()
        fill(network, "a")
        assert waiting.result() == ("a", False)


@pytest.mark.parametrize("closes", ["connection", "session", "consumer"])
def test_closing_ends_a_blocked_receive_with_none(network: Network, closes: str) -> None:
    connection = network.connect()
    connection.start()
    session = connection.create_session()
    consumer = session.create_consumer(QUEUE)
    waiting = Background(consumer.receive)
    {"connection": connection, "session": session, "consumer": consumer}[closes].close()
    assert waiting.result() is None
    with pytest.raises(IllegalStateException):
        consumer.receive(1)
    connection.close()


def test_without_prefetch_messages_are_pulled_also_after_a_failover(network: Network) -> None:
    with network.connect(prefetch=0) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(QUEUE)
        assert consumer.receive_no_wait() is None
        fill(network, "a", "b", "c")
        assert take(consumer)[0] == "a"
        waiting = Background(lambda: [take(consumer)[0] for _ in range(2)])
        assert waiting.result() == ["b", "c"]
        blocked = Background(lambda: take(consumer))
        cut(network, connection)
        fill(network, "d")
        assert blocked.result()[0] == "d"
        listened = threading.Event()
        consumer.message_listener = lambda _message: listened.set()
        fill(network, "e")
        assert listened.wait(10)


def test_a_consumer_closed_during_the_outage_is_not_made_again(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        session = connection.create_session()
        kept, gone = session.create_consumer(QUEUE), session.create_consumer(QUEUE)
        network.go_down()
        gone.close()
        network.come_up()
        told.restored()
        made = [command.consumer for command in network.of(OpenConsumer)]  # type: ignore[attr-defined]
        assert made == [kept.spec.id, gone.spec.id, kept.spec.id]
        assert not network.of(CloseConsumer)


@pytest.mark.parametrize("kind", [OpenSession, OpenConsumer])
def test_a_creation_whose_reply_was_lost_makes_one_object(network: Network, kind: type[OpenSession]) -> None:
    fill(network, "a")
    with network.connect() as connection:
        connection.start()
        network.arm(kind, "drop-reply")
        assert take(connection.create_session().create_consumer(QUEUE)) in [("a", False), ("a", True)]


def test_an_object_that_the_new_broker_refuses_is_closed_and_told(network: Network) -> None:
    with network.connect() as connection:
        told = Told(connection)
        session = connection.create_session()
        consumer = session.create_consumer(QUEUE)
        object.__setattr__(consumer.spec, "selector", "refused = 1")
        network.cut()
        told.restored()
        told.wait(lambda told: Code.OBJECT_NOT_RESTORED in [error.code for error in told.errors])
        with pytest.raises(IllegalStateException):
            consumer.receive(1)
        session.create_producer(QUEUE).send(TextMessage("still works"))


def test_rollback_command_is_sent_only_for_a_transaction_that_has_begun(network: Network) -> None:
    with network.connect() as connection:
        session = connection.create_session(True)
        session.rollback()
        assert not network.of(Rollback, Recover)
        session.create_producer(QUEUE).send(TextMessage("a"))
        session.rollback()
        assert len(network.of(Rollback)) == 1
    assert rest(network) == []
