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
    lacks = {
        "topics": NOT_YET,
        "durable-subscriptions": NOT_YET,
        "browsers": NOT_YET,
        "temporary-destinations": NOT_YET,
        "xa": NOT_YET,
        "delivery-delay": NOT_YET,
        "reattach": NOT_YET,
    }

    def connection_factory(self, options: ClientOptions) -> ConnectionFactory:
        """The failover engine over the core driver."""
        return CoreConnectionFactory(options)
