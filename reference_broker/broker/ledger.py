"""The messages that the broker has: what comes in, becomes due, is handed out, consumed, given back or expires.

Every change that must outlive the node is noted as a record in the same step. A message without a Put (one that
is not persistent) never causes a record.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from .envelope import Envelope
from .queues import GONE, READY, SCHEDULED, Message, Queue
from .records import Mark, Put, Record, Remove, StoredMessage

EVERY = 3
"""Defects that act now and then act on every third message."""


class Ledger:
    """All messages, by queue."""

    def __init__(self, note: Callable[[Record], None], defects: frozenset[str]) -> None:
        self._note = note
        self._defects = defects
        self._queues: dict[str, Queue] = {}
        self._next_id = 1
        self._due: list[tuple[int, int, Message]] = []
        self._expiring: list[tuple[int, int, Message]] = []

    def queue(self, name: str) -> Queue:
        """The queue of that name; made if it is new."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name)
        return queue

    def load(self, messages: tuple[StoredMessage, ...], now: int) -> None:
        """Take over what a start found: order as written, marked ones count as seen (D-08)."""
        if "takeover-swaps-order" in self._defects:
            messages = _neighbours_swapped(messages)
        for found in messages:
            self._next_id = max(self._next_id, found.id + 1)
            message = Message(found.id, found.envelope, self.queue(found.envelope.destination.name), stored=True)
            message.marked = found.marked
            message.seen = int(found.marked and "takeover-forgets-redelivered" not in self._defects)
            self._place(message, now)

    def accept(self, envelope: Envelope, now: int) -> Queue:
        """A message that nothing can undo any more."""
        message = self._enter(envelope)
        self._place(message, now)
        if "nonpersistent-twice" in self._defects and not envelope.persistent and not message.id % EVERY:
            self._place(self._enter(envelope), now)
        return message.queue

    def _enter(self, envelope: Envelope) -> Message:
        number, self._next_id = self._next_id, self._next_id + 1
        message = Message(number, envelope, self.queue(envelope.destination.name), stored=envelope.persistent)
        if message.stored and not ("confirmed-send-not-stored" in self._defects and not number % EVERY):
            self._note(Put(number, envelope))
        return message

    def _place(self, message: Message, now: int) -> None:
        envelope = message.envelope
        if envelope.expires_at_ms and "expiry-ignored" not in self._defects:
            heappush(self._expiring, (envelope.expires_at_ms, message.id, message))
        if envelope.deliver_at_ms > now:
            heappush(self._due, (envelope.deliver_at_ms, message.id, message))
        else:
            message.queue.add(message)

    def store_only(self, envelope: Envelope) -> None:
        """For the defect `rolled-back-sends-stored`: on disk and nowhere else."""
        self._enter(envelope)

    def next_for(self, queue: Queue, now: int) -> Message | None:
        """The message to hand out next; expired ones are dropped on the way (MSG-04, MSG-05)."""
        while (message := queue.take()) is not None:
            expires = message.envelope.expires_at_ms
            if not expires or expires > now or "expiry-ignored" in self._defects:
                return message
            self._remove(message, "expire")
        return None

    def hand_out(self, message: Message) -> None:
        """The message goes to an application: marked first, for whoever takes over (ACK-AUTO-03)."""
        message.happen("hand-out")
        if message.stored and not message.marked:
            message.marked = True
            self._note(Mark(message.id))

    def consume(self, message: Message, *, noted: bool = True) -> None:
        """Acknowledged for good; `noted` is false for a defect only."""
        if noted:
            self._remove(message, "consume")
        else:
            message.happen("consume")

    def give_back(self, message: Message, *, seen: bool) -> Queue:
        """Back to where it was; `seen` says that an application has, or may have, had it."""
        message.seen += seen
        message.queue.give_back(message, reverse="requeue-reverses-order" in self._defects)
        return message.queue

    def _remove(self, message: Message, event: str) -> None:
        message.happen(event)
        if message.stored:
            self._note(Remove(message.id))

    def tick(self, now: int) -> list[Queue]:
        """What time brings: expired messages go, scheduled ones become visible; returns queues that got some."""
        while self._expiring and self._expiring[0][0] <= now:
            message = heappop(self._expiring)[2]
            if message.state in (READY, SCHEDULED):
                self._remove(message, "expire")
        changed = []
        while self._due and self._due[0][0] <= now:
            message = heappop(self._due)[2]
            if message.state is not GONE:
                message.position, self._next_id = self._next_id, self._next_id + 1
                message.queue.add(message)
                changed.append(message.queue)
        return changed


def _neighbours_swapped(messages: tuple[StoredMessage, ...]) -> tuple[StoredMessage, ...]:
    swapped = list(messages)
    for index in range(0, len(swapped) - 1, 2):
        swapped[index], swapped[index + 1] = swapped[index + 1], swapped[index]
    return tuple(swapped)
