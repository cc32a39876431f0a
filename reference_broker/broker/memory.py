"""What the broker remembers of the past, bounded: fates of transactions (D-03) and sequences of producers (D-05).

Fates. A transaction is named `connection/session/number`. A session has one commit in flight at a time, so the
last few outcomes of each session answer every question that a client may have after a reconnect; the sessions
heard of longest ago are dropped first. Rollback is presumed: of a session that is remembered, a transaction that
is not was never committed. Only when sessions have been dropped is an unknown session's transaction UNKNOWN.

Sequences. The last stored sequence of each producer, the producers heard of longest ago dropped first (DUP-07).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from .commands import Fate

FATES_PER_SESSION = 8
SESSIONS = 10_000
PRODUCERS = 10_000


class Outcomes:
    """The bounded table of fates."""

    def __init__(self, committed: Iterable[str] = (), sessions: int = SESSIONS) -> None:
        self._sessions: OrderedDict[str, dict[str, Fate]] = OrderedDict()
        self._limit = sessions
        for transaction in committed:
            self.record(transaction, Fate.COMMITTED)
        self._dropped = len(self._sessions) >= sessions

    def record(self, transaction: str, fate: Fate) -> list[str]:
        """Remember; returns the committed transactions that were forgotten for it."""
        owner = _owner(transaction)
        fates = self._sessions.setdefault(owner, {})
        self._sessions.move_to_end(owner)
        fates[transaction] = fate
        gone: dict[str, Fate] = {}
        if len(fates) > FATES_PER_SESSION:
            oldest = next(iter(fates))
            gone[oldest] = fates.pop(oldest)
        if len(self._sessions) > self._limit:
            gone |= self._sessions.popitem(last=False)[1]
            self._dropped = True
        return [name for name, was in gone.items() if was is Fate.COMMITTED]

    def recall(self, transaction: str) -> Fate | None:
        """The fate if it is remembered."""
        return self._sessions.get(_owner(transaction), {}).get(transaction)

    def presume(self, transaction: str) -> Fate:
        """The fate of a transaction that is not open anywhere."""
        fate = self.recall(transaction)
        if fate is not None:
            return fate
        unknown = self._dropped and _owner(transaction) not in self._sessions
        return Fate.UNKNOWN if unknown else Fate.ROLLED_BACK


def _owner(transaction: str) -> str:
    return transaction.rpartition("/")[0] or transaction


class Sequences:
    """The bounded table of producers."""

    def __init__(self, producers: Iterable[tuple[str, int]] = (), limit: int = PRODUCERS) -> None:
        self._last: OrderedDict[str, int] = OrderedDict(producers)
        self._limit = limit

    def last(self, producer: str) -> int:
        """The last sequence that counts; 0 if none does."""
        return self._last.get(producer, 0)

    def advance(self, producer: str, sequence: int) -> str | None:
        """Remember; returns the producer that was dropped for it."""
        self._last[producer] = sequence
        self._last.move_to_end(producer)
        if len(self._last) > self._limit:
            return self._last.popitem(last=False)[0]
        return None
