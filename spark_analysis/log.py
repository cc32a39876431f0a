"""Writing and reading a delivery log: append-only, one JSON object a line, safe against the death of its writer.

The file has three states, told apart by its end. *Being written*: a header and whole lines of events. *Torn*: the
machine or the writer died, the last line may be cut. *Finished*: a footer with the number of events and a running
crc32 of all lines before it. Only a finished log can carry a pass.

Every event is the operating system's before ``record`` returns (see ``tape``), so SIGKILL of the writer loses nothing
that was recorded. ``fsync`` happens once, at ``close``: a log answers for the broker's crash, not for that of
the machine under the suite.
"""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Required, Self, TypedDict, Unpack

import msgspec

from spark_analysis.schema import LOG_SUFFIX, SCHEMA_VERSION, Event, Footer, Header, Kind, Outcome
from spark_analysis.tape import Tape


class LogError(Exception):
    """A delivery log cannot be written or read; the text is one sentence for a person."""


class EventFields(TypedDict, total=False):
    """What ``record`` takes: the fields of an ``Event`` without the two that the writer stamps."""

    kind: Required[Kind]
    outcome: Required[Outcome]
    op: int
    connection: str
    session: str
    mode: str
    endpoint: str
    destination: str
    message: str
    sequence: int
    digest: str
    persistent: bool
    priority: int
    expires_at_ms: int
    wall_ms: int
    redelivered: bool
    delivery_count: int
    transaction: str
    messages: tuple[str, ...]
    error: str
    code: str
    epoch: int
    fault: str
    detail: str


class _HeaderLine(msgspec.Struct):
    header: Header


class _FooterLine(msgspec.Struct, forbid_unknown_fields=True):
    footer: Footer


class Log(msgspec.Struct, frozen=True):
    """A log as read; ``problems`` name file, line and what is wrong, and are empty for a finished, sound log."""

    header: Header
    events: tuple[Event, ...]
    footer: Footer | None
    problems: tuple[str, ...]


def log_path(directory: Path, scenario: str) -> Path:
    """The file of a scenario's log: its name made safe for a file system, and unique by a checksum of it."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", scenario).strip("._")[:120]
    return directory / f"{safe or 'scenario'}-{zlib.crc32(scenario.encode()):08x}{LOG_SUFFIX}"


class LogWriter:
    """Appends one scenario's events to ``path``; any thread may record. Raises ``LogError`` in human words."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()
        self._position = 0
        self._crc = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogError(f"{path.parent}: no directory for delivery logs: {error.strerror}") from error
        try:
            self._tape = Tape(path)
        except FileExistsError:
            raise LogError(f"{path}: this delivery log exists already; a scenario's name must be unique") from None
        except OSError as error:
            raise LogError(f"{path}: the delivery log cannot be created: {error.strerror}") from error
        with self._lock:
            self._append(_HeaderLine(header))

    def record(self, **fields: Unpack[EventFields]) -> int:
        """Write one event, stamped with the monotonic clock, and return its position."""
        with self._lock:
            position = self._position
            self._append(Event(position=position, at_ns=time.monotonic_ns(), **fields))
            self._position = position + 1
        return position

    def close(self) -> None:
        """Write the footer and force the file to disk; closing twice is harmless."""
        with self._lock:
            if self._tape.closed:
                return
            try:
                self._append(_FooterLine(Footer(self._position, self._crc, time.time_ns() // 1_000_000)))
            finally:
                self._end()

    def _end(self) -> None:
        try:
            self._tape.close()
        except OSError as error:
            raise LogError(f"{self.path}: the delivery log cannot be finished: {error.strerror}") from error

    def _append(self, line: msgspec.Struct) -> None:
        if self._tape.closed:
            raise LogError(f"{self.path}: the delivery log is closed; nothing can be recorded any more")
        data = self._encoder.encode(line) + b"\n"
        try:
            self._tape.append(data)
        except OSError as error:
            raise LogError(f"{self.path}: the delivery log cannot be written: {error.strerror}") from error
        self._crc = zlib.crc32(data, self._crc)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_log(path: Path) -> Log:
    """Read a log from a file; raises ``LogError`` for what is no delivery log of this schema at all."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LogError(f"{path}: the delivery log cannot be read: {error.strerror}") from error
    return parse_log(data, str(path))


def parse_log(data: bytes, name: str) -> Log:
    """Read a log from its bytes; ``name`` is what problems and errors call it."""
    data = data.rstrip(b"\0")  # the room that a writer had reserved when it died
    if not data:
        raise LogError(f"{name}: the file is empty, not a delivery log")
    first, _, rest = data.partition(b"\n")
    header = _header(first, name)
    body, footer, problems = _split_footer(rest, name)
    events, found = _events(body, name)
    problems += found
    problems += _continuity(events, name)
    if footer is None:
        problems.append(f"{name}: no footer after {len(events)} events: the writer did not finish this log")
    else:
        problems += _footer_agrees(footer, data, len(events), name)
    return Log(header, tuple(events), footer, tuple(problems))


def _header(line: bytes, name: str) -> Header:
    try:
        raw = msgspec.json.decode(line)
    except msgspec.DecodeError:
        raise LogError(f"{name}:1: not a delivery log: the first line is not JSON") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("header"), dict):
        raise LogError(f"{name}:1: not a delivery log: the first line has no header")
    version = raw["header"].get("schema")
    if version != SCHEMA_VERSION:
        raise LogError(f"{name}:1: written with log schema {version!r}, this program reads {SCHEMA_VERSION}")
    try:
        return msgspec.convert(raw["header"], Header)
    except msgspec.ValidationError as error:
        raise LogError(f"{name}:1: the header is damaged: {error}") from None


def _split_footer(rest: bytes, name: str) -> tuple[bytes, Footer | None, list[str]]:
    """Cut the last line off if it is a footer; a footer that is cut short itself is none."""
    whole = rest.removesuffix(b"\n")
    start = whole.rfind(b"\n") + 1
    if not whole[start:].startswith(b'{"footer"') or not rest.endswith(b"\n"):
        return rest, None, []
    try:
        return rest[:start], msgspec.json.decode(whole[start:], type=_FooterLine).footer, []
    except msgspec.MsgspecError as error:
        line = whole.count(b"\n") + 2
        return rest[:start], None, [f"{name}:{line}: the footer is damaged: {error}"]


def _events(body: bytes, name: str) -> tuple[list[Event], list[str]]:
    try:
        if body.endswith(b"\n") or not body:
            return msgspec.json.Decoder(Event).decode_lines(body), []
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # read again line by line, to say which one
    events: list[Event] = []
    problems: list[str] = []
    for number, line in _numbered(body):
        try:
            events.append(msgspec.json.decode(line, type=Event))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            cut = number == body.count(b"\n") + 2
            problems.append(f"{name}:{number}: the line is cut short" if cut else f"{name}:{number}: no event: {error}")
    return events, problems


def _numbered(body: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(body.split(b"\n"), start=2):
        if line:
            yield number, line


def _continuity(events: list[Event], name: str) -> list[str]:
    """Positions count up from 0 without a gap, and every end points back at an attempt of its own kind."""
    problems = []
    expected = 0
    attempts: dict[int, Kind] = {}
    for event in events:
        if event.position != expected:
            problems.append(f"{name}: event {event.position} follows {expected - 1}: events are missing or foreign")
        expected = event.position + 1
        if event.outcome is Outcome.ATTEMPT:
            attempts[event.position] = event.kind
        if event.op >= 0 and attempts.get(event.op) is not event.kind:
            problems.append(
                f"{name}: event {event.position} ends operation {event.op}, which is no open {event.kind} attempt"
            )
    return problems


def _footer_agrees(footer: Footer, data: bytes, events: int, name: str) -> list[str]:
    problems = []
    if footer.events != events:
        problems.append(f"{name}: the footer counts {footer.events} events, the file holds {events}")
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    if zlib.crc32(data[:start]) != footer.crc:
        problems.append(f"{name}: the checksum in the footer does not match: the log was changed after it was written")
    return problems
