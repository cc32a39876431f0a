"""What a connection factory is configured with; the names are ours, the meanings those of the sources.

Times are seconds. A factory holds all of it, applications hold none (REP-13).
"""

from __future__ import annotations

import msgspec

from .driver import Endpoint


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a failover client can be told."""

    endpoints: tuple[Endpoint, ...]
    """All are tried in order at the first connect, and round robin after a loss (D-11, RCN-04)."""
    user: str | None = None
    password: str | None = None
    client_id: str | None = None

    failover: bool = True
    """False is `nofailover`: a loss is final, retries apply to the first connect only (RCN-02)."""
    initial_connect_attempts: int = 1
    """Passes over the list at the first connect; -1 for ever (RCN-10)."""
    reconnect_attempts: int = -1
    """Passes over the list after a loss; 0 means no failover, -1 for ever (RCN-08)."""
    retry_interval: float = 0.05
    """Pause after an unsuccessful pass (RCN-11)."""
    retry_multiplier: float = 1.5
    max_retry_interval: float = 1.0
    connect_timeout: float = 5.0
    """For the transport and the handshake together (DET-14)."""

    heartbeat: float = 2.0
    """Period of signs of life in both directions; 0 switches them off."""
    heartbeat_ttl: float = 5.0
    """Silence after which the transport counts as lost (DET-01)."""
    call_timeout: float | None = 30.0
    """For an answer over a transport that lives (DET-13)."""
    failover_timeout: float | None = None
    """How long a call waits in the valve before it raises while failover goes on (VLV-13)."""

    prefetch: int = 100
    """Messages that a consumer may hold before the application takes them."""
    producer_sequences: bool = True
    """Stamp sends so that an interrupted one can be repeated safely, where the wire can (D-05)."""
    async_ack: bool = False
    """AUTO: send the acknowledgement without waiting for its confirmation (D-16, ACK-AUTO-06)."""
    dups_ok_batch: int = 20
    """DUPS_OK: acknowledge lazily after so many messages."""
    defects: frozenset[str] = frozenset()
    """Names of client defects to arm: for negative controls only."""
