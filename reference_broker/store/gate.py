"""The gate between the broker and its transports: nothing leaves before what it relies on is durable.

Outputs leave in the order in which they were made. While a group is being written, records gather in the next one
and all outputs wait behind it, also those of work that needs no writing. So the gate is, as the table has it:

- *open*: nothing is being written; outputs without records pass at once;
- *writing*: a group is with the writer thread, the next one gathers;
- *shut*: a write failed. Nothing leaves any more, and the node has to end (HA-SS-05, disk-err).

One thread writes, so a group is as large as the time of one write lets it grow: group commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from time import sleep
from typing import Final, Protocol

from reference_broker.broker.effects import Effects, Output

from .group import Group
from .sqlite import StoreError

GATE: Final = {
    ("open", "outputs only"): "open",
    ("open", "records"): "writing",
    ("writing", "written, nothing gathered"): "open",
    ("writing", "written, more gathered"): "writing",
    ("writing", "failed"): "shut",
}

EARLY_SECONDS = 0.5
"""By how much the defect `confirm-before-commit` is early."""


class Writer(Protocol):
    """The part of a store that the gate uses."""

    def write(self, group: Group) -> None:
        """Make it durable or raise StoreError."""


class Gate:
    """See the module's text. All methods belong to the shell's thread, to which `post` brings the writer's news."""

    def __init__(
        self,
        store: Writer,
        release: Callable[[list[Output]], None],
        post: Callable[[Callable[[], None]], object],
        failed: Callable[[StoreError], None],
        *,
        early: bool = False,
    ) -> None:
        self._store = store
        self._release = release
        self._post = post
        self._failed = failed
        self._early = early
        """The defect `confirm-before-commit`."""
        self._gathered = Group()
        self._waiting: list[Output] = []
        self._behind: list[Output] = []
        """What leaves when the group that is being written is durable."""
        self._state = "open"
        self._drained: Callable[[], None] | None = None
        self._work: SimpleQueue[Group | None] = SimpleQueue()
        self._thread = Thread(target=self._write, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Rows that the next group touches so far."""
        return len(self._gathered)

    def submit(self, effects: Effects) -> None:
        """Let outputs pass once the records are durable."""
        self._gathered.add(effects.records)
        if self._early:
            self._release(effects.outputs)
        else:
            self._waiting += effects.outputs
        if self._state == "open":
            self._proceed()

    def drain(self, then: Callable[[], None]) -> None:
        """Call `then` once nothing is waiting; never after a failure."""
        self._drained = then
        if self._state == "open":
            self._proceed()

    def close(self) -> None:
        """End the writer after what it has in hand."""
        self._work.put(None)
        self._thread.join(timeout=10)

    def _proceed(self) -> None:
        if len(self._gathered):
            self._state = "writing"
            group, self._gathered = self._gathered, Group()
            self._behind, self._waiting = self._waiting, []
            self._work.put(group)
            return
        self._state = "open"
        outputs, self._waiting = self._waiting, []
        if outputs:
            self._release(outputs)
        if self._drained is not None:
            drained, self._drained = self._drained, None
            drained()

    def _written(self) -> None:
        outputs, self._behind = self._behind, []
        self._release(outputs)
        self._proceed()

    def _shut(self, error: StoreError) -> None:
        self._state = "shut"
        self._failed(error)

    def _write(self) -> None:
        while (group := self._work.get()) is not None:
            if self._early:
                sleep(EARLY_SECONDS)
            try:
                self._store.write(group)
            except StoreError as error:
                self._post(partial(self._shut, error))
                return
            self._post(self._written)
