"""Why a command has no effect: the conditions that several handlers share."""

from __future__ import annotations

from .commands import Refusal
from .envelope import Address
from .sessions import Link, Session


class Refuse(Exception):
    """The way out of a handler before it has done anything."""

    def __init__(self, why: Refusal, reason: str) -> None:
        super().__init__(reason)
        self.why = why
        self.reason = reason


def open_session(link: Link, name: str) -> Session:
    """The session of that name; it is for the client to open it first."""
    session = link.sessions.get(name)
    if session is None:
        raise Refuse(Refusal.ILLEGAL_STATE, f"session {name!r} is not open on this transport")
    return session


def check_queue(address: Address) -> None:
    """Only queues with a name, so far."""
    if address.topic or address.temporary:
        kind = "temporary destinations" if address.temporary else "topics"
        raise Refuse(Refusal.UNSUPPORTED, f"this release of the reference broker has no {kind}")
    if not address.name:
        raise Refuse(Refusal.INVALID_DESTINATION, "a queue needs a name")
