"""STOMP frames as bytes, without I/O, for versions 1.0, 1.1 and 1.2.

A frame is a command line, header lines `name:value`, an empty line, a body and a NUL. With `content-length` the body
has that many bytes and may hold NULs; without, it ends at the first one. Between frames any number of line ends may
stand: they are the heart-beats.

What the versions differ in, as data in `RULES`:

    1.0   no escapes; blanks round names and values are no part of them (its own examples have them)
    1.1   `\\n`, `\\c`, `\\\\` in names and values; every other backslash is garbage
    1.2   `\\r` too; a line may end with CR LF

CONNECT and CONNECTED are never escaped, since CONNECT comes before a version is agreed on. Of a repeated header the
first counts. Garbage raises `ProtocolError` and leaves the decoder of no further use; frames before it have been
handed out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

HEADER_LIMIT: Final = 1024 * 1024
"""Bytes of command and headers of one frame."""

UNESCAPED_COMMANDS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})


class ProtocolError(Exception):
    """The peer does not speak STOMP, or not the version agreed on."""


class Rules(NamedTuple):
    """How headers are written in one version."""

    escapes: Mapping[str, str]
    cr_ends_line: bool = False
    trims: bool = False


_ESCAPES_11: Final = {"\\": "\\\\", "\n": "\\n", ":": "\\c"}

RULES: Final[dict[str, Rules]] = {
    # There is no way to say these in 1.0; a line end inside of a value would end the header.
    "1.0": Rules({"\n": " ", "\r": " "}, cr_ends_line=True, trims=True),
    "1.1": Rules(_ESCAPES_11),
    "1.2": Rules({**_ESCAPES_11, "\r": "\\r"}, cr_ends_line=True),
}
VERSIONS: Final = tuple(RULES)

_BEFORE_VERSION: Final = Rules({}, cr_ends_line=True)
_SPECIAL: Final = {
    version: re.compile("[" + re.escape("".join(rules.escapes)) + "\0]") for version, rules in RULES.items()
}
_UNESCAPES: Final = {
    version: {written: char for char, written in rules.escapes.items()} for version, rules in RULES.items()
}
_LINE_ENDS: Final = b"\r\n"
_BACKSLASH: Final = re.compile(r"\\.?", re.DOTALL)
_HEAD_END: Final = re.compile(rb"\n\r?\n|\0")
_HEAD_END_11: Final = re.compile(rb"\n\n|\0")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class Frame(NamedTuple):
    """One frame; the body is as it came."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


def escape(text: str, version: str) -> str:
    """A header's name or value as it is written; a NUL, which no version can write, becomes U+FFFD."""
    if _SPECIAL[version].search(text) is None:
        return text
    escapes = RULES[version].escapes
    return "".join("\ufffd" if char == "\0" else escapes.get(char, char) for char in text)


def unescape(text: str, version: str) -> str:
    """Undo `escape`; ProtocolError for an escape that the version does not know."""
    known = _UNESCAPES[version]

    def one(match: re.Match[str]) -> str:
        try:
            return known[match[0]]
        except KeyError:
            raise ProtocolError(f"{match[0]!r} is no escape of STOMP {version}") from None

    return _BACKSLASH.sub(one, text)


def encode(command: str, headers: Iterable[tuple[str, str]], body: bytes, version: str) -> bytes:
    """One frame."""
    pairs = list(headers)
    # Almost no frame has anything to escape: one search over all of it, not one for each name and value.
    if command in UNESCAPED_COMMANDS or not _SPECIAL[version].search("".join(map("".join, pairs))):
        lines = "".join([f"{name}:{value}\n" for name, value in pairs])
    else:
        lines = "".join([f"{escape(name, version)}:{escape(value, version)}\n" for name, value in pairs])
    return b"%b\n%b\n%b\0" % (command.encode(), lines.encode(errors="replace"), body)


class Decoder:
    """Turns bytes as they come into frames. `version` may be set between two frames of one `feed`."""

    def __init__(self, limit: int, version: str | None = None) -> None:
        self.version = version
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        """How far the buffer is known to hold no end of what is looked for."""
        self._head: Frame | None = None
        self._start = 0
        """Where the body of `_head` starts."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; the iterator must be used up before the next call."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if self._head is None and not self._read_head():
            return None
        head = self._head
        assert head is not None
        end = self._body_end(head)
        if end is None:
            return None
        body = bytes(self._buffer[self._start : end])
        del self._buffer[: end + 1]
        self._head, self._scanned = None, 0
        return Frame(head.command, head.headers, body)  # _replace takes thrice as long

    def _read_head(self) -> bool:
        buffer = self._buffer
        if buffer and buffer[0] in _LINE_ENDS:  # asked first: lstrip copies all that is there
            del buffer[: len(buffer) - len(buffer.lstrip(_LINE_ENDS))]
            self._scanned = 0
        ending = _HEAD_END_11 if self.version == "1.1" else _HEAD_END
        match = ending.search(buffer, max(0, self._scanned - 2))
        if match is None:
            if len(buffer) > min(HEADER_LIMIT, self._limit):
                raise ProtocolError(f"{len(buffer)} bytes without an end of the headers")
            self._scanned = len(buffer)
            return False
        if match[0] == b"\0":
            raise ProtocolError("a frame without an empty line behind its headers")
        self._head = self._parse_head(bytes(buffer[: match.start()]))
        self._start = self._scanned = match.end()
        return True

    def _parse_head(self, head: bytes) -> Frame:
        try:
            text = head.decode()
        except UnicodeDecodeError:
            raise ProtocolError("headers that are not UTF-8") from None
        rules = RULES[self.version] if self.version else _BEFORE_VERSION
        lines = text.split("\n")
        if rules.cr_ends_line and "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        command = lines[0]
        if not command.isalpha() or not command.isascii() or not command.isupper():
            raise ProtocolError(f"{command[:40]!r} is no command of STOMP")
        escaped = "\\" in text and self.version not in (None, "1.0") and command not in UNESCAPED_COMMANDS
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise ProtocolError(f"{line[:40]!r} is no header: it has no colon")
            if rules.trims:
                name, value = name.strip(" "), value.strip(" ")
            if escaped:
                assert self.version is not None
                name, value = unescape(name, self.version), unescape(value, self.version)
            headers.setdefault(name, value)
        return Frame(command, headers)

    def _body_end(self, head: Frame) -> int | None:
        length = head.headers.get("content-length")
        buffer = self._buffer
        if length is None:
            end = buffer.find(b"\0", self._scanned)
            if end < 0:
                self._check(len(buffer) - self._start)
                self._scanned = len(buffer)
                return None
            return end
        if not _NUMBER.fullmatch(length.strip()):
            raise ProtocolError(f"{length[:40]!r} is no content-length")
        self._check(int(length))
        end = self._start + int(length)
        if len(buffer) <= end:
            return None
        if buffer[end] != 0:
            raise ProtocolError(f"no NUL behind the {int(length)} bytes of the body")
        return end

    def _check(self, length: int) -> None:
        if length > self._limit:
            raise ProtocolError(f"a body of {length} bytes is over the limit of {self._limit}")
