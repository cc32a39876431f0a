"""The reference client on the core wire."""

from __future__ import annotations

from reference_broker.client import CoreConnectionFactory
from reference_broker.client.options import ClientOptions
from reference_broker.jms import ConnectionFactory

from .spi import ClientAdapter

NOT_YET = "the reference broker and client do not offer this in this release"


class CoreAdapter(ClientAdapter):
    """Everything that the reference offers, nothing translated."""

    name = "core"
    wire = "core"
    engine = "reference failover engine"
    lacks = dict.fromkeys(
        (
            "browsers",
            "browse-restart",
            "consumer-dedup",
            "delivery-delay",
            "discovery",
            "durable-subscriptions",
            "failover-exchange",
            "link-reliability",
            "reattach",
            "selectors",
            "shared-subscriptions",
            "temp-failover",
            "temporary-destinations",
            "tls",
            "topology",
            "xa",
        ),
        NOT_YET,
    )

    def connection_factory(self, options: ClientOptions) -> ConnectionFactory:
        """The failover engine over the core driver."""
        return CoreConnectionFactory(options)
