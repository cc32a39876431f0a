"""ACK-DUPS: lazy acknowledgement. Any number of repeats, all flagged; never a loss, and never an exception."""

from __future__ import annotations

import pytest

from fixtures.client_process import Step
from fixtures.scene import Scene
from reference_broker.jms import AcknowledgeMode

DUPS_OK = AcknowledgeMode.DUPS_OK


@pytest.mark.requirement("ACK-DUPS-01", faults=("kill-live",), profiles=("RC",))
def test_failover_is_silent_for_the_session(scene: Scene) -> None:
    """Neither receive nor acknowledge nor recover raises, failover after failover; only the connection reports."""
    queue = scene.queue()
    client = scene.connect(listening=True)
    session = client.create_session(acknowledge_mode=DUPS_OK)
    consumer = session.create_consumer(queue)
    for failover in range(1, 4):
        scene.send(queue, 6)
        for message in scene.take(consumer, 3):
            message.acknowledge()
        scene.cluster.ensure_ready()
        scene.fail_over(client)
        scene.take(consumer, 1)[0].acknowledge()
        session.recover()
        assert len(client.notifications) == failover, "each loss is told to the connection's listener, once"


@pytest.mark.requirement("ACK-DUPS-02", faults=("kill-live",), profiles=("RC", "NF"))
@pytest.mark.needs("persistent-redelivered-flag")
def test_repeats_are_flagged_and_nothing_is_missing(scene: Scene) -> None:
    """What was consumed before the failure may come again, flagged; all that was sent comes at least once."""
    queue = scene.queue()
    client = scene.connect(dups_ok_batch=50)
    sent = scene.send(queue, 30)
    consumer = client.create_session(acknowledge_mode=DUPS_OK).create_consumer(queue)
    before = [scene.uid(message) for message in scene.take(consumer, 15)]

    scene.fail_over(client)

    later = scene.drain_after_closing(queue, client)
    repeats = [message for message in later if scene.uid(message) in before]
    assert all(message.redelivered for message in repeats), "a repeat must be flagged, in this mode too (JM 6.2.10)"
    missing = set(sent) - set(before) - {scene.uid(message) for message in later}
    seen_by_the_client = set(scene.journal.copies(queue.name))
    assert not missing - seen_by_the_client, f"never delivered: {sorted(missing)}"


@pytest.mark.requirement("ACK-DUPS-03", faults=("client-kill",), profiles=("RC", "NF"))
def test_lazy_batches_cover_only_what_was_handed_out(scene: Scene) -> None:
    """Prefetch 100, consume 10, kill the client: what it never handed to the application is all there."""
    queue = scene.queue()
    sent = scene.send(queue, 100)
    client = scene.client_process(DUPS_OK, Step("receive", queue.name, 10), prefetch=100, dups_ok_batch=5)

    scene.kill_client(client)

    left = {scene.uid(message) for message in scene.drain(queue)}
    missing = [uid for uid in sent[10:] if uid not in left]
    assert not missing, f"acknowledged although the application never had them: {missing}"


@pytest.mark.requirement("ACK-DUPS-04", faults=("none",), profiles=("RC", "NF"))
def test_orderly_close_flushes(scene: Scene) -> None:
    """Consume, close, connect again: the queue is empty."""
    queue = scene.queue()
    client = scene.connect()
    scene.send(queue, 5)
    session = client.create_session(acknowledge_mode=DUPS_OK)
    scene.take(session.create_consumer(queue), 5)
    session.close()

    again = [scene.uid(message) for message in scene.drain(queue)]
    assert not again, f"an undisturbed run shows repeats: {again}"
