"""When and where to connect: the sequence of attempts as a pure function of the options.

A *pass* tries every address once. The first pass starts at once (RCN-03); before each later one there is a pause
that grows from `retry_interval` by `retry_multiplier` up to `max_retry_interval` (RCN-11). A limit counts passes:
-1 stands for ever, 0 for none (RCN-08). Every loss starts a new sequence, so counters and pauses start over
with each restore (RCN-12) and do not with an attempt that was accepted and lost again (RCN-13).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .driver import Endpoint
from .options import ClientOptions


class Attempt(NamedTuple):
    """One try: wait `delay` seconds, then connect."""

    endpoint: Endpoint
    delay: float


def attempts(
    endpoints: Sequence[Endpoint],
    passes: int,
    interval: float,
    multiplier: float,
    max_interval: float,
) -> Iterator[Attempt]:
    """All attempts of one episode, in order."""
    pause = 0.0
    following = min(interval, max_interval)
    for _ in range(passes) if passes >= 0 else itertools.count():
        for position, endpoint in enumerate(endpoints):
            yield Attempt(endpoint, pause if position == 0 else 0.0)
        pause, following = following, min(following * multiplier, max_interval)


def initial_attempts(options: ClientOptions) -> Iterator[Attempt]:
    """The first connect walks the addresses in the order in which they were listed (D-11, RCN-10)."""
    return _attempts(options, options.endpoints, options.initial_connect_attempts)


def reconnect_attempts(options: ClientOptions, lost: Endpoint) -> Iterator[Attempt]:
    """After a loss: round robin, beginning behind the address that was lost (RCN-04)."""
    if not fails_over(options):
        return iter(())
    behind = options.endpoints.index(lost) + 1 if lost in options.endpoints else 0
    order = options.endpoints[behind:] + options.endpoints[:behind]
    return _attempts(options, order, options.reconnect_attempts)


def fails_over(options: ClientOptions) -> bool:
    """Whether anything follows a loss (RCN-02, RCN-08)."""
    return options.failover and options.reconnect_attempts != 0


def _attempts(options: ClientOptions, endpoints: Sequence[Endpoint], passes: int) -> Iterator[Attempt]:
    return attempts(endpoints, passes, options.retry_interval, options.retry_multiplier, options.max_retry_interval)
