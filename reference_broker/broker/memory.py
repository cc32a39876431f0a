"""What the broker remembers of the past, bounded: fates of transactions (D-03) and sequences of producers (D-05).

Fates. A transaction is named `connection/session/number`, numbers increasing. A session has one commit in flight
at a time, so its last few outcomes answer every question that a client may have after a reconnect; the sessions
heard of longest ago are dropped first. Rollback is presumed: what could not have been forgotten and is not
remembered was never committed. What could have been forgotten (it is older than all that a full session remembers, or
sessions have been dropped and its is not there) is UNKNOWN.

Sequences. The last stored sequence of each producer, the producers heard of longest ago dropped first (DUP-07).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from .commands import Fate

FATES_PER_SESSION = 16
SESSIONS = 10_000
PRODUCERS = 10_000


class _Fates:
    """Of one session, oldest first. Only commits are durable, so each kind has a bound of its own."""

    def __init__(self) -> None:
        self.committed: dict[str, None] = {}
        self.rolled_back: dict[str, None] = {}

    def may_have_forgotten(self, transaction: str) -> bool:
        if len(self.committed) < FATES_PER_SESSION:
            return False
        oldest, asked = _number(next(iter(self.committed))), _number(transaction)
        return oldest is None or asked is None or asked < oldest


class Outcomes:
    """The bounded table of fates."""

    def __init__(self, committed: Iterable[str] = (), sessions: int = SESSIONS) -> None:
        self._sessions: OrderedDict[str, _Fates] = OrderedDict()
        self._limit = sessions
        self._dropped = False
        for transaction in committed:
            self.record(transaction, Fate.COMMITTED)
        self._dropped = len(self._sessions) >= sessions

    def record(self, transaction: str, fate: Fate) -> list[str]:
        """Remember; returns the committed transactions that were forgotten for it."""
        owner = _owner(transaction)
        fates = self._sessions.get(owner)
        if fates is None:
            fates = self._sessions[owner] = _Fates()
        self._sessions.move_to_end(owner)
        forgotten: list[str] = []
        if fate is Fate.COMMITTED:
            fates.committed[transaction] = None
            if len(fates.committed) > FATES_PER_SESSION:
                forgotten.append(next(iter(fates.committed)))
                del fates.committed[forgotten[0]]
        else:
            fates.rolled_back[transaction] = None
            if len(fates.rolled_back) > FATES_PER_SESSION:
                del fates.rolled_back[next(iter(fates.rolled_back))]
        if len(self._sessions) > self._limit:
            forgotten += self._sessions.popitem(last=False)[1].committed
            self._dropped = True
        return forgotten

    def recall(self, transaction: str) -> Fate | None:
        """The fate if it is remembered."""
        fates = self._sessions.get(_owner(transaction))
        if fates is None:
            return None
        if transaction in fates.committed:
            return Fate.COMMITTED
        return Fate.ROLLED_BACK if transaction in fates.rolled_back else None

    def presume(self, transaction: str) -> Fate:
        """The fate of a transaction that is not open anywhere."""
        fate = self.recall(transaction)
        if fate is not None:
            return fate
        fates = self._sessions.get(_owner(transaction))
        unknown = self._dropped if fates is None else fates.may_have_forgotten(transaction)
        return Fate.UNKNOWN if unknown else Fate.ROLLED_BACK


def _owner(transaction: str) -> str:
    return transaction.rpartition("/")[0] or transaction


def _number(transaction: str) -> int | None:
    number = transaction.rpartition("/")[2]
    return int(number) if number.isdecimal() else None


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
