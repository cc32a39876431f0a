"""SND: producing outside of transactions, across a failure.

A send that a failure interrupts can end in three ways only: it succeeded, it raised saying that nobody knows, or it was
repeated under the protection of a duplicate check and succeeded later. Which of them is right depends on whether
the request or only its reply was lost, and on whether the client may repeat (D-05).
"""

from __future__ import annotations

import pytest

from fixtures.scene import Scene
from reference_broker.jms import Code, JMSException


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
