"""The messages that a consumer holds ready, and the credit that keeps them coming. No I/O.

Credit is what the broker may still send. It starts as the prefetch window and is granted again in halves of it
as the application takes messages, so that a consumer neither starves nor floods (SND-07). With a prefetch of 0
messages are pulled: one is granted when somebody waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from .driver import Delivery


class Arrived(NamedTuple):
    """A delivery with its place among all of its session, and the epoch of the transport that it came over."""

    order: int
    epoch: int
    delivery: Delivery


class Inbox:
    """One consumer's."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._messages: deque[Arrived] = deque()
        self._taken = 0
        self._outstanding = prefetch

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Arrived]:
        return iter(self._messages)

    @property
    def first(self) -> Arrived | None:
        """The next to be taken."""
        return self._messages[0] if self._messages else None

    def put(self, arrived: Arrived) -> None:
        """A message has come."""
        self._messages.append(arrived)
        self._outstanding -= 1

    def take(self) -> tuple[Arrived, int]:
        """The next message, and the credit to grant now, 0 for none."""
        self._taken += 1
        due = 0
        if self._prefetch > 0 and self._taken * 2 >= self._prefetch:
            due, self._taken = self._taken, 0
            self._outstanding += due
        return self._messages.popleft(), due

    @property
    def is_dry(self) -> bool:
        """Whether nothing is there and nothing will come unless it is pulled."""
        return self._prefetch <= 0 and not self._messages and self._outstanding <= 0

    def pull(self) -> int:
        """Somebody waits: the credit to grant for him, 0 if enough is on its way."""
        if not self.is_dry:
            return 0
        self._outstanding += 1
        return 1

    def start_over(self) -> None:
        """The broker has taken back everything, and starts with the full window again."""
        self._messages.clear()
        self.reset_credit()

    def reset_credit(self) -> None:
        """The window is as at the start."""
        self._taken = 0
        self._outstanding = self._prefetch
