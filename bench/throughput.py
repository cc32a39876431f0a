"""STOMP messages a second through a queue: the reference beside ActiveMQ Classic and RabbitMQ, in turn on one machine.

The load is that of `stomp_load`, bodies have 256 bytes. Brokers run as their definitions say, which is how they are
certified: nobody tuned them for this, and the first node of a pair does all the work. Non-persistent is what a SEND
without a `persistent` header gets. A persistent message is confirmed by its receipt, 100 of them outstanding.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from bench.brokers import running
from bench.comparison import BenchmarkError, Case, Result, interleaved
from bench.stomp_load import Load, Login, Mode
from fixtures.cluster import Cluster

BROKERS = ("reference", "activemq-classic", "rabbitmq")
"""The first that is there, but for the reference, is the peer."""
MODES = (
    Mode("non-persistent, auto", persistent=False, individual=False),
    Mode("non-persistent, client-individual", persistent=False, individual=True),
    Mode("persistent, auto", persistent=True, individual=False),
    Mode("persistent, client-individual", persistent=True, individual=True),
)
VOLATILE, PERSISTENT = 20_000, 3_000
"""Messages of a run."""
ROUNDS = 5
SIZE = 256


def measure(scale: float) -> Result:
    """All modes on all brokers that this machine has, in turn."""
    rounds = max(2, round(ROUNDS * min(1.0, scale)))
    with running(BROKERS) as (clusters, remarks):
        contenders: dict[str, Callable[[], dict[str, float]]] = {
            _name(cluster): partial(_turn, cluster, scale) for cluster in clusters.values()
        }
        found = interleaved(contenders, rounds)
    peer = list(contenders)[min(1, len(contenders) - 1)]
    cases = [Case(case, "messages/s", peer, series) for case, series in found.items()]
    return Result(f"throughput: STOMP, {SIZE}-byte bodies", cases, remarks)


def _name(cluster: Cluster) -> str:
    title, version = cluster.definition.broker.title, cluster.version()
    return title if version == "unknown" else f"{title} {version}"


def _turn(cluster: Cluster, scale: float) -> dict[str, float]:
    return {mode.name: _rate(cluster, mode, scale) for mode in MODES}


def _rate(cluster: Cluster, mode: Mode, scale: float) -> float:
    messages = max(20, round((PERSISTENT if mode.persistent else VOLATILE) * scale))
    credentials = cluster.definition.credentials
    user, password = (credentials.user, credentials.password) if credentials else ("", "")
    try:
        with closing(Load(Login(cluster.live.endpoint("stomp"), user, password), mode, messages, SIZE)) as load:
            return messages / load.seconds()
    except (OSError, BenchmarkError) as error:
        raise BenchmarkError(f"{cluster.definition.broker.title}, {mode.name}: {error}") from error
