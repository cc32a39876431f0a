"""What the broker asks its store to keep, in order, and what the store hands back at a start.

All records of one command belong together: the store makes them durable in one step or not at all (TX-16).
"""

from __future__ import annotations

import msgspec

from .envelope import Envelope


class Put(msgspec.Struct, frozen=True, gc=False):
    """A persistent message is on its queue. Ids increase; they give the order on load (ORD-06)."""

    id: int
    envelope: Envelope


class Mark(msgspec.Struct, frozen=True, gc=False):
    """The message is about to be handed out for the first time (D-08)."""

    id: int


class Remove(msgspec.Struct, frozen=True, gc=False):
    """The message is consumed or expired."""

    id: int


class Advance(msgspec.Struct, frozen=True, gc=False):
    """The producer's messages up to this sequence are stored (D-05)."""

    producer: str
    sequence: int


class Retire(msgspec.Struct, frozen=True, gc=False):
    """The producer has not been heard of for long; its sequence is forgotten."""

    producer: str


class Settle(msgspec.Struct, frozen=True, gc=False):
    """The transaction is committed; written with its work (D-03). Rollbacks are presumed and not written."""

    transaction: str


class Forget(msgspec.Struct, frozen=True, gc=False):
    """The transaction's outcome is too old to be asked for."""

    transaction: str


Record = Put | Mark | Remove | Advance | Retire | Settle | Forget


class StoredMessage(msgspec.Struct, frozen=True):
    """A message as a start finds it."""

    id: int
    marked: bool
    envelope: Envelope


class StoredState(msgspec.Struct, frozen=True):
    """Everything that a start finds, each part in the order in which it was written."""

    messages: tuple[StoredMessage, ...] = ()
    producers: tuple[tuple[str, int], ...] = ()
    committed: tuple[str, ...] = ()
