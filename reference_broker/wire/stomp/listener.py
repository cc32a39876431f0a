"""One STOMP connection of a node: frames in, broker commands out; broker answers in, frames out.

Mapping. A STOMP connection is one connection of the broker with one session, `SESSION`, that every subscription and
every send belongs to; a subscription is a consumer. It is known to the broker by the name of its transport, unless it
names its JMS connection in `jms-connection`: then it replaces the transport that this connection had before.

The connection's life is the table `LIFE`: CONNECT (or STOMP) comes first, then anything but a second one, until
DISCONNECT or an ERROR. After an ERROR the transport is closed, as the specification wants it: errors are final. The
ERROR carries `receipt-id` if the offending frame asked for a receipt, and `refusal` with the broker's own word for it.

Receipts. A RECEIPT leaves when the broker has answered Done, that is when the effect is durable (SND-01). A frame
without effect on the broker becomes Ping, so that its RECEIPT keeps its place.

Deliveries. `ack:auto` is Settlement.ON_SEND. Otherwise a delivery is *with the client* until ACK, NACK, the end of its
subscription or of the connection. What the client has been sent it may have seen: NACK and UNSUBSCRIBE give it back
flagged redelivered; an UNSUBSCRIBE that lists in `jms-delivered` what its application has seen gives only that back
flagged. `client` acknowledges all of the subscription up to the message named; that is computed here.

Transactions are kept here until COMMIT and then carried out by the broker in one piece. The specification does not tie
deliveries to transactions: after ABORT what it had acknowledged is with the client again, and is not sent again unless
the client subscribes anew. Sends of a transaction reach the broker with its COMMIT.

Credit. `prefetch-count` (RabbitMQ's name) or `activemq.prefetchSize` is how many messages may be with the client; 0 is
no limit, absent is `DEFAULT_PREFETCH`. Each one acknowledged, in a transaction or not, makes room for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reference_broker.broker.commands import (
    BrokerAnswer,
    ClientCommand,
    Connect,
    Connected,
    Deliver,
    Disconnect,
    Done,
    Grant,
    OpenConsumer,
    OpenSession,
    Ping,
    Refused,
    Send,
    Settlement,
)
from reference_broker.wire.listener import Welcome

from . import headers as jms
from .codec import VERSIONS, Decoder, Frame, ProtocolError, encode
from .subscriptions import ACK_MODES, AUTO, Subscriptions
from .transactions import Transaction

SESSION: Final = "stomp"
DEFAULT_PREFETCH: Final = 1000
NO_LIMIT: Final = 1 << 40

LIFE: Final = {
    ("nobody", "CONNECT"): "connecting",
    ("nobody", "another frame"): "ended",
    ("connecting", "Connected"): "connected",
    ("connecting", "Refused"): "ended",
    ("connecting", "CONNECT"): "ended",
    ("connecting", "another frame"): "connecting",
    ("connecting", "DISCONNECT"): "leaving",
    ("connected", "CONNECT"): "ended",
    ("connected", "another frame"): "connected",
    ("connected", "DISCONNECT"): "leaving",
    ("connected", "Refused"): "ended",
    ("leaving", "Connected"): "leaving",
    ("leaving", "Refused"): "ended",
}
"""State and event to state. A client may send on before it has seen CONNECTED; garbage ends every state."""


class StompConnection:
    """One accepted STOMP transport; a `WireConnection`."""

    def __init__(self, welcome: Welcome) -> None:
        self.farewell: bytes | None = None
        self.peer_interval_ms = 0
        self.own_interval_ms = 0
        self._welcome = welcome
        self._decoder = Decoder(welcome.frame_limit)
        self._version = "1.0"
        self._state = "nobody"
        self._requests = 0
        self._receipts: dict[int, str] = {}
        """Of requests that the broker has not answered yet."""
        self._transactions: dict[str, Transaction] = {}
        self._transaction_number = 0
        self._subscriptions = Subscriptions(welcome.link)

    # -- the shell's side ------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[ClientCommand]:
        """Commands of the frames that are complete now; garbage ends the transport with an ERROR."""
        commands: list[ClientCommand] = []
        if self.farewell is not None:
            return commands
        frame: Frame | None = None
        try:
            for frame in self._decoder.feed(data):
                commands += self._frame(frame)
                frame = None  # noqa: PLW2901 - what fails from here on is the next frame, which is not known
        except (ProtocolError, jms.HeaderError) as error:
            self._state = "ended"
            self.farewell = self._error(str(error), frame)
        return commands

    def send(self, answers: Sequence[BrokerAnswer]) -> bytes:
        """The frames for these answers."""
        frames: list[bytes] = []
        for answer in answers:
            if self.farewell is not None and type(answer) is not Done:
                continue
            if type(answer) is Deliver:
                frames.append(self._message(answer))
            elif type(answer) is Done:
                if answer.request in self._receipts:
                    frames.append(self._plain("RECEIPT", {"receipt-id": self._receipts.pop(answer.request)}))
            elif type(answer) is Connected:
                frames.append(self._connected(answer))
            elif type(answer) is Refused:
                frames.append(self._refused(answer))
        return b"".join(frames)

    def sign_of_life(self) -> bytes:
        """A line end."""
        return b"\n"

    # -- frames in -------------------------------------------------------------------------------------------

    def _frame(self, frame: Frame) -> list[ClientCommand]:
        command = "CONNECT" if frame.command == "STOMP" else frame.command
        if self._state == "leaving":
            return []  # the client has said that it sends nothing more
        event = command if command in ("CONNECT", "DISCONNECT") else "another frame"
        following = LIFE.get((self._state, event), "ended")
        if following == "ended":
            if self._state == "nobody":
                raise ProtocolError(f"the first frame is CONNECT or STOMP, not {frame.command}")
            raise ProtocolError("this connection is connected already")
        self._state = following
        handler = _HANDLERS.get(command)
        if handler is None:
            raise ProtocolError(f"{frame.command} is no command of a client in STOMP {self._version}")
        return handler(self, frame)

    def _request(self, frame: Frame) -> int:
        """The number under which the receipt that the frame asks for is remembered; 0 if it asks for none."""
        receipt = frame.headers.get("receipt")
        if receipt is None:
            return 0
        self._requests += 1
        self._receipts[self._requests] = receipt
        return self._requests

    def _confirm(self, frame: Frame) -> list[ClientCommand]:
        """The receipt, if wanted, of a frame that the broker has nothing to do with."""
        request = self._request(frame)
        return [Ping(request=request)] if request else []

    def _connect(self, frame: Frame) -> list[ClientCommand]:
        headers = frame.headers
        accepted = [version.strip() for version in headers.get("accept-version", "1.0").split(",")]
        common = [version for version in VERSIONS if version in accepted]
        if not common:
            raise ProtocolError(f"none of the versions {accepted} is spoken here, only {', '.join(VERSIONS)}")
        self._version = self._decoder.version = common[-1]
        can, wants = _heart_beat(headers.get("heart-beat", "0,0"))
        ours = self._welcome.heartbeat_ms
        self.peer_interval_ms = max(can, ours) if can and ours else 0
        self._own_interval = max(ours, wants) if wants and ours else 0
        self._requests += 1
        return [
            Connect(
                request=self._requests,
                connection=headers.get("jms-connection", self._welcome.link),
                client_id=headers.get("client-id"),
                user=headers.get("login"),
                password=headers.get("passcode"),
                heartbeat_ms=self.peer_interval_ms,
            ),
            OpenSession(session=SESSION),
        ]

    def _disconnect(self, frame: Frame) -> list[ClientCommand]:
        return [Disconnect(request=self._request(frame))]

    def _send(self, frame: Frame) -> list[ClientCommand]:
        headers = frame.headers
        envelope = jms.read(headers, frame.body)
        address = envelope.destination
        if not address.name:
            raise ProtocolError("SEND needs a destination")
        transaction = self._named_transaction(frame)
        producer, sequence = headers.get("jms-producer", ""), headers.get("jms-sequence", "0")
        if not sequence.isdecimal():
            raise jms.HeaderError(f"jms-sequence:{sequence[:40]!r} is no number")
        send = Send(session=SESSION, envelope=envelope, producer=producer, sequence=int(sequence))
        if transaction is not None:
            if address.topic or address.temporary:
                raise ProtocolError(f"there is no sending to {headers['destination']!r} here, only to queues")
            transaction.send(send)
            return self._confirm(frame)
        send.request = self._request(frame)
        return [send]

    def _subscribe(self, frame: Frame) -> list[ClientCommand]:
        headers = frame.headers
        destination = _need(frame, "destination")
        given = headers.get("id") if self._version == "1.0" else _need(frame, "id")
        mode = headers.get("ack", AUTO)
        if mode not in ACK_MODES or (mode == "client-individual" and self._version == "1.0"):
            raise ProtocolError(f"ack:{mode[:40]!r} is no way to acknowledge in STOMP {self._version}")
        address = jms.parse_destination(destination)
        prefetch = headers.get("prefetch-count", headers.get("activemq.prefetchSize", str(DEFAULT_PREFETCH)))
        if not prefetch.isdecimal():
            raise ProtocolError(f"a prefetch of {prefetch[:40]!r} is no number")
        window = NO_LIMIT if mode == AUTO else int(prefetch) or NO_LIMIT
        subscription = self._subscriptions.open(given, destination, mode, limited=window != NO_LIMIT)
        return [
            OpenConsumer(
                request=self._request(frame),
                session=SESSION,
                consumer=subscription.consumer,
                source=address,
                selector=headers.get("selector"),
                no_local=headers.get("no-local") == "true",
                credit=window,
                settlement=Settlement.ON_SEND if mode == AUTO else Settlement.EXPLICIT,
            )
        ]

    def _unsubscribe(self, frame: Frame) -> list[ClientCommand]:
        given = frame.headers.get("id")
        if given is None:
            given = _need(frame, "destination" if self._version == "1.0" else "id")
        subscription = self._subscriptions.close(given)
        seen = frame.headers.get("jms-delivered")
        if seen is not None:
            self._subscriptions.unseen_but(subscription, seen.split(","))
        return subscription.end(SESSION, self._request(frame))

    def _ack(self, frame: Frame) -> list[ClientCommand]:
        return self._settle(frame, positive=True)

    def _nack(self, frame: Frame) -> list[ClientCommand]:
        if self._version == "1.0":
            raise ProtocolError("NACK is no command of STOMP 1.0")
        return self._settle(frame, positive=False)

    def _settle(self, frame: Frame, *, positive: bool) -> list[ClientCommand]:
        name = _need(frame, "id" if self._version == "1.2" else "message-id")
        transaction = self._named_transaction(frame)
        subscription, deliveries = self._subscriptions.named(name)
        held = Transaction("")
        (held if transaction is None else transaction).settle(subscription, deliveries, positive=positive)
        commands: list[ClientCommand] = []
        if transaction is None:
            commands += held.settlements(SESSION, self._request(frame), "")
            self._subscriptions.forget(deliveries)
        else:
            commands += self._confirm(frame)
        if subscription.limited:
            commands.append(Grant(consumer=subscription.consumer, credit=len(deliveries)))
        return commands

    # -- transactions ----------------------------------------------------------------------------------------

    def _begin(self, frame: Frame) -> list[ClientCommand]:
        name = _need(frame, "transaction")
        if name in self._transactions:
            raise ProtocolError(f"transaction {name[:80]!r} has begun already")
        self._transaction_number += 1
        self._transactions[name] = Transaction(f"{self._welcome.link}.t{self._transaction_number}")
        return self._confirm(frame)

    def _commit(self, frame: Frame) -> list[ClientCommand]:
        transaction = self._end_transaction(frame)
        self._subscriptions.forget(transaction.settled)
        return transaction.carry_out(SESSION, self._request(frame)) or self._confirm(frame)

    def _abort(self, frame: Frame) -> list[ClientCommand]:
        transaction = self._end_transaction(frame)
        return [*transaction.undo(SESSION), *self._confirm(frame)]

    def _end_transaction(self, frame: Frame) -> Transaction:
        name = _need(frame, "transaction")
        if name not in self._transactions:
            raise ProtocolError(f"transaction {name[:80]!r} has not begun")
        return self._transactions.pop(name)

    def _named_transaction(self, frame: Frame) -> Transaction | None:
        name = frame.headers.get("transaction")
        if name is None:
            return None
        if name not in self._transactions:
            raise ProtocolError(f"transaction {name[:80]!r} has not begun")
        return self._transactions[name]

    # -- frames out ------------------------------------------------------------------------------------------

    def _plain(self, command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
        return encode(command, headers.items(), body, self._version)

    def _connected(self, answer: Connected) -> bytes:
        self._state = LIFE[self._state, "Connected"]
        self.own_interval_ms = self._own_interval
        headers = {
            "version": self._version,
            "server": f"jms-conformance-reference/{answer.node}",
            "session": self._welcome.link,
            "heart-beat": f"{self._welcome.heartbeat_ms},{self._welcome.heartbeat_ms}",
            "epoch": str(answer.epoch),
        }
        return self._plain("CONNECTED", headers)

    def _refused(self, answer: Refused) -> bytes:
        self._state = "ended"
        self.farewell = b""
        headers = {"message": answer.reason, "refusal": answer.why.value}
        if answer.request in self._receipts:
            headers["receipt-id"] = self._receipts.pop(answer.request)
        return self._plain("ERROR", headers)

    def _error(self, reason: str, frame: Frame | None) -> bytes:
        headers = {"message": reason, "refusal": "protocol"}
        if frame is not None and "receipt" in frame.headers:
            headers["receipt-id"] = frame.headers["receipt"]
        return self._plain("ERROR", headers)

    def _message(self, answer: Deliver) -> bytes:
        subscription = self._subscriptions.delivered(answer.consumer, answer.delivery)
        if subscription is None:
            return b""  # it crossed the UNSUBSCRIBE, and has gone back unseen
        envelope = answer.envelope
        name = self._subscriptions.name_of(answer.delivery)
        headers = jms.write(envelope)
        headers["destination"] = jms.write_destination(envelope.destination)
        headers["message-id"] = name
        if subscription.id is not None:
            headers["subscription"] = subscription.id
        if self._version == "1.2" and subscription.mode != AUTO:
            headers["ack"] = name
        if answer.redelivered:
            headers["redelivered"] = "true"
        headers["delivery-count"] = str(answer.delivery_count)
        headers["content-length"] = str(len(envelope.body))
        return self._plain("MESSAGE", headers, envelope.body)


def _need(frame: Frame, name: str) -> str:
    try:
        return frame.headers[name]
    except KeyError:
        raise ProtocolError(f"{frame.command} needs the header {name!r}") from None


def _heart_beat(text: str) -> tuple[int, int]:
    can, comma, wants = (part.strip() for part in text.partition(","))
    if not comma or not can.isdecimal() or not wants.isdecimal():
        raise ProtocolError(f"heart-beat:{text[:40]!r} is no pair of milliseconds")
    return int(can), int(wants)


_HANDLERS: Final = {
    "CONNECT": StompConnection._connect,
    "DISCONNECT": StompConnection._disconnect,
    "SEND": StompConnection._send,
    "SUBSCRIBE": StompConnection._subscribe,
    "UNSUBSCRIBE": StompConnection._unsubscribe,
    "ACK": StompConnection._ack,
    "NACK": StompConnection._nack,
    "BEGIN": StompConnection._begin,
    "COMMIT": StompConnection._commit,
    "ABORT": StompConnection._abort,
}
