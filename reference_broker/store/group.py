"""A group of records that is made durable in one step; what undoes itself within it is never written."""

from __future__ import annotations

from collections.abc import Iterable

from reference_broker.broker.envelope import Envelope
from reference_broker.broker.records import Advance, Forget, Mark, Put, Record, Remove, Retire, Settle


class Group:
    """The net effect of records in the order in which they came."""

    def __init__(self) -> None:
        self.puts: dict[int, Envelope] = {}
        self.marks: set[int] = set()
        self.removes: set[int] = set()
        self.producers: dict[str, int] = {}
        self.retired: set[str] = set()
        self.settled: dict[str, None] = {}
        self.forgotten: set[str] = set()

    def add(self, records: Iterable[Record]) -> None:
        """Take in more; the most frequent kinds first."""
        for record in records:
            if isinstance(record, Put):
                self.puts[record.id] = record.envelope
            elif isinstance(record, Mark):
                self.marks.add(record.id)
            elif isinstance(record, Remove):
                self._remove(record.id)
            else:
                self._remember(record)

    def _remove(self, number: int) -> None:
        self.marks.discard(number)
        if self.puts.pop(number, None) is None:
            self.removes.add(number)

    def _remember(self, record: Record) -> None:
        match record:
            case Advance(producer=producer, sequence=sequence):
                self.producers[producer] = sequence
                self.retired.discard(producer)
            case Retire(producer=producer):
                self.retired.add(producer)
                self.producers.pop(producer, None)
            case Settle(transaction=transaction):
                self.settled[transaction] = None
            case Forget(transaction=transaction):
                self.settled.pop(transaction, None)
                self.forgotten.add(transaction)

    def __len__(self) -> int:
        """How many rows it touches."""
        memory = len(self.producers) + len(self.retired) + len(self.settled) + len(self.forgotten)
        return len(self.puts) + len(self.marks) + len(self.removes) + memory
