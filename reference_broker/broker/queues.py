"""A queue: which message is next.

Order. The highest priority first, within a priority the position at which a message became visible. A message
that is given back keeps its position, so it is next before everything of its priority that was never handed out
(ORD-02). Messages never handed out wait in one deque a priority; given-back ones in one heap. Whatever was handed
out was once the first of its deque, hence of two equal priorities the heap's message is the older one.

Life of a message, as the table `LIFE` has it:

- SCHEDULED: stored, not visible before its delivery time (MSG-07);
- READY: visible and free;
- LOCKED: with a session, which may acknowledge it or give it back;
- GONE: consumed or expired; a deque or heap may still hold it and skips it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Final

from .envelope import Envelope

SCHEDULED: Final = "scheduled"
READY: Final = "ready"
LOCKED: Final = "locked"
GONE: Final = "gone"

LIFE: Final = {
    (SCHEDULED, "due"): READY,
    (READY, "hand-out"): LOCKED,
    (LOCKED, "give-back"): READY,
    (LOCKED, "consume"): GONE,
    (READY, "expire"): GONE,
    (SCHEDULED, "expire"): GONE,
}
"""State and event to state; nothing else happens to a message."""

PRIORITIES = 10


class Message:
    """One message on one queue."""

    __slots__ = ("envelope", "id", "marked", "position", "priority", "queue", "seen", "state", "stored")

    def __init__(self, number: int, envelope: Envelope, queue: Queue, *, stored: bool) -> None:
        self.id = number
        self.position = number
        self.priority = min(max(envelope.priority, 0), PRIORITIES - 1)
        self.envelope = envelope
        self.queue = queue
        self.stored = stored
        """It has a Put."""
        self.marked = False
        """It has a Mark."""
        self.seen = 0
        """How many times an application has, or may have, seen it."""
        self.state = SCHEDULED

    def happen(self, event: str) -> None:
        """One step of its life; KeyError means that the broker is wrong."""
        self.state = LIFE[self.state, event]


class Queue:
    """One queue; made when it is first named."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._fresh: tuple[deque[Message], ...] = tuple(deque() for _ in range(PRIORITIES))
        self._filled = 0
        """Bit p is set if the deque of priority p holds something."""
        self._returned: list[tuple[int, int, Message]] = []

    def add(self, message: Message) -> None:
        """Make a message visible, behind all others of its priority."""
        message.happen("due")
        self._fresh[message.priority].append(message)
        self._filled |= 1 << message.priority

    def give_back(self, message: Message, *, reverse: bool = False) -> None:
        """Make it visible again where it was; `reverse` is for the defect of that name."""
        message.happen("give-back")
        position = -message.position if reverse else message.position
        heappush(self._returned, (-message.priority, position, message))

    def take(self) -> Message | None:
        """The next message that is free, out of its container; the caller decides what happens to it."""
        while True:
            top = self._filled.bit_length() - 1
            if self._returned and -self._returned[0][0] >= top:
                message = heappop(self._returned)[2]
            elif top >= 0:
                fresh = self._fresh[top]
                message = fresh.popleft()
                if not fresh:
                    self._filled ^= 1 << top
            else:
                return None
            if message.state is READY:
                return message
