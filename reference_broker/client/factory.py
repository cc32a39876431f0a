"""Connections to a reference broker over the core wire."""

from __future__ import annotations

from .connection import FailoverConnectionFactory
from .core_driver import CoreDriver
from .options import ClientOptions


class CoreConnectionFactory(FailoverConnectionFactory):
    """The failover engine over `CoreDriver`."""

    def __init__(self, options: ClientOptions) -> None:
        super().__init__(lambda ear: CoreDriver(ear, options.heartbeat, options.call_timeout), options)
