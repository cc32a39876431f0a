"""Brokers for benchmarks: started from their definitions, on the loopback interface, and ended whatever happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from fixtures.cluster import Cluster
from fixtures.definition import load_definition
from fixtures.provision import missing_programs
from reference_broker.client.options import ClientOptions


@contextmanager
def running(names: Iterable[str]) -> Iterator[tuple[dict[str, Cluster], tuple[str, ...]]]:
    """Those of the brokers that this machine has, all of them started, and a remark on each that it has not."""
    clusters: dict[str, Cluster] = {}
    remarks: list[str] = []
    with ExitStack() as stack:
        for name in names:
            definition = load_definition(name)
            missing = missing_programs(definition)
            if missing:
                remarks.append(f"left out: {definition.broker.title}: {' '.join(missing)}")
            else:
                clusters[name] = stack.enter_context(Cluster(definition))
        yield clusters, tuple(remarks)


def options_for(cluster: Cluster, wire: str) -> ClientOptions:
    """What a client needs to reach all nodes of a cluster, everything else at its default."""
    credentials = cluster.definition.credentials
    return ClientOptions(
        endpoints=cluster.endpoints(wire),
        user=credentials.user if credentials else None,
        password=credentials.password if credentials else None,
    )
