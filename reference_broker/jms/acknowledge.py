"""Acknowledge modes, delivery modes and the numbers that JMS gives them (JM 6.2.10, 7.7)."""

from enum import IntEnum


class AcknowledgeMode(IntEnum):
    """Who says that a message is consumed, and when."""

    SESSION_TRANSACTED = 0
    AUTO = 1
    CLIENT = 2
    DUPS_OK = 3
    NO_ACKNOWLEDGE = 257
    """Not of JMS: the broker forgets a message once it is sent (LNK-03, D-13)."""

    @property
    def label(self) -> str:
        """The name as delivery logs and reports write it."""
        return "TRANSACTED" if self is AcknowledgeMode.SESSION_TRANSACTED else self.name


class DeliveryMode(IntEnum):
    """NON_PERSISTENT: at most once. PERSISTENT: once and only once (JM 7.7)."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


DEFAULT_PRIORITY = 4
DEFAULT_TIME_TO_LIVE = 0
