"""The exception tree of JMS, with the additions that failover needs.

The class tells the level at which something went wrong (connection, session, operation, transaction) and
the `code` tells what, from one fixed set (LSN-07, D-02): an application that only logs can go by the class,
one that reacts can go by the code.

Source: Jakarta Messaging 3.1, section 10.3; decisions D-02, D-03, D-06, D-09.
"""

from enum import StrEnum


class Code(StrEnum):
    """The fixed set of codes that failover reports with (D-02)."""

    CONNECTION_LOST = "CONNECTION_LOST"
    """The transport is gone; `recovering` on the exception tells whether failover is under way."""
    FAILOVER_COMPLETED = "FAILOVER_COMPLETED"
    FAILOVER_EXHAUSTED = "FAILOVER_EXHAUSTED"
    """All attempts that the policy allows were made in vain; the connection counts as closed (RCN-17)."""
    NO_FAILOVER = "NO_FAILOVER"
    """The transport is gone and the policy forbids to reconnect (RCN-02)."""
    CONNECTION_FAILED = "CONNECTION_FAILED"
    """An operation could not be done because its connection failed for good."""
    CALL_UNBLOCKED = "CALL_UNBLOCKED"
    """The operation was in flight when the transport was lost: it may or may not have been done (SND-02)."""
    CALL_TIMED_OUT = "CALL_TIMED_OUT"
    """No answer within the call time-out although the transport lives (DET-13): outcome unknown."""
    SESSION_STALE = "SESSION_STALE"
    """CLIENT acknowledgement of messages that were received before a failover (D-06)."""
    TX_ROLLED_BACK = "TX_ROLLED_BACK"
    TX_OUTCOME_UNKNOWN = "TX_OUTCOME_UNKNOWN"
    OBJECT_NOT_RESTORED = "OBJECT_NOT_RESTORED"
    """A consumer, producer or session could not be created again after failover (RCN-15)."""
    AUTH_REFUSED = "AUTH_REFUSED"
    UNSUPPORTED = "UNSUPPORTED"
    """The provider or the wire does not offer this optional feature."""


UNKNOWN_OUTCOME_CODES = frozenset({Code.CALL_UNBLOCKED, Code.CALL_TIMED_OUT, Code.TX_OUTCOME_UNKNOWN})
"""Codes after which the operation may have been done or not: neither a success nor a failure."""


class JMSException(Exception):
    """Root of all JMS errors; `code` is machine-readable, empty where no code of D-02 applies."""

    default_code: Code | None = None

    def __init__(self, reason: str, code: Code | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code or self.default_code

    @property
    def outcome_unknown(self) -> bool:
        """Whether the operation that raised this may nevertheless have been done (JM 6.2.12)."""
        return self.code in UNKNOWN_OUTCOME_CODES

    def __str__(self) -> str:
        return f"{self.reason} [{self.code}]" if self.code else self.reason


class IllegalStateException(JMSException):
    """The object is in no state to do this, e.g. it is closed (JM 10.3)."""


class InvalidClientIDException(JMSException):
    """The client identifier is not acceptable, e.g. already in use (MSG-33)."""


class InvalidDestinationException(JMSException):
    """The provider does not know the destination, or it is no longer valid."""


class InvalidSelectorException(JMSException):
    """The message selector has a syntax error (MSG-23)."""


class JMSSecurityException(JMSException):
    """Credentials or rights were refused."""

    default_code = Code.AUTH_REFUSED


class MessageEOFException(JMSException):
    """A stream or bytes message was read past its end (MSG-16)."""


class MessageFormatException(JMSException):
    """A value cannot be converted to the type that was asked for (MSG-12)."""


class MessageNotReadableException(JMSException):
    """A write-only body was read."""


class MessageNotWriteableException(JMSException):
    """A read-only body or property was written (MSG-13)."""


class ResourceAllocationException(JMSException):
    """The provider is out of a resource, e.g. its connection limit is reached."""


class TransactionInProgressException(JMSException):
    """Not allowed while the session takes part in a distributed transaction (XA-16)."""


class TransactionRolledBackException(JMSException):
    """commit() ended in a rollback: nothing of the transaction was done (TX-03, JM 10.3)."""

    default_code = Code.TX_ROLLED_BACK


class TransactionOutcomeUnknownException(JMSException):
    """Nobody can tell whether the commit took place (TX-09, D-03); deliberately no rolled-back exception."""

    default_code = Code.TX_OUTCOME_UNKNOWN


class StaleSessionException(IllegalStateException):
    """acknowledge() on a CLIENT session that held unacknowledged messages at a failover (ACK-CLIENT-04)."""

    default_code = Code.SESSION_STALE


class BrowseInterruptedException(JMSException, LookupError):
    """A failover fell into an enumeration; never a StopIteration, which would look complete (BRW-03, D-09)."""


class ConnectionFailedException(JMSException):
    """An operation met a connection that has failed for good (VLV-07, RCN-17)."""

    default_code = Code.CONNECTION_FAILED


class ConnectionLostException(JMSException):
    """Connection-level event for the ExceptionListener: the transport was lost (LSN-01, LSN-03, D-01)."""

    default_code = Code.CONNECTION_LOST

    def __init__(self, reason: str, code: Code | None = None, *, recovering: bool = False) -> None:
        super().__init__(reason, code)
        self.recovering = recovering


class XAErrorCode:
    """Error codes of the X/Open XA interface, as `javax.transaction.xa.XAException` numbers them."""

    XA_RBBASE = 100
    XA_RBROLLBACK = 100
    XA_RBCOMMFAIL = 101
    XA_RBDEADLOCK = 102
    XA_RBINTEGRITY = 103
    XA_RBOTHER = 104
    XA_RBPROTO = 105
    XA_RBTIMEOUT = 106
    XA_RBTRANSIENT = 107
    XA_RBEND = 107
    XA_NOMIGRATE = 9
    XA_HEURHAZ = 8
    XA_HEURCOM = 7
    XA_HEURRB = 6
    XA_HEURMIX = 5
    XA_RETRY = 4
    XA_RDONLY = 3
    XAER_ASYNC = -2
    XAER_RMERR = -3
    XAER_NOTA = -4
    XAER_INVAL = -5
    XAER_PROTO = -6
    XAER_RMFAIL = -7
    XAER_DUPID = -8
    XAER_OUTSIDE = -9


class XAException(Exception):
    """Error of an XAResource; `error_code` is one of `XAErrorCode` (XA-05 to XA-09)."""

    def __init__(self, error_code: int, reason: str = "") -> None:
        super().__init__(reason or f"XA error {error_code}")
        self.error_code = error_code
