"""SND: producing outside of transactions, across a failure.

A send that a failure interrupts can end in three ways only: it succeeded, it raised saying that nobody knows, or it was
repeated under the protection of a duplicate check and succeeded later. Which of them is right depends on whether
the request or only its reply was lost, and on whether the client may repeat (D-05).
"""

from __future__ import annotations

import pytest

from fixtures.scene import Scene
from fixtures.waiting import await_quiet
from reference_broker.jms import Code, DeliveryMode, JMSException


@pytest.mark.requirement("SND-01", faults=("drop-reply", "drop-req"), profiles=("RC", "NF"))
def test_interrupted_send_ends_in_one_of_three_ways(scene: Scene) -> None:
    """Success with one copy, or an error that says the outcome is unknown; within the limits either way."""
    queue = scene.queue()
    producer = scene.connect().create_session().create_producer(queue)
    message = scene.message()

    call = scene.interrupt(lambda: producer.send(message), "the send", effect=scene.arrived(queue))

    outcome = call.outcome()
    copies = scene.copies(queue, message)
    if isinstance(outcome, JMSException):
        assert outcome.outcome_unknown, f"the send raised {outcome!r}, which claims to know that nothing was stored"
        assert copies <= 1
    else:
        assert outcome is None, f"the send raised {outcome!r}, which is no JMSException"
        assert copies == 1, f"the send returned normally and {copies} copies are stored"


@pytest.mark.requirement("SND-02", faults=("drop-reply",), profiles=("RC", "NF"))
def test_unprotected_send_is_not_repeated(scene: Scene) -> None:
    """Without duplicate detection the caller is released with an unknown outcome, and one copy is stored."""
    queue = scene.queue()
    producer = scene.connect(producer_sequences=False).create_session().create_producer(queue)
    message = scene.message()

    call = scene.interrupt(lambda: producer.send(message), "the send", effect=scene.arrived(queue))

    error = call.error(JMSException)
    assert error.code == Code.CALL_UNBLOCKED, f"the send raised code {error.code}, not CALL_UNBLOCKED"
    assert scene.copies(queue, message) == 1


@pytest.mark.requirement("SND-03", "VLV-10", faults=("drop-reply", "drop-req"), profiles=("RC",))
@pytest.mark.needs("producer-sequence")
@pytest.mark.log_options({"duplicate-detection": "on"})
def test_protected_send_is_repeated_and_stored_once(scene: Scene) -> None:
    """With a duplicate check the client repeats by itself: the call returns normally and one copy is stored."""
    queue = scene.queue()
    producer = scene.connect(producer_sequences=True).create_session().create_producer(queue)
    message = scene.message()

    call = scene.interrupt(lambda: producer.send(message), "the send", effect=scene.arrived(queue))

    call.result()
    copies = scene.copies(queue, message)
    assert copies == 1, f"the send was protected and returned normally, and {copies} copies are stored (D-05)"


@pytest.mark.requirement("SND-04", faults=("kill-live",), profiles=("RC", "NF"))
def test_burst_of_blocking_sends_is_there_after_the_kill(scene: Scene) -> None:
    """Each persistent send that waited for the broker is stored, although the broker dies straight after the last."""
    queue = scene.queue()
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    sent = [scene.message() for _ in range(20)]
    for message in sent:
        producer.send(message, delivery_mode=DeliveryMode.PERSISTENT)

    scene.fail_over(client)

    arrived = {scene.uid(message) for message in scene.drain(queue)}
    missing = [scene.uid(message) for message in sent if scene.uid(message) not in arrived]
    assert not missing, f"sends that had returned normally are gone after the broker died: {missing}"


@pytest.mark.requirement("SND-05", "VLV-02", faults=("kill-live",), profiles=("RC",))
def test_send_during_the_outage_waits_and_arrives_once(scene: Scene) -> None:
    """A send that is called while nobody serves is held back, and goes to the broker that serves next."""
    queue = scene.queue()
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    message = scene.message()

    with scene.outage(client):
        call = scene.call(lambda: producer.send(message), "the send")
        await_quiet(lambda: not call.pending, "the send ends while nobody serves", scene.patience.quiet)

    call.result()
    assert scene.copies(queue, message) == 1, "a send that waited out the outage must be stored exactly once"


@pytest.mark.requirement("SND-05", faults=("kill-live",), profiles=("NF",))
def test_send_on_a_lost_connection_raises_and_stores_nothing(scene: Scene) -> None:
    """Without failover there is nothing to wait for; the same message over a new connection arrives once."""
    queue = scene.queue()
    client = scene.connect()
    producer = client.create_session().create_producer(queue)
    message = scene.message()
    scene.fail_over(client)

    scene.call(lambda: producer.send(message), "the send on the lost connection").error(JMSException)
    scene.fresh().create_session().create_producer(queue).send(message)

    assert scene.copies(queue, message) == 1
