"""A file that grows at its end through a memory map: appending is storing into the kernel's pages, without a call.

What was appended is the operating system's when `append` returns, so SIGKILL of the writer loses nothing. A write call
per line would give the same, but it waits for the file system, and beside a broker that forces its store to disk all
the time that wait costs as much as everything else that recording does.

Room is reserved ahead, so that a full disk is an error of `append` and not a fault of the map. Until `close` the file
therefore ends in zeros, which its reader has to leave off.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

ROOM = 256 * 1024
"""Bytes reserved at a time."""


class Tape:
    """Makes the file, which must not exist; raises OSError as `os.open` does, and where no room can be had."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._map: mmap.mmap | None = None
        self._size = 0
        self._end = 0

    @property
    def closed(self) -> bool:
        """Whether nothing can be appended any more."""
        return self._fd < 0

    def append(self, data: bytes) -> None:
        """All of it, or OSError and nothing of it."""
        end = self._end + len(data)
        store = self._map
        if store is None or end > self._size:
            store = self._make_room(end)
        store[self._end : end] = data
        self._end = end

    def _make_room(self, end: int) -> mmap.mmap:
        size = -(-end // ROOM) * ROOM
        os.posix_fallocate(self._fd, 0, size)
        if self._map is None:
            self._map = mmap.mmap(self._fd, size)
        else:
            self._map.resize(size)
        self._size = size
        return self._map

    def close(self) -> None:
        """Cut the file where its content ends and force it to disk; closing twice is harmless."""
        if self.closed:
            return
        if self._map is not None:
            self._map.close()
        try:
            os.ftruncate(self._fd, self._end)
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
            self._fd = -1
