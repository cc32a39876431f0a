"""What becomes of an operation that the loss of the transport interrupts: decision D-05 as a table.

S2 retries everything, S1 unblocks everything. Neither is right for all: repeating a `send` whose reply was lost
stores it twice, and giving up a `create_consumer` breaks the transparency for nothing. So it goes by class. An
operation that had not been handed to the transport is not interrupted: it waits in the valve (VLV-02).
"""

from __future__ import annotations

from enum import StrEnum


class OnLoss(StrEnum):
    """The classes of D-05."""

    RETRY = "retry"
    """Safe to repeat: ids chosen by the client make it idempotent (VLV-12)."""
    RETRY_IF_PROTECTED = "retry-if-protected"
    """Repeated if the broker suppresses the second copy (SND-03), otherwise reported (SND-02)."""
    DONE = "done"
    """Pointless after the loss, or lost silently by contract: completes as a no-op (VLV-11)."""
    REPORT = "report"
    """Unblocked at once with an error that says that the outcome is unknown (ACK-CLIENT-12, ACK-AUTO-04)."""
    ASK = "ask"
    """After the restore the broker is asked what became of it (D-03, TX-10)."""


class Operation(StrEnum):
    """Everything that the engine does over a transport for a caller."""

    CREATE_SESSION = "create session"
    CREATE_CONSUMER = "create consumer"
    CLOSE_SESSION = "close session"
    CLOSE_CONSUMER = "close consumer"
    SEND = "send"
    SEND_NON_PERSISTENT = "non-persistent send"
    GRANT = "grant credit"
    PULL = "look for a message"
    ACKNOWLEDGE = "acknowledge"
    AUTO_ACKNOWLEDGE = "automatic acknowledgement"
    DUPS_OK_ACKNOWLEDGE = "lazy acknowledgement"
    RECOVER = "recover"
    ROLLBACK = "rollback"
    COMMIT = "commit"
    ASK_FATE = "ask the fate of a transaction"


ON_LOSS: dict[Operation, OnLoss] = {
    Operation.CREATE_SESSION: OnLoss.RETRY,
    Operation.CREATE_CONSUMER: OnLoss.RETRY,
    Operation.CLOSE_SESSION: OnLoss.DONE,
    Operation.CLOSE_CONSUMER: OnLoss.DONE,
    Operation.SEND: OnLoss.RETRY_IF_PROTECTED,
    # At most once: a repeat could be a second copy, since no sequence of it survives a crash (MSG-10).
    Operation.SEND_NON_PERSISTENT: OnLoss.DONE,
    Operation.GRANT: OnLoss.DONE,
    Operation.PULL: OnLoss.RETRY,
    Operation.ACKNOWLEDGE: OnLoss.REPORT,
    Operation.AUTO_ACKNOWLEDGE: OnLoss.REPORT,
    Operation.DUPS_OK_ACKNOWLEDGE: OnLoss.DONE,
    # With the session state lost the broker has already taken everything back.
    Operation.RECOVER: OnLoss.DONE,
    Operation.ROLLBACK: OnLoss.DONE,
    Operation.COMMIT: OnLoss.ASK,
    Operation.ASK_FATE: OnLoss.RETRY,
}


def on_loss(operation: Operation, *, protected: bool = False) -> OnLoss:
    """What to do with an interrupted operation, its protection taken into account."""
    rule = ON_LOSS[operation]
    if rule is OnLoss.RETRY_IF_PROTECTED:
        return OnLoss.RETRY if protected else OnLoss.REPORT
    return rule
