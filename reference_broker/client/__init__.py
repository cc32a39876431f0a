"""The failover client: JMS objects above, any wire below, and between them the engine that survives failures."""

from .connection import FailoverConnection, FailoverConnectionFactory
from .driver import Endpoint
from .factory import CoreConnectionFactory
from .options import ClientOptions

__all__ = ["ClientOptions", "CoreConnectionFactory", "Endpoint", "FailoverConnection", "FailoverConnectionFactory"]
