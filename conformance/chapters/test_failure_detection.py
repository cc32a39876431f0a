"""DET: how a client, and the broker, notice that the other one is gone, and what must not be taken for it.

A closed socket is noticed at once, a silent one when its time to live is over and not before. Slowness within that
time, an answer that refuses, and a link that is merely busy are no failures. Times are short here; each is named where
it is used and grows with the patience of the run.
"""

from __future__ import annotations

import time

import pytest

from fixtures.calls import Call
from fixtures.crowd import let_go, sends_held_back
from fixtures.dead_end import DeadEnd
from fixtures.proxy import Way
from fixtures.recording import RecordedConnection, RecordedConsumer, RecordedSession
from fixtures.scene import Scene
from fixtures.waiting import await_quiet
from reference_broker.jms import AcknowledgeMode, Code, JMSException, Queue

THREADS = 16
AT_ONCE = 0.5
"""Seconds within which a closed transport is declared lost, as DET-03 says; scaled."""
MARGIN = 1.0
"""Seconds that a loaded machine may add to a bound; scaled."""
BODY = "x" * 600
"""Makes a message of which any of the `CUTS` is a part only."""
CUTS = (1, 3, 4, 5, 40, 300)
"""Bytes of a frame that pass before the transport ends: within its length, its header, its body."""


def detected_at(scene: Scene, client: RecordedConnection) -> float:
    """When the client declared its last loss, in seconds of the monotonic clock; an assertion if it did not."""
    before = scene.losses_before(client)
    noticed = client.wait_until(lambda c: c.failures > before, scene.patience.detection)
    assert noticed, f"{scene.fault.code} was not noticed within {scene.patience.detection:g} s"
    known = [at for what, at in client.timeline if what == "FAILURE_DETECTED"]
    return known[-1] / 1e9 if known else time.monotonic()


def assert_undisturbed(client: RecordedConnection) -> None:
    """No loss was declared."""
    assert client.failures == 0, f"{client.failures} losses were declared where there was none: {client.timeline}"


def await_healthy_again(scene: Scene, client: RecordedConnection) -> None:
    """Heal, and with failover wait until the client is restored."""
    scene.heal()
    if scene.recreates:
        scene.await_restored(client)


@pytest.mark.requirement("DET-01", faults=("blackhole",), profiles=("RC", "NF"))
def test_silence_is_declared_in_its_time(scene: Scene) -> None:
    """An idle client: not before the time to live is over, and at most one check period after that."""
    period, ttl = 0.2 * scene.scale, 2.0 * scene.scale
    client = scene.connect(heartbeat=period, heartbeat_ttl=ttl)

    before = time.monotonic()
    scene.strike()
    after = time.monotonic()

    declared = detected_at(scene, client)
    earliest, latest = ttl - 3 * period, ttl + period + MARGIN * scene.scale
    assert declared - before >= earliest, (
        f"with a time to live of {ttl:g} s the silence was declared {declared - before:.2f} s after it began"
    )
    assert declared - after <= latest, (
        f"with a time to live of {ttl:g} s the silence was declared only {declared - after:.2f} s after it began"
    )
    await_healthy_again(scene, client)


@pytest.mark.requirement("DET-02", faults=("latency",), profiles=("RC", "NF"))
def test_messages_are_signs_of_life(scene: Scene) -> None:
    """Pings do not reach the broker for longer than the time to live, but messages keep coming: no failure."""
    queue = scene.queue()
    period, ttl = 2.0 * scene.scale, 2.2 * scene.scale
    client = scene.connect(heartbeat=period, heartbeat_ttl=ttl)
    session = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    scene.send(queue)
    scene.take(consumer)[0].acknowledge()  # the broker has just heard of the client: it must last through the fault
    producer = scene.witness().create_session().create_producer(queue)

    until = time.monotonic() + ttl + 0.6 * scene.scale
    with scene.striking("no ping was answered for longer than the time to live"):
        for link in scene.links:
            link.hold_requests()
        while time.monotonic() < until:
            producer.send(scene.message())
            await_quiet(lambda: client.failures > 0, "a busy connection is declared lost", 0.1)
        let_go(scene)

    scene.take(consumer)[0].acknowledge()
    assert_undisturbed(client)


@pytest.mark.requirement("DET-03", faults=("kill-live",), profiles=("RC", "NF"))
def test_closed_transport_is_declared_at_once(scene: Scene) -> None:
    """With a check period of 30 s, and no call made, the death of the broker is known within 500 ms."""
    client = scene.connect(heartbeat=30.0, heartbeat_ttl=90.0)

    scene.strike()
    dead = time.monotonic()

    late = detected_at(scene, client) - dead
    assert late <= AT_ONCE * scene.scale, f"the transport was closed, and declared lost {late:.2f} s later"
    await_healthy_again(scene, client)


@pytest.mark.requirement("DET-04", faults=("cut",), profiles=("RC", "NF"))
def test_first_call_notices_the_failure(scene: Scene) -> None:
    """Pings 60 s apart, the transport cut, a call: failover begins immediately, or the call raises immediately."""
    queue = scene.queue()
    client = scene.connect(heartbeat=60.0, heartbeat_ttl=180.0)
    session = client.create_session()

    scene.strike()
    begun = time.monotonic()
    call = scene.call(lambda: session.create_consumer(queue), "create_consumer()")

    late = detected_at(scene, client) - begun
    assert late <= AT_ONCE * scene.scale, f"the call met a transport that was cut, and noticed it {late:.2f} s later"
    if scene.recreates:
        consumer = call.result()
        scene.send(queue)
        scene.take(consumer)
    else:
        call.error(JMSException, AT_ONCE * scene.scale + MARGIN * scene.scale)


@pytest.mark.requirement("DET-05", faults=("cut",), profiles=("RC",))
@pytest.mark.needs("producer-sequence")
@pytest.mark.log_options({"duplicate-detection": "on"})
def test_many_failing_calls_make_one_failover(scene: Scene) -> None:
    """Sixteen sending threads fail together: one failover, and every send ends as if nothing had been."""
    client = scene.connect()
    calls = sends_held_back(scene, client, scene.queue(), THREADS)

    scene.strike()
    let_go(scene)

    errors = [error for call in calls if (error := call.outcome()) is not None]
    assert not errors, f"{len(errors)} of {THREADS} protected sends saw the failure: {errors[0]!r}"
    scene.await_restored(client)
    await_quiet(lambda: client.failures > 1, "a second failover begins", scene.patience.quiet)
    started = [what for what, _at in client.timeline].count("FAILOVER_STARTED")
    assert started == 1, f"one loss began {started} failovers"


@pytest.mark.requirement("DET-05", faults=("cut",), profiles=("NF",))
def test_many_failing_calls_are_one_loss(scene: Scene) -> None:
    """Without failover sixteen sending threads learn of one loss, each by an error of its own."""
    client = scene.connect(listening=True)
    calls = sends_held_back(scene, client, scene.queue(), THREADS)

    scene.strike()
    let_go(scene)

    errors = [call.error(JMSException) for call in calls]
    assert len({id(error) for error in errors}) == THREADS, "threads share one exception object (D-02)"
    detected_at(scene, client)
    await_quiet(lambda: client.failures > 1, "a second loss is declared", scene.patience.quiet)
    assert len(client.notifications) == 1, f"one loss was told {len(client.notifications)} times"


@pytest.mark.requirement("DET-08", faults=("cut",), profiles=("RC",))
def test_reports_of_a_replaced_transport_are_ignored(scene: Scene) -> None:
    """Sixteen calls, the reader and the pinger all report the loss, some late: the new transport is not lost by it."""
    client = scene.connect(heartbeat=0.5 * scene.scale)
    sessions = [client.create_session() for _ in range(THREADS)]

    def create_on(session: RecordedSession) -> Call[RecordedConsumer]:
        return scene.call(lambda: session.create_consumer(scene.queue()), "create_consumer()")

    calls = [create_on(session) for session in sessions]
    scene.strike()

    for call in calls:
        call.result()
    scene.await_restored(client)
    await_quiet(lambda: client.failures > 1, "the new transport is declared lost", scene.patience.quiet)


@pytest.mark.requirement("DET-06", faults=("blackhole",), profiles=("RC", "NF"))
def test_waiting_call_is_released_on_a_silent_link(scene: Scene) -> None:
    """The reply never comes and no socket closes: the detector ends the call within the bound of DET-01."""
    period, ttl = 0.3 * scene.scale, 1.2 * scene.scale
    client = scene.connect(heartbeat=period, heartbeat_ttl=ttl, producer_sequences=False)
    producer = client.create_session().create_producer(scene.queue())

    scene.strike()
    call = scene.call(lambda: producer.send(scene.message()), "the send on a silent link")

    error = call.error(JMSException)
    bound = ttl + period + MARGIN * scene.scale
    assert call.seconds <= bound, f"the call was released after {call.seconds:.2f} s where {bound:.2f} s are allowed"
    assert error.outcome_unknown, f"the call was in flight, and raised {error!r}, which claims to know its end"
    await_healthy_again(scene, client)


@pytest.mark.requirement("DET-06", faults=("kill-live",), profiles=("RC", "NF"))
def test_waiting_call_is_released_when_the_broker_dies(scene: Scene) -> None:
    """The call waits, the broker dies: the transport error ends the call at once, long before the next check."""
    client = scene.connect(heartbeat=3.0, heartbeat_ttl=90.0, producer_sequences=False)
    call = sends_held_back(scene, client, scene.queue(), 1)[0]

    scene.strike()
    dead = time.monotonic()
    let_go(scene)

    call.error(JMSException)
    late = (call.ended_at or 0.0) - dead
    bound = (AT_ONCE + MARGIN) * scene.scale
    assert late <= bound, f"the call was released {late:.2f} s after the death of the broker"
    await_healthy_again(scene, client)


@pytest.mark.requirement("DET-07", faults=("none",), profiles=("RC", "NF"))
def test_refused_operations_leave_the_connection_alone(scene: Scene) -> None:
    """A bad selector, a queue without a name, a rollback: errors or not, they are the caller's and no failure."""
    queue = scene.queue()
    client = scene.connect(listening=True)
    session = client.create_session()
    transacted = client.create_session(transacted=True)

    refused = [
        scene.call(lambda: session.create_consumer(queue, "NOT a ( selector"), "a bad selector").outcome(),
        scene.call(lambda: session.create_consumer(Queue("")), "a queue without a name").outcome(),
        scene.call(transacted.rollback, "rollback()").outcome(),
    ]

    raised = [error for error in refused if isinstance(error, BaseException)]
    wrong = [error for error in raised if not isinstance(error, JMSException) or error.outcome_unknown]
    assert not wrong, f"a refusal came to the caller as {wrong}"
    consumer = session.create_consumer(queue)
    scene.send(queue)
    scene.take(consumer)
    assert_undisturbed(client)
    assert not client.notifications, f"a refused operation was told as a failure: {client.notifications}"


@pytest.mark.requirement("DET-09", faults=("blackhole",), profiles=("RC", "NF"))
def test_broker_frees_what_a_silent_client_holds(scene: Scene) -> None:
    """The messages of a client that has fallen silent go to another one: not before its time, and soon after."""
    queue = scene.queue()
    sent = scene.send(queue, 2)
    promised = 1.0 * scene.scale
    client = scene.connect(heartbeat=promised, heartbeat_ttl=60.0)
    holder = client.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    scene.take(holder.create_consumer(queue))
    other = scene.witness().create_session().create_consumer(queue)

    before = time.monotonic()
    scene.strike()
    after = time.monotonic()
    came = {scene.uid(message): message for message in scene.take(other, 2)}

    assert set(came) == set(sent), f"freed were {sorted(came)}, held were {sorted(sent)}"
    took = time.monotonic()
    assert took - before >= promised, (
        f"the client promised a sign of life every {promised:g} s, and was given up after {took - before:.2f} s"
    )
    bound = 4 * promised + MARGIN * scene.scale
    assert took - after <= bound, f"the silent client's messages were free only after {took - after:.2f} s"
    assert came[sent[0]].redelivered, "the message that the silent client had taken comes again unflagged (D-08)"


@pytest.mark.requirement("DET-10", faults=("latency",), profiles=("RC", "NF"))
def test_slow_peer_is_no_failed_peer(scene: Scene) -> None:
    """Both ways so slow that silences reach 0.8 of two periods: no failure on either side, and calls work.

    Twice the promised period is what a broker has to allow; the client allows for one period more, since some brokers
    leave every other sign of life out.
    """
    queue = scene.queue()
    period = 1.5 * scene.scale
    ttl = 3 * period
    client = scene.connect(heartbeat=period, heartbeat_ttl=ttl, listening=True)
    session = client.create_session()
    consumer = session.create_consumer(queue)

    with scene.striking("both ways are slow, within the time to live"):
        for link in scene.links:
            for way in Way:
                link.latency(round(0.6 * period * 1000), way=way)
        await_quiet(lambda: client.notifications or None, "a slow peer is taken for a dead one", 1.2 * ttl)
        sending: Call[None] = scene.call(lambda: session.create_producer(queue).send(scene.message()), "a slow send")
        sending.result()
        let_go(scene)

    scene.take(consumer)
    assert_undisturbed(client)
    assert not client.notifications, f"slowness was told as a failure: {client.notifications}"


@pytest.mark.requirement("DET-12", faults=("mid-frame",), profiles=("RC", "NF"))
@pytest.mark.parametrize("passes", CUTS)
def test_half_a_request_is_none(scene: Scene, passes: int) -> None:
    """The transport ends inside a send: it counts as lost, and the broker stores nothing."""
    queue = scene.queue()
    client = scene.connect(producer_sequences=False)
    producer = client.create_session().create_producer(queue)
    message = scene.message(BODY)

    with scene.striking(f"the transport ends after {passes} bytes of a request"):
        for link in scene.links:
            link.cut_after(passes, Way.REQUESTS)
        call = scene.call(lambda: producer.send(message), "the send")
        detected_at(scene, client)
        let_go(scene)

    error = call.error(JMSException)
    assert error.outcome_unknown, f"the send was cut and raised {error!r}, which claims to know its end"
    await_healthy_again(scene, client)
    copies = scene.copies(queue, message)
    assert copies == 0, f"{passes} bytes of a send reached the broker, and {copies} messages are stored"


@pytest.mark.requirement("DET-12", faults=("mid-frame",), profiles=("RC", "NF"))
@pytest.mark.parametrize("passes", CUTS)
def test_half_a_delivery_is_none(scene: Scene, passes: int) -> None:
    """The transport ends inside a delivery: it counts as lost, and the message comes whole over the next one."""
    queue = scene.queue()
    client = scene.connect()
    consumer = client.create_session().create_consumer(queue)
    message = scene.message(BODY)

    with scene.striking(f"the transport ends after {passes} bytes of a delivery"):
        for link in scene.links:
            link.cut_after(passes, Way.REPLIES)
        scene.witness().create_session().create_producer(queue).send(message)
        detected_at(scene, client)
        if not scene.recreates:
            half = scene.call(consumer.receive_no_wait, "receive_no_wait()").outcome()
            assert not half or isinstance(half, JMSException), f"half a message was delivered: {half!r}"
        let_go(scene)

    if scene.recreates:
        whole = scene.take(consumer)[0]
    else:
        whole = scene.take(scene.fresh().create_session().create_consumer(queue))[0]
    assert scene.uid(whole) == scene.uid(message)


@pytest.mark.requirement("DET-14", faults=("blackhole",), profiles=("RC", "NF"))
def test_handshake_that_never_ends_is_a_failed_attempt(scene: Scene) -> None:
    """First in the list a peer that accepts and says nothing: after the connect time-out the next one is tried."""
    queue = scene.queue()
    limit = 1.0 * scene.scale
    with DeadEnd() as mute:
        with scene.striking("the first address accepts and never answers"):
            first = scene.lay_link_to("mute", mute.endpoint)
            scene.links.sort(key=lambda link: link is not first)

        began = time.monotonic()
        client = scene.connect(connect_timeout=limit)
        took = time.monotonic() - began

        assert mute.visits, "the mute peer, which is the first address, was not tried"
    bound = mute.visits * limit + 2 * MARGIN * scene.scale
    assert took <= bound, f"with a connect time-out of {limit:g} s it took {took:.2f} s to get past a mute peer"
    session = client.create_session()
    session.create_producer(queue).send(scene.message())
    scene.take(session.create_consumer(queue))


@pytest.mark.requirement("DET-14", faults=("blackhole",), profiles=("NF",))
def test_handshakes_that_never_end_exhaust_the_first_connect(scene: Scene) -> None:
    """All addresses accept and say nothing: the connect raises, after the time-out of each and not later."""
    limit = 0.5 * scene.scale
    links = scene.lay_links()
    scene.strike()

    attempt = scene.call(lambda: scene.connect(connect_timeout=limit, initial_connect_attempts=1), "the connect")

    error = attempt.error(JMSException)
    bound = len(links) * limit + MARGIN * scene.scale
    assert attempt.seconds <= bound, f"the connect gave up after {attempt.seconds:.2f} s, {bound:.2f} s are allowed"
    assert error.code == Code.CONNECTION_FAILED, f"the connect raised {error!r}"
