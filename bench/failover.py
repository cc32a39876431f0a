"""From `kill -9` of the live node to the first delivery of the backup that waited already, through the failover client.

A client holds one message, unacknowledged, and waits in `receive` for the next when the node is killed. What comes
next is the same message from the backup. So the time holds everything that an application waits for: the loss is
noticed, the backup takes the store over and loads it, the client reconnects, makes session and consumer again, and is
delivered to. Both brokers are pairs on one shared store, and the backups of both ask for its lock at the intervals of
their definitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

from adapters.registry import make_adapter
from bench.brokers import options_for, running
from bench.comparison import BenchmarkError, Case, Result, interleaved
from fixtures.cluster import Cluster
from fixtures.nodes import Node
from reference_broker.jms import AcknowledgeMode, Connection, Message, MessageConsumer, Queue, TextMessage

ROUNDS = 20
LIMIT_MS = 60_000
"""For one failover; far above what any broker here takes."""
CASE = "kill -9 to first delivery"


def measure(scale: float) -> Result:
    """Failovers of the reference over both of its wires and of ActiveMQ Classic, in turn."""
    rounds = max(1, round(ROUNDS * scale))
    with running(["reference", "activemq-classic"]) as (clusters, remarks):
        contenders: dict[str, Callable[[], dict[str, float]]] = {
            f"{cluster.definition.broker.title}, {adapter}": partial(_turn, cluster, adapter)
            for cluster in clusters.values()
            for adapter in cluster.definition.broker.adapters
        }
        found = interleaved(contenders, rounds)
    peer = list(contenders)[-1]
    title = f"failover: the backup waits already; {rounds} kills each, shorter is better"
    return Result(title, [Case(CASE, "ms", peer, found[CASE])], remarks)


def _turn(cluster: Cluster, adapter: str) -> dict[str, float]:
    live = cluster.ensure_ready()
    settings = cluster.definition.adapter_settings(adapter)
    factory = make_adapter(adapter, settings).connection_factory(options_for(cluster, adapter))
    with closing(factory.create_connection()) as connection:
        return {CASE: _fail_over(connection, live) * 1000}


def _fail_over(connection: Connection, live: Node) -> float:
    """Seconds from the kill to the delivery."""
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = Queue("bench-failover")
    consumer = session.create_consumer(queue)
    connection.start()
    session.create_producer(queue).send(TextMessage("held while the node dies"))
    held = _next(consumer)
    with ThreadPoolExecutor(1) as killer:
        killed = killer.submit(_kill, live)
        again = _next(consumer)
        delivered = time.monotonic()
        if again.message_id != held.message_id or not again.redelivered:
            raise BenchmarkError(f"{again.message_id} was delivered by the backup, not {held.message_id} again")
        session.recover()  # it held a message at the loss: until it starts over, nothing can be acknowledged
        _next(consumer).acknowledge()
        return delivered - killed.result()


def _next(consumer: MessageConsumer) -> Message:
    message = consumer.receive(LIMIT_MS)
    if message is None:
        raise BenchmarkError(f"nothing was delivered within {LIMIT_MS / 1000:g} s")
    return message


def _kill(node: Node) -> float:
    """When the signal was sent, by time.monotonic(); returns once the node is known to have died of it."""
    moment = time.monotonic()
    node.kill()
    return moment
