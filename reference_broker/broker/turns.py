"""Whose turn it is at a queue.

Consumers that have credit stand in line; who got a message goes to the end of the line. One without credit leaves
it and comes back with the next grant.
"""

from __future__ import annotations

from collections import deque

from .sessions import Consumer


class Line:
    """The consumers of one queue that want messages."""

    def __init__(self) -> None:
        self._line: deque[Consumer] = deque()

    def join(self, consumer: Consumer) -> None:
        """The consumer wants messages; it takes its place at the end unless it has one."""
        if not consumer.in_line:
            consumer.in_line = True
            self._line.append(consumer)

    def turn(self) -> Consumer | None:
        """Who gets the next message; he stays first until `served`."""
        line = self._line
        while line:
            consumer = line[0]
            if consumer.wants:
                return consumer
            consumer.in_line = False
            line.popleft()
        return None

    def served(self) -> None:
        """The first in line got a message and goes to the end."""
        self._line.rotate(-1)
