"""Live and backup on one directory: who holds the lock serves, the others wait for it (HA-SS-01 ... HA-SS-10).

The lock is an advisory lock of the operating system on `live.lock`. The kernel takes it from a process that dies,
however it dies, and leaves it with one that is paused; so no second node is ever live, and a lease is not
needed (D-10, HA-SS-04). It works across hosts only on file systems whose locks do.

The same file says in its content how the last live ended. A live that is stopped in order writes `stopped`, unless
it was told to hand over (`failover_on_shutdown`); a node that was waiting then goes on waiting until some node was
live again. A node that starts does not look at it: starting it was somebody's decision.

Roles, as `ROLES` has them: a node is *starting*, *waiting* (backup), *loading* (it holds the lock and reads the
store), *serving* (live), *stopping* and *stopped*.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec

LOCK_FILE = "live.lock"
POLL_SECONDS = 0.02
"""How often a waiting node tries."""

ROLES: Final = {
    ("starting", "lock taken"): "loading",
    ("starting", "lock held elsewhere"): "waiting",
    ("starting", "stop"): "stopped",
    ("waiting", "lock taken"): "loading",
    ("waiting", "stop"): "stopped",
    ("loading", "loaded"): "serving",
    ("loading", "store failed"): "stopped",
    ("serving", "stop"): "stopping",
    ("serving", "store failed"): "stopped",
    ("stopping", "drained"): "stopped",
    ("stopping", "store failed"): "stopped",
}
"""Role and event to role; nothing else happens to a node."""


class LockError(Exception):
    """The lock file cannot be used."""


class LiveNote(msgspec.Struct):
    """What the lock file says."""

    state: str = "live"
    """`live` or `stopped`."""
    node: str = ""
    pid: int = 0


class Role:
    """The role of a node; `happen` takes one step in the table."""

    def __init__(self) -> None:
        self.name = "starting"

    def happen(self, event: str) -> str:
        """The role after the event; KeyError means that the shell is wrong."""
        self.name = ROLES[self.name, event]
        return self.name


class StoreLock:
    """The lock of a store's directory."""

    def __init__(self, directory: Path, node: str) -> None:
        self._path = directory / LOCK_FILE
        self._node = node
        self._handle: int | None = None
        self._held = False

    def open(self) -> None:
        """Open the file; LockError if the directory is of no use."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LockError(f"store directory {self._path.parent} cannot be used: {error.strerror}") from error

    def try_take(self) -> bool:
        """Take the lock if it is free, whatever the note says: for a node that starts."""
        if self._try():
            self._write(LiveNote(node=self._node, pid=os.getpid()))
            return True
        return False

    def try_take_over(self) -> bool:
        """Take the lock if it is free and the last live did not stop in order: for a node that waits."""
        if self.note().state == "stopped" or not self._try():
            return False
        if self.note().state == "stopped":  # written between the look and the lock
            self._unlock()
            return False
        self._write(LiveNote(node=self._node, pid=os.getpid()))
        return True

    def note(self) -> LiveNote:
        """What the file says; a torn note counts as that of a live that died."""
        assert self._handle is not None
        try:
            return msgspec.json.decode(os.pread(self._handle, 4096, 0), type=LiveNote)
        except msgspec.MsgspecError:
            return LiveNote()

    def release(self, *, hand_over: bool) -> None:
        """Give the lock back after an orderly end; `hand_over` lets a waiting node take it (HA-SS-10)."""
        if self._held:
            if not hand_over:
                self._write(LiveNote(state="stopped", node=self._node, pid=os.getpid()))
            self._unlock()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _try(self) -> bool:
        assert self._handle is not None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise LockError(f"{self._path} cannot be locked: {error.strerror}") from error
        self._held = True
        return True

    def _unlock(self) -> None:
        assert self._handle is not None
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._held = False

    def _write(self, note: LiveNote) -> None:
        assert self._handle is not None
        text = msgspec.json.encode(note)
        os.pwrite(self._handle, text, 0)
        os.ftruncate(self._handle, len(text))
