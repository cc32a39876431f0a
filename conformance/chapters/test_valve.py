"""VLV: while a connection fails over, its calls wait.

From the loss to the restore nothing of the application reaches any transport. Calls that come are held, calls that
were interrupted are held with them if they may be repeated, and all go on when everything is made again, or are
released with an error when there is nothing more to be tried. What needs no broker does not wait, and closing ends
the wait. All of it is about clients that fail over, profile RC. How long the valve takes to close (VLV-04) and what it
costs undisturbed (VLV-19) cannot be seen from outside: unit tests and the benchmark show them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from fixtures.calls import Call
from fixtures.crowd import let_go
from fixtures.dead_end import DeadEnd
from fixtures.recording import RecordedConnection, RecordedSession
from fixtures.scene import Scene
from fixtures.waiting import await_condition, await_quiet
from reference_broker.jms import AcknowledgeMode, ExceptionListener, JMSException, Message

FEW_ATTEMPTS: dict[str, Any] = {"reconnect_attempts": 3, "retry_interval": 0.2, "max_retry_interval": 0.2}
"""A failover that is given up soon."""
EAGER: dict[str, Any] = {"retry_interval": 0.05, "max_retry_interval": 0.05}
"""Endless attempts in quick succession: that they have ended is soon to be seen."""
CLOSE_WITHIN = 2.0
"""Seconds, as VLV-08 says; scaled."""
LOCAL_WITHIN = 1.0
"""Seconds that something may take that needs no network; scaled."""
MARGIN = 1.0
"""Seconds that a loaded machine may add to a bound; scaled."""
SLOW_REPLY = 0.15
"""Seconds by which each reply is late while sessions are restored; scaled."""


def stay_waiting(scene: Scene, *calls: Call[Any]) -> None:
    """None of these ends for as long as quiet is waited for."""

    def ended() -> list[str] | None:
        return [call.what for call in calls if not call.pending] or None

    await_quiet(ended, "calls end while nobody serves", scene.patience.quiet)


@pytest.mark.requirement("VLV-01", faults=("cut",), profiles=("RC",))
def test_nothing_of_the_application_reaches_a_half_made_transport(scene: Scene) -> None:
    """The next address accepts and says nothing: it hears attempts to connect, and none of the calls that wait."""
    queue = scene.queue()
    with DeadEnd() as tap:
        scene.lay_link_to("tap", tap.endpoint)
        client = scene.connect(**EAGER)
        session = client.create_session()
        producer = session.create_producer(queue)

        with scene.outage(client):
            await_condition(lambda: any(tap.heard), "an attempt to connect reaches the tap", scene.patience.failover)
            greeting = next(data for data in tap.heard if data)
            calls: tuple[Call[Any], ...] = (
                scene.call(lambda: producer.send(scene.message("let through")), "a send"),
                scene.call(client.create_session, "create_session()"),
                scene.call(lambda: session.create_consumer(queue), "create_consumer()"),
            )
            stay_waiting(scene, *calls)
            more = [data for data in tap.heard if not greeting.startswith(data)]

        for call in calls:
            call.result()
    assert not more, f"before the restore the wire carried more than attempts to connect, beginning with {more[0]!r}"


@pytest.mark.requirement("VLV-02", faults=("kill-live",), profiles=("RC",))
def test_calls_of_every_kind_wait_and_go_on(scene: Scene) -> None:
    """Creating, sending, receiving and committing during the outage: all wait, and all end normally after it."""
    queue, full = scene.queue(), scene.queue("full")
    sent = scene.send(full)
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    session, transacted = client.create_session(), client.create_session(transacted=True)
    into_transaction = transacted.create_producer(queue)
    first, second = scene.message(), scene.message()

    def transact() -> None:
        into_transaction.send(second)
        transacted.commit()

    with scene.outage(client):
        creating = scene.call(lambda: client.create_session().create_consumer(full), "creating session and consumer")
        consuming = scene.call(lambda: session.create_consumer(scene.queue("idle")), "create_consumer()")
        sending = scene.call(lambda: producer.send(first), "the send")
        committing = scene.call(transact, "send and commit")
        stay_waiting(scene, creating, consuming, sending, committing)

    for call in (consuming, sending, committing):
        call.result()
    received = scene.take(creating.result())
    assert [scene.uid(message) for message in received] == sent
    arrived = {scene.uid(message) for message in scene.drain(queue)}
    assert arrived == {scene.uid(first), scene.uid(second)}, f"held back were two messages, arrived are {arrived}"


@pytest.mark.requirement("VLV-02", faults=("kill-live",), profiles=("RC",))
def test_receive_waits_through_the_outage(scene: Scene) -> None:
    """receive() during the outage returns the message that the next broker has."""
    queue = scene.queue()
    client = scene.connect()
    consumer = client.create_session().create_consumer(queue)

    with scene.outage(client):
        receiving = scene.call(lambda: consumer.receive(round(scene.patience.failover * 1000)), "receive()")
        sending = scene.call(lambda: scene.send(queue), "the witness sends to the next broker, as soon as there is one")
        stay_waiting(scene, receiving)

    sent = sending.result()
    message = receiving.result()
    assert message is not None, "receive() returned nothing although the broker that serves now has a message"
    assert scene.uid(message) == sent[0]


@pytest.mark.requirement("VLV-03", faults=("cut",), profiles=("RC",))
def test_interrupted_calls_end_like_undisturbed_ones(scene: Scene) -> None:
    """Calls whose requests were lost with the transport return working objects, as if nothing had been."""
    queue = scene.queue()
    client = scene.connect()
    session, transacted = client.create_session(), client.create_session(transacted=True)
    for link in scene.links:
        link.hold_requests()
    creating = scene.call(lambda: client.create_session().create_consumer(queue), "creating session and consumer")
    consuming = scene.call(lambda: session.create_consumer(scene.queue("other")), "create_consumer()")
    rolling_back = scene.call(transacted.rollback, "rollback()")
    stay_waiting(scene, creating, consuming)

    scene.strike()
    let_go(scene)

    consumer, other = creating.result(), consuming.result()
    rolling_back.result()
    scene.await_restored(client)
    for made, target in ((consumer, queue), (other, scene.queue("other"))):
        sent = scene.send(target, 3)
        came = [scene.uid(message) for message in scene.take(made, 3)]
        assert came == sent, f"a consumer whose creation was interrupted was sent {sent} and got {came}"


@pytest.mark.requirement("VLV-05", faults=("blackhole",), profiles=("RC",))
def test_waiting_call_does_not_keep_the_valve_from_closing(scene: Scene) -> None:
    """On a silent link a call waits for its reply: failover begins within the bound of detection none the less."""
    period, ttl = 0.3 * scene.scale, 1.2 * scene.scale
    client = scene.connect(heartbeat=period, heartbeat_ttl=ttl)
    session = client.create_session()

    scene.strike()
    begun = time.monotonic()
    call = scene.call(lambda: session.create_consumer(scene.queue()), "create_consumer()")

    noticed = client.wait_until(lambda c: c.failures > 0, scene.patience.detection)
    assert noticed, f"failover had not begun within {scene.patience.detection:g} s: the valve waits for the call inside"
    took, bound = time.monotonic() - begun, ttl + period + MARGIN * scene.scale
    assert took <= bound, f"with a call inside failover began after {took:.2f} s where {bound:.2f} s are allowed"
    scene.heal()
    consumer = call.result()
    scene.send(scene.queue())
    scene.take(consumer)


@pytest.mark.requirement("VLV-06", faults=("kill-live",), profiles=("RC",))
def test_no_call_meets_a_half_restored_object(scene: Scene) -> None:
    """Restoring takes long, since every reply is late: calls on all sessions wait for its end and meet no error."""
    queue = scene.queue()
    client = scene.connect()
    sessions = [client.create_session() for _ in range(3)]
    consumers = [session.create_consumer(scene.queue(f"own{n}")) for n, session in enumerate(sessions)]
    producers = [session.create_producer(queue) for session in sessions]

    with scene.outage(client):
        for link in scene.links:
            link.latency(round(SLOW_REPLY * scene.scale * 1000))
        calls = [scene.call(lambda p=producer: p.send(scene.message()), "a send") for producer in producers]  # type: ignore[misc]

    for call in calls:
        call.result()
    restored = [at / 1e9 for what, at in client.timeline if what == "FAILOVER_COMPLETED"]
    early = [call for call in calls if restored and (call.ended_at or 0.0) < restored[0]]
    assert not early, f"{len(early)} of {len(calls)} calls ended before the sessions were restored"
    for number, consumer in enumerate(consumers):
        scene.send(scene.queue(f"own{number}"))
        scene.take(consumer)


@pytest.mark.requirement("VLV-07", faults=("kill-both",), profiles=("RC",))
def test_failover_in_vain_releases_everybody(scene: Scene) -> None:
    """When nothing more is tried each waiting call raises; no thread is left."""
    queue = scene.queue()
    client = scene.connect(**FEW_ATTEMPTS)
    session = client.create_session()
    producers = [client.create_session().create_producer(queue) for _ in range(3)]
    consumer = client.create_session().create_consumer(queue)

    scene.strike()
    scene.await_loss(client)
    calls: list[Call[Any]] = [
        *(scene.call(lambda p=producer: p.send(scene.message()), "a send") for producer in producers),  # type: ignore[misc]
        scene.call(lambda: session.create_consumer(queue), "create_consumer()"),
        scene.call(client.create_session, "create_session()"),
        scene.call(lambda: consumer.receive(None), "receive()"),
    ]

    errors = [call.error(JMSException, scene.patience.failover) for call in calls]
    unsure = [error for error in errors if error.outcome_unknown]
    assert not unsure, f"calls that waited and were never sent claim an unknown outcome: {unsure}"


@pytest.mark.requirement("VLV-08", faults=("kill-both",), profiles=("RC",))
def test_close_ends_the_failover(scene: Scene) -> None:
    """close() during endless attempts returns, releases the calls that wait, and no further attempt is made."""
    queue = scene.queue()
    with DeadEnd(hangs_up=True) as tap:
        scene.lay_link_to("tap", tap.endpoint)
        client = scene.connect(**EAGER)
        producer = client.create_session().create_producer(queue)
        consumer = client.create_session().create_consumer(queue)

        scene.strike()
        scene.await_loss(client)
        sending = scene.call(lambda: producer.send(scene.message()), "the send")
        receiving = scene.call(lambda: consumer.receive(None), "receive()")
        await_condition(lambda: tap.visits > 1, "attempts go round the addresses", scene.patience.failover)
        closing = scene.call(client.close, "close()")

        limit = CLOSE_WITHIN * scene.scale
        closing.result(limit)
        sending.error(JMSException, limit)
        receiving.ended(limit)
        visits = tap.visits
        await_quiet(lambda: tap.visits > visits, "attempts go on after close()", scene.patience.quiet)


def interrupted_create(scene: Scene, client: RecordedConnection, session: RecordedSession) -> Callable[[], Any]:
    """Creating a consumer on a session that exists."""
    return lambda: session.create_consumer(scene.queue("made"))


def interrupted_creates(scene: Scene, client: RecordedConnection, session: RecordedSession) -> Callable[[], Any]:
    """Creating a session and a consumer on it."""
    return lambda: client.create_session().create_consumer(scene.queue("made"))


@pytest.mark.requirement("VLV-12", "VLV-10", faults=("drop-reply",), profiles=("RC",))
@pytest.mark.parametrize("make", [interrupted_create, interrupted_creates], ids=["consumer", "session-and-consumer"])
def test_repeated_creation_makes_one_object(
    scene: Scene, make: Callable[[Scene, RecordedConnection, RecordedSession], Callable[[], Any]]
) -> None:
    """The reply to a creation is lost and it is repeated: one consumer gets everything, no twin holds a part."""
    client = scene.connect()
    create = make(scene, client, client.create_session())

    call = scene.interrupt_before_fence(create, "the creation", client)

    consumer = call.result()
    scene.await_restored(client)
    sent = scene.send(scene.queue("made"), 10)
    came = [scene.uid(message) for message in scene.take(consumer, 10)]
    assert came == sent, f"of {sent} the consumer got {came}: the rest is with a twin of it"


@pytest.mark.requirement("VLV-10", faults=("drop-reply",), profiles=("RC",))
@pytest.mark.needs("transactions")
def test_rollback_is_safe_to_repeat(scene: Scene) -> None:
    """The reply to rollback() is lost: it returns normally, its send never appears, its receipt comes again once."""
    source, target = scene.queue("source"), scene.queue("target")
    sent = scene.send(source)
    client = scene.connect()
    session = client.create_session(transacted=True)
    consumer = session.create_consumer(source)
    scene.take(consumer)
    message = scene.message()
    session.create_producer(target).send(message)

    call = scene.interrupt_before_fence(session.rollback, "rollback()", client)

    call.result()
    scene.await_restored(client)
    again = [scene.uid(m) for m in scene.take(consumer)]
    session.commit()
    assert again == sent, f"what was rolled back comes again as {again}"
    assert scene.copies(target, message) == 0, "a send that was rolled back is stored"
    assert not scene.drain_after_closing(source, client), "what was rolled back came again more than once"


@pytest.mark.requirement("VLV-10", faults=("drop-reply",), profiles=("RC",))
def test_recover_is_safe_to_repeat(scene: Scene) -> None:
    """The reply to recover() is lost: it returns normally, and what was unacknowledged comes again once, in order."""
    queue = scene.queue()
    sent = scene.send(queue, 3)
    client = scene.connect()
    session = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    scene.take(consumer, 2)

    call = scene.interrupt_before_fence(session.recover, "recover()", client)

    call.result()
    scene.await_restored(client)
    messages = scene.take(consumer, 3)
    again = [scene.uid(message) for message in messages]
    assert again == sent, f"after recover() the session starts over with {again}, not {sent} (D-17)"
    messages[-1].acknowledge()
    assert not scene.drain_after_closing(queue, client), "what was recovered and acknowledged came again"


@pytest.mark.requirement("VLV-14", faults=("kill-live",), profiles=("RC",))
def test_timed_receive_ends_in_time_during_the_outage(scene: Scene) -> None:
    """receive(500 ms) while nobody serves returns nothing after about 500 ms."""
    client = scene.connect()
    consumer = client.create_session().create_consumer(scene.queue())
    wait = 0.5 * scene.scale

    with scene.outage(client):
        receiving = scene.call(lambda: consumer.receive(round(wait * 1000)), "receive(timeout)")
        message = receiving.result(wait + MARGIN * scene.scale + scene.patience.quiet)

    assert message is None, f"nothing could have come during the outage, and {message!r} was returned"
    late = receiving.seconds - wait
    assert -0.05 <= late <= MARGIN * scene.scale, f"receive({wait:g} s) returned after {receiving.seconds:.2f} s"


@pytest.mark.requirement("VLV-15", faults=("kill-both",), profiles=("RC",))
def test_what_needs_no_network_does_not_wait(scene: Scene) -> None:
    """Making messages, reading attributes and setting listeners during the outage."""
    queue = scene.queue()
    client = scene.connect()
    session = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer, producer = session.create_consumer(queue), session.create_producer(queue)

    def listener(_error: JMSException) -> None:
        pass

    def local() -> list[object]:
        client.exception_listener = listener
        consumer.message_listener = lambda _message: None
        producer.time_to_live = 0
        message = session.create_text_message("made while nobody serves")
        message.set_property("made", True)
        set_listener: ExceptionListener | None = client.exception_listener
        return [set_listener, client.client_id, session.acknowledge_mode, consumer.message_selector, message.text]

    with scene.outage(client):
        values = scene.call(local, "what needs no network").result(LOCAL_WITHIN * scene.scale)

    assert values == [listener, client.client_id, AcknowledgeMode.CLIENT, None, "made while nobody serves"]


@pytest.mark.requirement("VLV-16", faults=("kill-live",), profiles=("RC",))
@pytest.mark.needs("transactions")
def test_no_listener_starts_during_the_outage(scene: Scene) -> None:
    """One that runs may finish; its commit waits without blocking the failover, and the next one starts after it."""
    queue = scene.queue()
    sent = scene.send(queue, 3)
    client = scene.connect()
    session = client.create_session(transacted=True)
    started: list[str] = []
    ended: list[JMSException | None] = []
    go_on = threading.Event()

    def on_message(message: Message) -> None:
        started.append(scene.uid(message))
        go_on.wait(scene.patience.failover)
        error = None
        try:
            session.commit()
        except JMSException as raised:
            error = raised
        ended.append(error)

    session.create_consumer(queue).message_listener = on_message
    await_condition(lambda: bool(started), "the listener gets its first message", scene.patience.delivery)
    try:
        with scene.outage(client):
            go_on.set()
            await_quiet(
                lambda: ended or len(started) > 1,
                "a commit ends, or another listener starts, while nobody serves",
                scene.patience.quiet,
            )
    finally:
        go_on.set()

    await_condition(
        lambda: sum(error is None for error in list(ended)) == len(sent),
        "all messages are committed by the listener after the failover",
        scene.patience.failover,
        lambda: f"started {started}, ended {ended}",
    )
    assert ended[0] is not None, "the commit of work that the failover has undone returned normally (TX-03)"
    assert not scene.drain_after_closing(queue, client), "committed messages are still there"


@pytest.mark.requirement("VLV-16", faults=("kill-live",), profiles=("RC",))
def test_no_completion_is_called_during_the_outage(scene: Scene) -> None:
    """An asynchronous send whose request is held back by the outage completes after it, once."""
    queue = scene.queue()
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    message = scene.message()
    completed: list[JMSException | None] = []

    with scene.outage(client):
        producer.send_async(message, lambda _message, error: completed.append(error))
        await_quiet(lambda: bool(completed), "a completion is called while nobody serves", scene.patience.quiet)

    await_condition(lambda: bool(completed), "the completion is called", scene.patience.failover)
    assert completed == [None], f"the send that waited out the outage completed with {completed}"
    assert scene.copies(queue, message) == 1
