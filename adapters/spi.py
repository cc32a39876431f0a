"""How a client API is plugged in: one class for each adapter, registered by name.

An adapter turns options into a `reference_broker.jms.ConnectionFactory`. It says what it cannot do, with the reason,
so that a requirement that rests on it is reported as not applicable instead of failed; and it says whose engine
does the failing over, because a report never credits a broker for what our engine did.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from reference_broker.client.options import ClientOptions
from reference_broker.jms import ConnectionFactory


class AdapterError(Exception):
    """The adapter cannot be used here: what is missing and what to do."""


class ClientAdapter(ABC):
    """A client API under which brokers are driven."""

    name: ClassVar[str]
    """As in `--adapter`."""
    wire: ClassVar[str]
    """The protocol whose endpoints of the broker definition it connects to: core, stomp, amqp, openwire ..."""
    engine: ClassVar[str]
    """Who fails over: `reference failover engine` or the vendor's client; reports credit client rows to it."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Capabilities that this API has not, each with its reason."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` is the table of the adapter's name in the broker definition, e.g. `[stomp]`."""
        self.settings = dict(settings or {})

    @abstractmethod
    def connection_factory(self, options: ClientOptions) -> ConnectionFactory:
        """A factory for connections with these options."""

    def versions(self) -> Mapping[str, str]:
        """Names and versions of the libraries in use, for the certificate."""
        return {}
