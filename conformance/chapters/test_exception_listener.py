"""LSN: what the application is told when its connection is lost.

The ExceptionListener hears of the connection and of nothing else: once for each loss, in order, one at a time, and
with a code that says whether anything can still be hoped for. What a call raises is that call's own. Where the
provider tells failover events, they come in a fixed order and fit the notifications.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from fixtures.crowd import let_go, sends_held_back
from fixtures.recording import RecordedConnection
from fixtures.scene import Scene
from fixtures.waiting import await_condition, await_quiet
from reference_broker.jms import (
    AcknowledgeMode,
    Code,
    ConnectionLostException,
    IllegalStateException,
    JMSException,
    Message,
    TransactionRolledBackException,
)

SESSIONS = 20
CLOSE_WITHIN = 2.0
"""Seconds, as LSN-08 says; scaled."""
FEW_ATTEMPTS: dict[str, Any] = {"reconnect_attempts": 3, "retry_interval": 0.2, "max_retry_interval": 0.2}
"""A failover that is given up soon."""


def told(scene: Scene, client: RecordedConnection, count: int) -> list[JMSException]:
    """What the listener heard, when it has been called so often; an assertion if it was not in time."""
    came = client.wait_until(lambda c: len(c.notifications) >= count, scene.patience.detection)
    assert came, (
        f"after {scene.fault.code} the ExceptionListener was called {len(client.notifications)} times "
        f"({client.notifications}) within {scene.patience.detection:g} s, and {count} were due (D-01)"
    )
    return list(client.notifications)


def given_up(scene: Scene, client: RecordedConnection) -> JMSException:
    """The final notification of a failover that is in vain."""

    def final() -> list[JMSException]:
        return [error for error in list(client.notifications) if error.code == Code.FAILOVER_EXHAUSTED]

    came = client.wait_until(lambda _c: bool(final()), scene.patience.failover)
    assert came, f"all attempts are spent and the listener heard only {client.notifications} (D-02)"
    return final()[0]


def lose(scene: Scene, client: RecordedConnection) -> None:
    """The whole episode, with the requests that were held going nowhere."""
    scene.strike()
    let_go(scene)
    told(scene, client, 1)
    scene.heal()
    if scene.recreates:
        scene.await_restored(client)


@pytest.mark.requirement("LSN-01", faults=("kill-live", "cut"), profiles=("RC", "NF"))
@pytest.mark.requirement("LSN-06", faults=("cut",), profiles=("RC", "NF"))
def test_each_loss_is_told_once(scene: Scene) -> None:
    """Twenty sessions at work when the transport is lost: the listener is called once."""
    client = scene.connect(listening=True, producer_sequences=False)
    calls = sends_held_back(scene, client, scene.queue(), SESSIONS)

    lose(scene, client)

    for call in calls:
        call.ended()
    heard = told(scene, client, 1)
    await_quiet(lambda: len(client.notifications) > 1, "one loss is told twice", scene.patience.quiet)
    assert isinstance(heard[0], ConnectionLostException), f"the loss was told as {heard[0]!r}"


@pytest.mark.requirement("LSN-01", faults=("kill-live", "cut"), profiles=("RC",))
def test_a_second_loss_is_told_anew(scene: Scene) -> None:
    """Each loss has its own notification: two losses, two calls of the listener."""
    client = scene.connect(listening=True)
    client.create_session().create_consumer(scene.queue())

    for losses in (1, 2):
        scene.fail_over(client)
        told(scene, client, losses)
        scene.cluster.ensure_ready()

    await_quiet(lambda: len(client.notifications) > 2, "two losses are told three times", scene.patience.quiet)


@pytest.mark.requirement("LSN-02", faults=("kill-live",), profiles=("RC", "NF"))
def test_the_code_says_whether_failover_follows(scene: Scene) -> None:
    """CONNECTION_LOST while failover is under way, NO_FAILOVER where none follows."""
    client = scene.connect(listening=True)

    scene.fail_over(client)

    error = told(scene, client, 1)[0]
    due = Code.CONNECTION_LOST if scene.recreates else Code.NO_FAILOVER
    assert error.code == due, f"in profile {scene.failover} the loss was told with {error.code}, not {due} (D-02)"


@pytest.mark.requirement("LSN-03", faults=("kill-both",), profiles=("RC",))
@pytest.mark.parametrize("listening", [True, False], ids=["listening", "no-listener"])
def test_failover_in_vain_is_told_and_raised(scene: Scene, listening: bool) -> None:
    """All attempts spent: one final notification, and errors for the calls that wait and those that come later."""
    queue = scene.queue()
    client = scene.connect(listening=listening, **FEW_ATTEMPTS)
    session = client.create_session()
    producer, consumer = session.create_producer(queue), client.create_session().create_consumer(queue)
    receiving = scene.call(lambda: consumer.receive(None), "receive()")

    scene.strike()
    scene.await_loss(client)
    sending = scene.call(lambda: producer.send(scene.message()), "the send during the failover")

    receiving.error(JMSException)
    sending.error(JMSException)
    scene.call(client.create_session, "create_session() afterwards").error(JMSException)
    if listening:
        given_up(scene, client)
        final = [e for e in client.notifications if e.code == Code.FAILOVER_EXHAUSTED]
        await_quiet(lambda: len(client.notifications) > 2, "more is told than loss and end", scene.patience.quiet)
        assert len(final) == 1, f"the end of the failover was told {len(final)} times"


@pytest.mark.requirement("LSN-04", faults=("kill-both",), profiles=("RC", "NF"))
def test_what_a_call_raises_is_its_own(scene: Scene) -> None:
    """The errors of calls and of the listener are different objects with different codes."""
    queue = scene.queue()
    client = scene.connect(listening=True, **FEW_ATTEMPTS)
    producers = [client.create_session().create_producer(queue) for _ in range(3)]

    scene.strike()
    scene.await_loss(client)
    calls = [scene.call(lambda p=producer: p.send(scene.message()), "a send") for producer in producers]  # type: ignore[misc]
    raised = [call.error(JMSException) for call in calls]
    if scene.recreates:
        given_up(scene, client)

    heard = told(scene, client, 1)
    everything = [*raised, *heard]
    assert len({id(error) for error in everything}) == len(everything), (
        f"one exception object went to several of calls and listener: {everything} (D-02)"
    )
    shared = {error.code for error in raised} & {error.code for error in heard}
    assert not shared, f"calls and listener were given the same code {shared} (D-02)"


@pytest.mark.requirement("LSN-05", faults=("kill-live",), profiles=("RC",))
def test_without_a_listener_idle_sessions_notice_nothing(scene: Scene) -> None:
    """Sessions that hold nothing go through a failover as if it had not been."""
    queue = scene.queue()
    client = scene.connect(listening=False)
    producer = client.create_session().create_producer(queue)
    consumer = client.create_session().create_consumer(queue)
    transacted = client.create_session(transacted=True)
    receiving = scene.call(lambda: consumer.receive(round(scene.patience.failover * 1000)), "receive()")

    scene.fail_over(client)

    message = scene.message()
    producer.send(message)
    received = receiving.result()
    assert received is not None, "receive() waited through the failover and returned nothing"
    assert scene.uid(received) == scene.uid(message)
    transacted.create_producer(queue).send(scene.message())
    transacted.commit()
    scene.take(consumer)


@pytest.mark.requirement("LSN-06", faults=("cut",), profiles=("RC",))
def test_notifications_do_not_overlap(scene: Scene) -> None:
    """The second loss comes while the listener is still busy with the first: it is told when that has returned."""
    client = scene.connect()
    go_on = threading.Event()
    running, most, calls = [0], [0], [0]

    def listener(_error: JMSException) -> None:
        running[0] += 1
        calls[0] += 1
        most[0] = max(most[0], running[0])
        go_on.wait(scene.patience.failover)
        running[0] -= 1

    client.exception_listener = listener
    try:
        scene.fail_over(client)
        await_condition(lambda: calls[0] == 1, "the listener is called for the first loss", scene.patience.detection)
        scene.fail_over(client)
        await_quiet(lambda: calls[0] > 1, "the listener is called while it runs", scene.patience.quiet)
    finally:
        go_on.set()
    await_condition(lambda: calls[0] == 2, "the second loss is told", scene.patience.detection)
    assert most[0] == 1, f"{most[0]} notifications of one connection ran at once (JM 6.1.7)"


@pytest.mark.requirement("LSN-07", faults=("none",), profiles=("RC",))
@pytest.mark.needs("transactions")
def test_the_error_says_at_which_level_it_failed(scene: Scene) -> None:
    """Connection, session and transaction fail by one loss, and each error tells what it is about."""
    queue, other = scene.queue(), scene.queue("other")
    scene.send(queue)
    client = scene.connect(listening=True)
    transacted = client.create_session(transacted=True)
    transacted.create_producer(other).send(scene.message())
    consumer = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue)
    held = scene.take(consumer)[0]

    with scene.striking("the transport is closed"):
        for link in scene.links:
            link.cut()
    scene.await_restored(client)

    errors = [
        told(scene, client, 1)[0],
        scene.call(held.acknowledge, "acknowledge()").error(IllegalStateException),
        scene.call(transacted.commit, "commit()").error(TransactionRolledBackException),
    ]
    codes = [error.code for error in errors]
    assert codes == [Code.CONNECTION_LOST, Code.SESSION_STALE, Code.TX_ROLLED_BACK], (
        f"failures of connection, session and transaction were told with {codes} (D-02)"
    )


@pytest.mark.requirement("LSN-07", faults=("none",), profiles=("NF",))
def test_a_failed_connection_is_told_apart_from_a_closed_session(scene: Scene) -> None:
    """A call on a closed session and one on a lost connection raise errors that differ in type and code."""
    client = scene.connect(listening=True)
    closed, lost = client.create_session(), client.create_session()
    closed.close()
    producer = lost.create_producer(scene.queue())
    by_session = scene.call(lambda: closed.create_producer(scene.queue()), "a call on it").error(IllegalStateException)

    with scene.striking("the transport is closed"):
        for link in scene.links:
            link.cut()
    scene.await_loss(client)

    by_connection = scene.call(lambda: producer.send(scene.message()), "the send").error(JMSException)
    event = told(scene, client, 1)[0]
    assert len({by_session.code, by_connection.code, event.code}) == 3, (
        f"session, call and connection failed with {by_session.code}, {by_connection.code}, {event.code} (D-02)"
    )
    assert not isinstance(by_connection, IllegalStateException), "a lost connection looks like a mistake of the caller"


@pytest.mark.requirement("LSN-08", faults=("kill-both",), profiles=("RC", "NF"))
def test_the_listener_may_close_the_connection(scene: Scene) -> None:
    """close() inside the listener ends the failover and returns; nobody who waits is left behind."""
    client = scene.connect()
    closing: list[float] = []
    consumer = client.create_session().create_consumer(scene.queue())
    receiving = scene.call(lambda: consumer.receive(None), "receive()")

    def listener(_error: JMSException) -> None:
        begun = time.monotonic()
        client.close()
        closing.append(time.monotonic() - begun)

    client.exception_listener = listener
    scene.strike()

    limit = CLOSE_WITHIN * scene.scale
    await_condition(lambda: bool(closing), "close() inside the listener returns", scene.patience.detection)
    assert closing[0] <= limit, f"close() inside the listener took {closing[0]:.2f} s, {limit:g} s are allowed"
    receiving.ended(limit)
    scene.call(client.create_session, "create_session()").error(JMSException)


@pytest.mark.requirement("LSN-09", faults=("kill-live",), profiles=("RC",))
def test_the_listener_may_send(scene: Scene) -> None:
    """A send by the listener waits for the failover, which finishes none the less, and arrives."""
    queue = scene.queue()
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    message = scene.message()
    sent = threading.Event()

    def listener(_error: JMSException) -> None:
        producer.send(message)
        sent.set()

    client.exception_listener = listener
    with scene.outage(client):
        await_quiet(sent.is_set, "the listener's send ends while nobody serves", scene.patience.quiet)

    await_condition(sent.is_set, "the listener's send ends after the failover", scene.patience.failover)
    assert scene.copies(queue, message) == 1, "the message that the listener sent must be stored once"


@pytest.mark.requirement("LSN-10", faults=("kill-live",), profiles=("RC",))
@pytest.mark.needs("transactions")
def test_the_loss_is_told_before_its_consequences(scene: Scene) -> None:
    """First the loss, then the end of the failover, and only then what commit and acknowledge raise because of it."""
    queue, other = scene.queue(), scene.queue("other")
    scene.send(queue)
    client = scene.connect()
    heard: list[int] = []
    client.exception_listener = lambda _error: heard.append(time.monotonic_ns())
    transacted = client.create_session(transacted=True)
    transacted.create_producer(other).send(scene.message())
    consumer = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue)
    held: Message = scene.take(consumer)[0]

    with scene.outage(client):
        committing = scene.call(transacted.commit, "commit()")
        acknowledging = scene.call(held.acknowledge, "acknowledge()")
    committing.error(JMSException)
    acknowledging.error(JMSException)

    told(scene, client, 1)
    raised = min(call.ended_at or 0.0 for call in (committing, acknowledging)) * 1e9
    assert heard[0] <= raised, f"the loss was told {(heard[0] - raised) / 1e6:.1f} ms after a call had raised"
    completed = [at for what, at in client.timeline if what == "FAILOVER_COMPLETED"]
    assert not completed or heard[0] <= completed[0], "the loss was told after the failover had been completed"


@pytest.mark.requirement("LSN-11", faults=("blackhole",), profiles=("RC", "NF"))
def test_a_consumer_that_makes_no_call_learns_of_the_silence(scene: Scene) -> None:
    """A connection driven by a message listener, links silenced: the ExceptionListener is called by itself."""
    queue = scene.queue()
    client = scene.connect(listening=True)
    came: list[str] = []
    client.create_session().create_consumer(queue).message_listener = lambda m: came.append(scene.uid(m))
    scene.send(queue)
    await_condition(lambda: len(came) == 1, "the message listener gets its first message", scene.patience.delivery)

    scene.strike()

    told(scene, client, 1)
    scene.heal()
    if scene.recreates:
        uids = scene.send(queue)
        await_condition(lambda: uids[0] in came, "a message arrives after the failover", scene.patience.failover)


@pytest.mark.requirement("LSN-13", faults=("kill-live",), profiles=("RC",))
def test_events_of_a_failover_in_their_order(scene: Scene) -> None:
    """Detected, started, completed: in this order and once each."""
    client = scene.connect()

    scene.fail_over(client)

    assert_events(client, "FAILURE_DETECTED", "FAILOVER_STARTED", "FAILOVER_COMPLETED")


@pytest.mark.requirement("LSN-13", faults=("kill-both",), profiles=("RC",))
def test_events_of_a_failover_in_vain(scene: Scene) -> None:
    """Detected, started, failed: in this order and once each."""
    client = scene.connect(listening=True, **FEW_ATTEMPTS)

    scene.strike()

    given_up(scene, client)
    client.wait_until(lambda c: c.given_up, scene.patience.reply)
    assert_events(client, "FAILURE_DETECTED", "FAILOVER_STARTED", "FAILOVER_FAILED")


def assert_events(client: RecordedConnection, *due: str) -> None:
    """The provider's failover events so far are exactly these, and their times do not run backwards."""
    events = [what for what, _at in client.timeline]
    assert events == list(due), f"the provider told {events or 'no events'} where {list(due)} are due"
    times = [at for _what, at in client.timeline]
    assert times == sorted(times), "the events carry times that are not in their order"


@pytest.mark.requirement("LSN-14", faults=("kill-live",), profiles=("NF",))
def test_failover_by_hand(scene: Scene) -> None:
    """On the notification the application closes, connects anew, and finds every confirmed message."""
    queue = scene.queue()
    sent = scene.send(queue, 3)
    client = scene.connect()
    consumer = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue)
    scene.take(consumer)
    fresh: list[RecordedConnection] = []

    def listener(_error: JMSException) -> None:
        client.close()
        fresh.append(scene.fresh())

    client.exception_listener = listener
    scene.strike()
    scene.heal()

    await_condition(lambda: bool(fresh), "the listener has a new connection", scene.patience.failover)
    session = fresh[0].create_session()
    messages = scene.take(session.create_consumer(queue), 3)
    assert sorted(map(scene.uid, messages)) == sorted(sent), "confirmed messages are missing on the new connection"
    first = next(message for message in messages if scene.uid(message) == sent[0])
    assert first.redelivered, "the message that the old connection had taken comes again and is not flagged (D-08)"
