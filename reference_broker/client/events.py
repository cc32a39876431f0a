"""What happens to a connection's transport, told to whoever wants to know: LSN-13, and the delivery log's timings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class FailoverEventKind(StrEnum):
    """The four events of an episode, in their only order: DETECTED, then STARTED, then COMPLETED or FAILED."""

    FAILURE_DETECTED = "FAILURE_DETECTED"
    FAILOVER_STARTED = "FAILOVER_STARTED"
    FAILOVER_COMPLETED = "FAILOVER_COMPLETED"
    FAILOVER_FAILED = "FAILOVER_FAILED"


@dataclass(frozen=True)
class FailoverEvent:
    """One event; `epoch` counts the transports of the connection from 1, `at_ns` is `time.monotonic_ns()`."""

    kind: FailoverEventKind
    epoch: int
    at_ns: int
    detail: str = ""


FailoverListener = Callable[[FailoverEvent], None]
