"""STOMP through stomp.py: any STOMP broker below our failover engine. Findings about brokers: docs/stomp.md."""

from .adapter import StompAdapter
from .dialect import StompDialect
from .driver import StompDriver

__all__ = ["StompAdapter", "StompDialect", "StompDriver"]
