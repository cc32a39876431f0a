"""Switchable defects: the proof that the suite catches a wrong broker or client.

Each names its seam, says in one sentence what goes wrong, and the requirement that it violates and by which a run
has to catch it. They are armed by name, at start, by `--defect` or a client option, and by nothing else; the seam
asks `"name" in defects`. Where a defect acts only now and then, the rule is deterministic and stands in its
sentence.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class UnknownDefect(ValueError):
    """A name that no defect has."""


class Defect(msgspec.Struct, frozen=True):
    """One deliberate mistake."""

    name: str
    seam: str
    """The module and the place where it acts."""
    sentence: str
    violates: tuple[str, ...]
    """Requirement IDs; the first is the one that must catch it."""


BROKER_DEFECTS: tuple[Defect, ...] = (
    Defect(
        "confirmed-send-not-stored",
        "broker.ledger, store",
        "Every third persistent message is confirmed and never written.",
        ("MSG-11", "HA-SS-05"),
    ),
    Defect(
        "confirm-before-commit",
        "store.gate",
        "Answers leave half a second before the group that they rely on is durable.",
        ("MSG-11", "HA-SS-05"),
    ),
    Defect(
        "takeover-forgets-redelivered",
        "broker.ledger, load",
        "Messages handed out before the takeover come again without the redelivered flag.",
        ("ACK-AUTO-03", "MSG-10"),
    ),
    Defect(
        "recover-forgets-redelivered",
        "broker.engine, recover and rollback",
        "Messages that were recovered or rolled back come again unflagged.",
        ("ACK-CLIENT-14",),
    ),
    Defect(
        "acknowledgement-not-stored",
        "broker.engine, acknowledge",
        "An acknowledgement is confirmed and not written: the message comes again after a takeover.",
        ("ACK-AUTO-07",),
    ),
    Defect(
        "acknowledge-takes-one",
        "broker.engine, acknowledge",
        "Of several deliveries acknowledged together only the first is consumed.",
        ("ACK-CLIENT-01",),
    ),
    Defect(
        "acknowledge-takes-prefetched",
        "broker.engine, acknowledge",
        "An acknowledgement consumes all that the session was sent, whether or not the application has received it.",
        ("ACK-CLIENT-01",),
    ),
    Defect(
        "repeated-send-stored-again",
        "broker.engine, send",
        "The sequence of a producer is ignored: a repeated send is stored twice.",
        ("SND-03", "DUP-01"),
    ),
    Defect(
        "torn-commit",
        "broker.engine, commit",
        "A commit takes the sends of a transaction and gives its receipts back.",
        ("TX-01", "TX-16"),
    ),
    Defect(
        "uncommitted-sends-visible",
        "broker.engine, send",
        "A send in a transaction is visible at once.",
        ("TX-01", "TX-13"),
    ),
    Defect(
        "rolled-back-sends-stored",
        "broker.engine, rollback",
        "Sends that were rolled back are written, and appear after a takeover.",
        ("TX-13", "TX-03"),
    ),
    Defect(
        "commit-not-stored",
        "broker.engine, commit",
        "A commit is confirmed and its work is not written.",
        ("TX-16", "HA-SS-05"),
    ),
    Defect(
        "fate-inverted",
        "broker.engine, fate",
        "Asked for the fate of a transaction the broker says the opposite.",
        ("TX-10", "TX-09"),
    ),
    Defect(
        "requeue-reverses-order",
        "broker.queues, give back",
        "Messages that were given back come again last first.",
        ("ORD-02",),
    ),
    Defect(
        "takeover-swaps-order",
        "broker.ledger, load",
        "A takeover swaps each message with its neighbour.",
        ("ORD-02", "ORD-04"),
    ),
    Defect(
        "nonpersistent-twice",
        "broker.ledger, accept",
        "Every third message that is not persistent is queued twice, the second one unflagged.",
        ("MSG-10",),
    ),
    Defect(
        "prefetched-lost-with-link",
        "broker.engine, loss of a link",
        "What a client held when its transport broke is taken as consumed.",
        ("MSG-11", "ACK-AUTO-09"),
    ),
    Defect(
        "dead-client-keeps-its-messages",
        "broker.engine, loss of a link",
        "The session of a dead client stays with all that it held, for ever.",
        ("DET-09", "TX-19"),
    ),
    Defect(
        "body-altered", "broker.engine, deliver", "Every third delivery has one bit of its body flipped.", ("MSG-15",)
    ),
    Defect("expiry-ignored", "broker.ledger", "Expired messages are handed out.", ("MSG-04", "MSG-05")),
)

CLIENT_DEFECTS: tuple[Defect, ...] = (
    Defect(
        "commit-succeeds-after-failover",
        "client.session_state, commit",
        "commit() of a transaction that a failover has undone returns as if it had been done.",
        ("TX-03", "TX-02"),
    ),
    Defect(
        "half-stale-transaction-commits",
        "client.session_state, commit",
        "What was added after the failover to a transaction begun before it is committed alone.",
        ("TX-05",),
    ),
    Defect(
        "interrupted-commit-called-rolled-back",
        "client.settlement, commit",
        "A commit that was in flight at the loss is reported as rolled back without asking the broker.",
        ("TX-10", "TX-09"),
    ),
    Defect(
        "stale-acknowledge-succeeds",
        "client.session_state, acknowledge",
        "acknowledge() of messages received before the failover returns as if they had been acknowledged.",
        ("ACK-CLIENT-04", "ACK-CLIENT-05"),
    ),
    Defect(
        "recover-leaves-session-dirty",
        "client.settlement, recover",
        "recover() after a failover does nothing: the next acknowledge() raises although the session was recovered.",
        ("ACK-CLIENT-08",),
    ),
    Defect(
        "prefetched-makes-session-dirty",
        "client.session, loss of the transport",
        "A CLIENT session with prefetched messages becomes stale although the application holds none.",
        ("ACK-CLIENT-02",),
    ),
    Defect(
        "clean-session-goes-stale",
        "client.session_state, loss",
        "Every CLIENT session becomes stale by a failover, whatever it holds.",
        ("ACK-CLIENT-09", "ACK-CLIENT-15", "ACK-CLIENT-02"),
    ),
    Defect(
        "stale-error-recovers-nothing",
        "client.settlement, acknowledge",
        "acknowledge() of a dirty session raises and leaves what was received since the failover where it is.",
        ("ACK-CLIENT-06", "ACK-CLIENT-05"),
    ),
    Defect(
        "error-of-failover-raised-again",
        "client.session_state, reported",
        "The session stays stale, or rollback-only, after the application was told so.",
        ("ACK-CLIENT-07", "TX-06"),
    ),
    Defect(
        "old-message-acknowledges-new",
        "client.session_state, acknowledge",
        "acknowledge() by a message from before a failover acknowledges what was received after it.",
        ("ACK-CLIENT-10",),
    ),
    Defect(
        "interrupted-acknowledge-succeeds",
        "client.settlement, acknowledge",
        "An acknowledge() that was in flight at the loss returns as if it had been done.",
        ("ACK-CLIENT-12",),
    ),
    Defect(
        "clean-transaction-doomed",
        "client.session_state, loss",
        "Every transacted session becomes rollback-only by a failover, whatever it has done.",
        ("TX-04", "LSN-05"),
    ),
    Defect(
        "rollback-leaves-transaction-doomed",
        "client.settlement, rollback",
        "rollback() after a failover does nothing: the next commit() raises although the transaction is a new one.",
        ("TX-07",),
    ),
    Defect(
        "restored-session-commits-by-itself",
        "client.producer",
        "After a failover the sends of a transacted session are in no transaction.",
        ("TX-12", "TX-05"),
    ),
    Defect(
        "interrupted-send-resent-unprotected",
        "client.producer",
        "A send that was in flight at the loss is repeated without a sequence that the broker could know it by.",
        ("SND-03", "SND-02"),
    ),
    Defect(
        "interrupted-send-succeeds",
        "client.producer",
        "A send that was in flight at the loss returns normally, whether or not it arrived.",
        ("SND-01", "MSG-11"),
    ),
    Defect(
        "parked-send-dropped",
        "client.producer",
        "A send that was issued during the outage waits and returns normally, and is never sent.",
        ("SND-05", "MSG-11"),
    ),
    Defect(
        "prefetched-survives-failover",
        "client.session, loss of the transport",
        "Messages that were prefetched over the old transport are handed out after the failover.",
        ("ACK-AUTO-09", "ACK-CLIENT-03"),
    ),
    Defect(
        "loss-notified-twice",
        "client.engine, notification",
        "The ExceptionListener hears of each loss twice.",
        ("LSN-01",),
    ),
    Defect(
        "loss-not-notified",
        "client.engine, notification",
        "The ExceptionListener does not hear of a loss.",
        ("LSN-01", "LSN-11"),
    ),
    Defect(
        "waiters-left-in-valve",
        "client.valve, fail",
        "When failover is given up the calls that wait are not released.",
        ("VLV-07", "LSN-03"),
    ),
    Defect(
        "receive-raises-in-outage",
        "client.session, receive",
        "receive() whose time runs out during an outage raises instead of returning None.",
        ("VLV-14",),
    ),
    Defect(
        "late-loss-kills-new-transport",
        "client.failover, lost; client.engine, opening the valve",
        "Each loss is reported once more when its failover is done, and taken for a loss of the new transport.",
        ("DET-08", "DET-05"),
    ),
    Defect(
        "application-error-fails-over",
        "client.engine, calls",
        "An operation that the broker refuses counts as the loss of the transport.",
        ("DET-07",),
    ),
    Defect(
        "silence-ignored",
        "client.engine, report of the detector",
        "A broker that has fallen silent is waited for without end.",
        ("DET-01", "DET-06"),
    ),
    Defect(
        "auto-ack-failure-swallowed",
        "client.settlement, AUTO",
        "An automatic acknowledgement that was lost is reported to nobody.",
        ("ACK-AUTO-04", "ACK-AUTO-05"),
    ),
    Defect(
        "acknowledges-before-listener-returns",
        "client.session, listener",
        "In AUTO mode a message is acknowledged before its listener is called.",
        ("ACK-AUTO-01",),
    ),
    Defect(
        "dups-ok-acknowledges-prefetched",
        "client.session, lazy acknowledgement",
        "Lazy acknowledgements cover messages that were only prefetched.",
        ("ACK-DUPS-03", "ACK-DUPS-02"),
    ),
    Defect(
        "end-of-failover-not-told",
        "client.engine, notification",
        "When failover is given up the ExceptionListener does not hear of it.",
        ("LSN-03",),
    ),
    Defect(
        "hope-not-told",
        "client.engine, notification",
        "A loss that failover follows is told with the code of one that nothing follows.",
        ("LSN-02",),
    ),
    Defect(
        "loss-told-after-failover",
        "client.engine, notification",
        "The ExceptionListener hears of a loss only when the failover is complete.",
        ("LSN-10",),
    ),
    Defect(
        "notifications-overlap",
        "client.notifier",
        "The ExceptionListener is called while it still runs.",
        ("LSN-06",),
    ),
    Defect(
        "one-error-for-all",
        "client.engine, error of a failed connection",
        "All calls on a failed connection raise one and the same object, with the code of the listener's event.",
        ("LSN-04",),
    ),
    Defect(
        "events-misnamed",
        "client.engine, events",
        "A failover that was in vain is told as completed to those who listen to failover events.",
        ("LSN-13",),
    ),
    Defect(
        "closed-transport-not-noticed",
        "client.engine, report of a driver",
        "That the broker has closed the transport is noticed by the next ping or call only.",
        ("DET-03",),
    ),
    Defect(
        "silence-declared-early",
        "client.engine, detector",
        "A silent broker is given up after half of the time to live.",
        ("DET-10", "DET-01"),
    ),
    Defect(
        "handshake-waited-for",
        "client.engine, attempts",
        "A broker that accepts and says nothing is waited for far beyond the connect time-out.",
        ("DET-14",),
    ),
    Defect(
        "calls-refused-in-outage",
        "client.engine, calls",
        "A call that comes while there is no transport raises instead of waiting.",
        ("VLV-02", "SND-05"),
    ),
    Defect(
        "interrupted-call-not-repeated",
        "client.engine, calls",
        "A call that a loss interrupts raises although it could safely be repeated.",
        ("VLV-03", "VLV-12", "VLV-10"),
    ),
    Defect(
        "valve-opens-before-restore",
        "client.engine, restore",
        "Calls go over the new transport before sessions and consumers are made again.",
        ("VLV-06",),
    ),
    Defect(
        "close-waits-for-failover",
        "client.connection, close",
        "close() waits until the failover has ended.",
        ("VLV-08", "LSN-08"),
    ),
    Defect(
        "local-calls-wait",
        "client.connection, ExceptionListener",
        "Setting a listener waits for a transport.",
        ("VLV-15",),
    ),
)


def arm(names: Iterable[str], known: Iterable[Defect]) -> frozenset[str]:
    """The names as a set, if all are known; UnknownDefect otherwise."""
    chosen, available = frozenset(names), {defect.name for defect in known}
    if missing := sorted(chosen - available):
        raise UnknownDefect(f"no such defect: {', '.join(missing)}; known are: {', '.join(sorted(available))}")
    return chosen
