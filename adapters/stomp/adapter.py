"""The adapter: stomp.py below the failover engine of the reference client."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from adapters.spi import ClientAdapter
from reference_broker.client.connection import FailoverConnectionFactory
from reference_broker.client.options import ClientOptions
from reference_broker.jms import ConnectionFactory

from .dialect import dialect_of
from .driver import StompDriver


class StompAdapter(ClientAdapter):
    """A broker over STOMP 1.2, our failover engine above it."""

    name = "stomp"
    wire = "stomp"
    engine = "reference failover engine"
    lacks = {
        "browsers": "STOMP has no browsing that brokers agree on",
        "browse-restart": "STOMP has no browsing that brokers agree on",
        "commit-fate": "STOMP cannot ask what became of a transaction",
        "consumer-dedup": "not in this release",
        "delivery-delay": "STOMP has no delivery delay",
        "discovery": "clients are told the addresses",
        "durable-subscriptions": "not in this release",
        "failover-exchange": "clients are told the addresses",
        "link-reliability": "STOMP has no such option of a destination",
        "reattach": "STOMP has no sessions that outlive their connection",
        "shared-subscriptions": "STOMP has none",
        "temp-failover": "temporary destinations are not offered over STOMP",
        "temporary-destinations": "temporary destinations are not offered over STOMP",
        "tls": "not in this release",
        "topology": "STOMP tells clients no addresses",
        "xa": "STOMP has no distributed transactions",
    }

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        self.dialect = dialect_of(self.settings)

    def connection_factory(self, options: ClientOptions) -> ConnectionFactory:
        """The failover engine over `StompDriver`."""
        return FailoverConnectionFactory(
            lambda listener: StompDriver(listener, self.dialect, options.heartbeat, options.call_timeout), options
        )

    def versions(self) -> Mapping[str, str]:
        """Of stomp.py."""
        return {"stomp.py": version("stomp.py")}
