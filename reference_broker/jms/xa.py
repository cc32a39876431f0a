"""The XA side of JMS: transaction branch ids, the resource, and its flags (JM 6.2.8, 11.3.5; X/Open XA)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag


@dataclass(frozen=True, slots=True)
class Xid:
    """Identity of one transaction branch; both byte parts have at most 64 bytes."""

    format_id: int
    global_transaction_id: bytes
    branch_qualifier: bytes

    def __post_init__(self) -> None:
        for part in (self.global_transaction_id, self.branch_qualifier):
            if len(part) > 64:
                raise ValueError(f"an xid part has at most 64 bytes, not {len(part)}")


class XAFlag(IntFlag):
    """Flags of start, end and recover, numbered as `XAResource` numbers them."""

    TMNOFLAGS = 0
    TMJOIN = 0x200000
    TMENDRSCAN = 0x800000
    TMSTARTRSCAN = 0x1000000
    TMSUSPEND = 0x2000000
    TMSUCCESS = 0x4000000
    TMRESUME = 0x8000000
    TMFAIL = 0x20000000
    TMONEPHASE = 0x40000000


XA_OK = 0
XA_RDONLY = 3


class XAResource(ABC):
    """What a transaction manager drives; every method raises XAException with an XA error code."""

    @abstractmethod
    def start(self, xid: Xid, flags: XAFlag = XAFlag.TMNOFLAGS) -> None:
        """Begin (or join, or resume) work on behalf of a branch."""

    @abstractmethod
    def end(self, xid: Xid, flags: XAFlag = XAFlag.TMSUCCESS) -> None:
        """End (or suspend) the work; TMFAIL marks the branch rollback-only."""

    @abstractmethod
    def prepare(self, xid: Xid) -> int:
        """Vote: XA_OK or XA_RDONLY; idempotent for a lost reply (XA-09)."""

    @abstractmethod
    def commit(self, xid: Xid, one_phase: bool = False) -> None:
        """Commit; interrupted by a failure it raises XA_RETRY, one-phase XAER_RMFAIL (XA-05, XA-07)."""

    @abstractmethod
    def rollback(self, xid: Xid) -> None:
        """Undo the branch."""

    @abstractmethod
    def recover(self, flags: XAFlag = XAFlag.TMSTARTRSCAN) -> Sequence[Xid]:
        """All branches in doubt, each once (XA-12)."""

    @abstractmethod
    def forget(self, xid: Xid) -> None:
        """Drop the memory of a heuristically completed branch."""

    @abstractmethod
    def is_same_rm(self, other: XAResource) -> bool:
        """Whether both stand for the same resource manager, a live and its backup included (XA-15)."""

    @abstractmethod
    def set_transaction_timeout(self, seconds: int) -> bool:
        """Ask for a time-out of branches started from now on; 0 is the default one."""

    @abstractmethod
    def get_transaction_timeout(self) -> int:
        """The time-out in seconds."""
