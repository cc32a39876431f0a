"""Queues and topics as an application names them; equal by kind and name (JM 4.1, 4.2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Destination:
    """Where messages are sent to or received from."""

    name: str

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()}:{self.name}"


@dataclass(frozen=True, slots=True)
class Queue(Destination):
    """Each message goes to one consumer (JM 4.1)."""


@dataclass(frozen=True, slots=True)
class Topic(Destination):
    """Each message goes to every subscription (JM 4.2)."""


class TemporaryDestination(ABC):
    """Lives as long as the JMS connection that created it, failover included (TMP-01, TMP-02, D-07)."""

    @abstractmethod
    def delete(self) -> None:
        """Remove it now; IllegalStateException while a consumer is active (TMP-07)."""
