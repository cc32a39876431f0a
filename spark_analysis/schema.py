"""The delivery log's schema: what one client saw, event by event, in the words of the JMS API.

The form is Jepsen's. An operation that can fail half way is recorded twice: an ``ATTEMPT`` when it is called and, with
``op`` pointing back at that attempt's position, its end: ``OK``, ``FAILED`` (it surely did not happen) or
``INDETERMINATE`` (nobody can know). An attempt that has no end when the log closes counts as ``INDETERMINATE``.
An event that stands alone (``op`` = -1 and an outcome other than ``ATTEMPT``) is a whole operation.

How each kind is meant to be recorded, because the rules read it so:

``SEND``
    ``message`` is a uid that the test made up and carries in the message; ``sequence`` counts the sends of one
    producer session to one destination. ``session``, ``destination``, ``digest``, ``persistent``, ``priority`` and
    ``expires_at_ms`` belong to the ATTEMPT (or to the event that stands alone). In a transaction, OK is provisional:
    the COMMIT of the same ``transaction`` decides.
``RECEIVE``
    One event a message that reaches the application, with ``message``, ``destination``, ``endpoint`` (the consumer),
    ``redelivered`` and ``delivery_count``. A receive that timed out has ``message`` = "" and judges nothing. A listener
    may record an ATTEMPT with the message on entry and its end on return: an end other than OK is a message that was
    handed over but not consumed. A message that carries no test uid is recorded as ``foreign:<its own id>``.
``ACKNOWLEDGE``, ``RECOVER``
    ``messages`` are the uids covered. An ACKNOWLEDGE without them covers all that its session has received.
``COMMIT``, ``ROLLBACK``
    Name their ``transaction``. COMMIT FAILED claims that the transaction was rolled back.
``SUBSCRIBE``
    Only for topics: it makes ``destination`` one. ``endpoint`` is the consumer, ``detail`` the subscription's name (""
    for an unnamed one; with the client id in front where names are per client) and ``persistent`` tells a durable
    one.
``FAULT``
    Record an ATTEMPT *before* the fault is injected, so that nothing it causes can precede it in the log.
    ``connection`` narrows it to one connection; "" may hit every connection.
``DRAINED``
    The scene's final drain read ``destination`` (or, with ``endpoint`` or ``detail``, one subscription of it) to its
    end; its receives are ordinary RECEIVE events. What is missing then is really missing.
``CLOSE``
    With ``endpoint``: a producer or consumer; else with ``session``: a session; else the ``connection``.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

SCHEMA_VERSION = 1
LOG_SUFFIX = ".delivery.jsonl"


class Kind(StrEnum):
    """What happened."""

    SEND = "send"
    RECEIVE = "receive"
    ACKNOWLEDGE = "acknowledge"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    RECOVER = "recover"
    BROWSE = "browse"
    CONNECT = "connect"
    CLOSE = "close"
    SUBSCRIBE = "subscribe"
    LISTENER_NOTIFIED = "notified"
    FAILOVER_BEGUN = "failover-begun"
    FAILOVER_DONE = "failover-done"
    FAULT = "fault"
    NOTE = "note"
    DRAINED = "drained"


class Outcome(StrEnum):
    """How far it got (Jepsen's invoke, ok, fail and info)."""

    ATTEMPT = "attempt"
    OK = "ok"
    FAILED = "failed"
    INDETERMINATE = "indeterminate"


class Event(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of the log; see the module for which fields belong to which kind."""

    position: int  # 0-based and contiguous: the event's name in every finding
    at_ns: int  # monotonic clock of the writing process
    kind: Kind
    outcome: Outcome
    op: int = -1  # the position of the ATTEMPT that this event ends
    connection: str = ""
    session: str = ""
    mode: str = ""  # AUTO, CLIENT, DUPS_OK or TRANSACTED
    endpoint: str = ""  # the producer or consumer
    destination: str = ""
    message: str = ""  # uid assigned by the test, never the JMSMessageID
    sequence: int = -1  # per producer session and destination, from 0
    digest: str = ""  # of the body
    persistent: bool = True
    priority: int = 4
    expires_at_ms: int = 0  # wall clock, 0 = never
    wall_ms: int = 0
    redelivered: bool = False
    delivery_count: int = 0  # 0 = the adapter cannot tell
    transaction: str = ""  # assigned by the test, "" = none
    messages: tuple[str, ...] = ()  # the uids that an ACKNOWLEDGE, RECOVER or BROWSE covers
    error: str = ""  # exception class
    code: str = ""
    epoch: int = 0  # failures that this connection has seen so far
    fault: str = ""  # fault code of the catalogue, section 0.3
    detail: str = ""


class Header(msgspec.Struct, frozen=True):
    """Line 1: which scenario this is and under which conditions it ran.

    ``options`` that the rules know: ``duplicate-detection`` = ``on``; ``transparent`` = ``on`` (re-attach promised: a
    failure excuses neither loss nor redelivery); ``volatile:<destination>`` (its content may be lost in a failure, as
    that of a temporary queue); ``expiry-tolerance-ms``; ``exempt:<rule>`` = the written reason.
    """

    schema: int
    run: str
    scenario: str  # unique in the run
    test: str  # pytest node id
    requirements: tuple[str, ...]
    adapter: str
    broker: str
    failover: str  # RA, RC or NF
    fault: str
    seed: int
    started_wall_ms: int
    options: dict[str, str] = {}


class Footer(msgspec.Struct, frozen=True):
    """Last line: its presence says that the writer finished."""

    events: int
    crc: int  # crc32 over all lines before this one, with their line ends
    finished_wall_ms: int
