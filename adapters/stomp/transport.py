"""One stomp.py connection as blocking requests: frames with receipts, deliveries reported, losses told apart.

stomp.py is kept from everything that the failover engine decides: it connects once, to one address, and its own
time-out on missing heart-beats never strikes, since silence is judged by the engine (DET-01). Heart-beats themselves go
both ways.

A waiting request ends with its RECEIPT, with the ERROR that names it, or with the loss of the transport. An ERROR that
names none (RabbitMQ's never do, and close the connection) answers the oldest waiting request, because frames are
handled in order; one that announces the end of the transport answers nothing.
"""

from __future__ import annotations

import itertools
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import stomp
import stomp.exception

from reference_broker.broker.commands import Refusal
from reference_broker.client.core_driver import REFUSALS
from reference_broker.client.driver import CallTimedOut, Endpoint, NotServing, TransportLost
from reference_broker.jms import JMSException, JMSSecurityException

from .dialect import StompDialect

log = logging.getLogger(__name__)
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # what it complains of, the driver reports

NEVER = 1e6
"""Factor of the heart-beat interval after which stomp.py itself would give up."""

Headers = dict[str, str]


class _Request:
    """Something that waits for its answer; `at_answer` runs on the reader's thread, in the place of the answer."""

    def __init__(self, at_answer: Callable[[], None] | None = None) -> None:
        self.done = threading.Event()
        self.answered = False
        self.error: Exception | None = None
        self.at_answer = at_answer
        self.receipt = ""
        self.pledged = False
        """Nobody waits for it yet."""


class Pledge(NamedTuple):
    """A frame whose RECEIPT is waited for later."""

    command: str
    request: _Request


class StompTransport(stomp.ConnectionListener):  # type: ignore[misc]
    """One transport; what it reports, it reports on the reader's thread.

    `delivered` gets each MESSAGE, `lost` the end, `stray` the id of a subscription that a message came too late for.
    """

    def __init__(
        self,
        dialect: StompDialect,
        heartbeat: float,
        delivered: Callable[[Headers, bytes], None],
        lost: Callable[[TransportLost], None],
        stray: Callable[[str], None],
    ) -> None:
        self._dialect = dialect
        self._beat = round(heartbeat * 1000)
        self._delivered = delivered
        self._report_lost = lost
        self._stray = stray
        self._connection: Any = None
        self._reader: threading.Thread | None = None
        self._state = threading.Lock()
        self._requests: dict[str, _Request] = {}
        self._handshake = _Request()
        self._numbers = itertools.count(1)
        self._cause: TransportLost | None = None
        self._mid_frame = False
        self.heard = time.monotonic()
        self.session = ""
        """The broker's name for this connection."""

    # -- life ------------------------------------------------------------------------------------------------

    def connect(
        self, endpoint: Endpoint, user: str | None, password: str | None, headers: Headers, timeout: float
    ) -> None:
        """Open the socket and shake hands within `timeout` seconds (DET-14)."""
        until = time.monotonic() + timeout
        connection = stomp.Connection12(
            [(endpoint.host, endpoint.port)],
            prefer_localhost=False,
            try_loopback_connect=False,
            reconnect_sleep_initial=0,
            reconnect_sleep_jitter=0,
            reconnect_attempts_max=1,
            timeout=timeout,
            heartbeats=(self._beat, self._beat),
            heart_beat_receive_scale=NEVER,
            vhost=self._dialect.host or None,
            auto_decode=False,
            auto_content_length=False,
        )
        transport = connection.transport
        transport.override_threading(self._start_reader)
        receive = transport.receive
        transport.receive = lambda: self._receive(transport, receive)
        connection.set_listener("driver", self)
        with self._state:
            self._connection = connection
        try:
            connection.connect(user, password, wait=False, headers=headers)
        except (OSError, stomp.exception.StompException) as error:
            self.lose(TransportLost(f"cannot connect to {endpoint}: {error or type(error).__name__}"))
        if self._cause is not None:  # it came before the socket was there
            self._cut()
        self.check()
        if not self._handshake.done.wait(max(0.0, until - time.monotonic())):
            self.lose(TransportLost(f"{endpoint} did not complete the handshake within {timeout:g} s"))
        if self._handshake.error is not None:
            self.lose(TransportLost("the handshake was refused"))
            raise self._handshake.error
        self.check()

    def lose(self, cause: TransportLost) -> None:
        """The transport is of no further use: end its reader and all who wait; the first cause stays."""
        with self._state:
            if self._cause is not None:
                return
            self._cause = cause
            requests, self._requests = self._requests, {}
        self._cut()
        for request in (*requests.values(), self._handshake):
            request.done.set()

    def join(self) -> None:
        """Wait for the threads of a lost transport to end."""
        beats = getattr(self._connection, "heartbeat_thread", None)
        for thread in (self._reader, beats):
            if thread is not None and thread is not threading.current_thread():
                thread.join()

    def check(self) -> None:
        """TransportLost if it is."""
        if self._cause is not None:
            raise TransportLost(*self._cause.args)

    @property
    def usable(self) -> bool:
        """Connected and not lost."""
        return self._cause is None and self._reader is not None

    # -- requests --------------------------------------------------------------------------------------------

    def write(self, command: str, headers: Headers, body: bytes = b"") -> None:
        """Write a frame that wants no answer."""
        self.check()
        try:
            self._connection.send_frame(command, dict(headers), body)
        except (OSError, AttributeError, stomp.exception.StompException) as error:
            # AttributeError: stomp.py sets its socket to None on another thread when the connection ends.
            self.lose(TransportLost(f"the transport broke: {error or type(error).__name__}"))
        self.check()

    def ask(
        self,
        command: str,
        headers: Headers,
        body: bytes = b"",
        *,
        timeout: float | None,
        at_answer: Callable[[], None] | None = None,
    ) -> None:
        """Write a frame and wait for its RECEIPT; JMSException if an ERROR comes instead."""
        self._finish(self._begin(_Request(at_answer), command, headers, body), command, timeout)

    def pledge(self, command: str, headers: Headers, body: bytes = b"") -> Pledge:
        """Write a frame whose RECEIPT comes when a later one has been answered: to be `redeem`ed then, or forgotten."""
        request = _Request()
        request.pledged = True
        return Pledge(command, self._begin(request, command, headers, body))

    def redeem(self, pledge: Pledge, timeout: float | None) -> None:
        """Wait for what was promised; raises as `ask` does."""
        self._finish(pledge.request, pledge.command, timeout)

    def forget(self, pledge: Pledge) -> None:
        """Its RECEIPT will not come, or does not matter any more."""
        with self._state:
            self._requests.pop(pledge.request.receipt, None)

    def _begin(self, request: _Request, command: str, headers: Headers, body: bytes) -> _Request:
        request.receipt = f"r{next(self._numbers)}"
        with self._state:
            if self._cause is None:
                self._requests[request.receipt] = request
        self.write(command, {**headers, "receipt": request.receipt}, body)
        return request

    def _finish(self, request: _Request, command: str, timeout: float | None) -> None:
        if not request.done.wait(timeout):
            # The entry stays, so that the late receipt finds its own request and no other (DET-13).
            raise CallTimedOut(f"{command} was not answered within {timeout:g} s")
        if request.error is not None:
            raise request.error
        if not request.answered:
            self.check()

    # -- what stomp.py reports, on the reader's thread -----------------------------------------------------------

    def on_connected(self, frame: Any) -> None:
        """The handshake is complete."""
        self.session = frame.headers.get("session", "")
        self._handshake.done.set()

    def on_receipt(self, frame: Any) -> None:
        """A request is answered."""
        with self._state:
            request = self._requests.pop(frame.headers.get("receipt-id", ""), None)
        if request is not None:
            request.answered = True
            if request.at_answer is not None:
                request.at_answer()
            request.done.set()

    def on_message(self, frame: Any) -> None:
        """A delivery."""
        try:
            self._delivered(frame.headers, frame.body or b"")
        except Exception as error:
            log.exception("a delivery failed in an unexpected way")
            self.lose(TransportLost(f"the reader failed: {error}"))

    def on_error(self, frame: Any) -> None:
        """The broker complains: of a request, of the handshake, or of the transport as a whole."""
        reason = _reason(frame)
        refusal = frame.headers.get("refusal", "")
        if not self._handshake.done.is_set():
            self._handshake.error = self._refused(reason, refusal)
            self._handshake.done.set()
            return
        if self._dialect.stray and (stray := re.search(self._dialect.stray, reason)):
            self._stray(stray[1])
            return
        with self._state:
            receipt = frame.headers.get("receipt-id")
            if receipt is None and not re.search(self._dialect.closing, reason):
                receipt = next((name for name, waiting in self._requests.items() if not waiting.pledged), None)
            request = self._requests.pop(receipt, None) if receipt is not None else None
        if request is None:
            log.info("the broker complained: %s", reason)
            return
        request.error = _refusal(reason, refusal)
        request.done.set()

    def _refused(self, reason: str, refusal: str) -> Exception:
        if refusal:
            return _refusal(reason, refusal)
        if re.search(self._dialect.refused_credentials, reason):
            return JMSSecurityException(reason)
        if re.search(self._dialect.not_serving, reason):
            return NotServing(reason)
        return TransportLost(f"the broker refused the connection: {reason}")

    def _start_reader(self, loop: Callable[[], None]) -> threading.Thread:
        self._reader = threading.Thread(target=self._read, args=(loop,), name="stomp reader", daemon=True)
        self._reader.start()
        return self._reader

    def _read(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        finally:
            self.lose(TransportLost("the broker closed the transport"))
            assert self._cause is not None
            self._report_lost(self._cause)

    def _receive(self, transport: Any, receive: Callable[[], bytes | None]) -> bytes | None:
        """Bytes for stomp.py's parser, which drops a frame with two or more heart-beats right before it.

        Heart-beats are line ends between frames. The parser stands between two frames when its buffer is empty and the
        bytes that it got last were not the start of a frame.
        """
        between = not self._mid_frame and not transport._BaseTransport__recvbuf
        data = receive()
        if not data:
            return data
        self.heard = time.monotonic()
        if between:
            frame = data.lstrip(b"\r\n")
            if not frame:
                return b"\n"
            data = frame
        self._mid_frame = b"\0" not in data
        return data

    def _cut(self) -> None:
        with self._state:
            connection = self._connection
        open_socket = None if connection is None else connection.transport.socket
        if open_socket is not None:
            try:
                open_socket.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                log.debug("the socket was gone already: %s", error)


def _reason(frame: Any) -> str:
    detail = (frame.body or b"").decode(errors="replace").strip()
    first_line = detail.splitlines()[0] if detail else ""
    return ": ".join(part for part in (frame.headers.get("message", ""), first_line) if part) or "ERROR"


def _refusal(reason: str, refusal: str) -> Exception:
    if refusal in Refusal.__members__.values():
        return REFUSALS[Refusal(refusal)](reason)
    return JMSException(reason)
