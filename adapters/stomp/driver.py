"""A `WireDriver` over STOMP: sessions, consumers and transactions of JMS on the frames that brokers agree on.

STOMP has no sessions: they are kept here. A consumer is a subscription with `ack:client-individual`, and every
acknowledgement is explicit. Each SUBSCRIBE gets an id that was never used before, so that a MESSAGE tells by its
`subscription` whether it was sent before or after deliveries started over.

Starting over (recover, rollback): all subscriptions of the session are ended, and their unacknowledged messages given
back in the broker's way (`GiveBack`); the RECEIPT of the last UNSUBSCRIBE is where old copies end; then all are
subscribed again. Nothing new is sent before that, so the broker starts with the oldest.

Closing a consumer whose messages the session still holds would give them back at most brokers. Such a subscription is
put off: it stays, and what it is sent is not reported, until the session has settled all that it holds (MSG-29).
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

from reference_broker.broker.commands import Fate
from reference_broker.client.core_messages import to_address
from reference_broker.client.driver import (
    ConsumerSpec,
    Delivery,
    Endpoint,
    Feature,
    Identity,
    SendSpec,
    SessionSpec,
    TransportListener,
    TransportLost,
    WireDriver,
)
from reference_broker.jms import AcknowledgeMode, Code, IllegalStateException, JMSException, Message
from reference_broker.wire.stomp.headers import write_destination

from .dialect import GiveBack, StompDialect
from .frames import received, send_frame
from .transport import Headers, Pledge, StompTransport

log = logging.getLogger(__name__)

FAREWELL = 1.0
"""Seconds that close() waits for the broker to confirm."""


class Token(NamedTuple):
    """What acknowledges a delivery."""

    subscription: str
    ack: str


class _Subscription:
    """One SUBSCRIBE; `outstanding` are its unsettled deliveries, in order."""

    def __init__(self, id: str, spec: ConsumerSpec) -> None:
        self.id = id
        self.spec = spec
        self.outstanding: dict[str, None] = {}
        self.held_by_session: set[str] = set()
        """Of a closed consumer: what the session has yet to settle."""
        self.closed = False


class _Session:
    def __init__(self, spec: SessionSpec) -> None:
        self.spec = spec
        self.subscriptions: dict[str, _Subscription] = {}
        self.transaction = ""
        self.pledged: list[Token] = []
        """Acknowledged in the open transaction."""
        self.unconfirmed: list[Pledge] = []
        """Sent in the open transaction, where receipts come after its COMMIT."""


class StompDriver(WireDriver):
    """One STOMP connection; `heartbeat` in seconds is asked for in both directions."""

    def __init__(
        self,
        listener: TransportListener,
        dialect: StompDialect,
        heartbeat: float = 0.0,
        call_timeout: float | None = None,
    ) -> None:
        self._listener = listener
        self._dialect = dialect
        self._call_timeout = call_timeout
        self._transport = StompTransport(dialect, heartbeat, self._arrived, listener.lost, self._strayed)
        self._lock = threading.Lock()
        """Guards what both callers and the reader touch: sessions and subscriptions."""
        self._sessions: dict[str, _Session] = {}
        self._subscriptions: dict[str, _Subscription] = {}
        self._numbers = itertools.count(1)
        self._ended: dict[str, _Subscription] = {}
        """Subscriptions whose messages are being given back."""
        self._tag = 0
        """RabbitMQ's number of the last delivery."""
        self._connection = ""
        features = set()
        if dialect.delivery_count_header:
            features.add(Feature.DELIVERY_COUNT)
        if dialect.producer_sequence:
            features.add(Feature.PRODUCER_SEQUENCE)
        self.features = frozenset(features)

    # -- life ------------------------------------------------------------------------------------------------

    def connect(self, endpoint: Endpoint, identity: Identity, timeout: float) -> None:
        """Open the transport and complete the handshake."""
        self._connection = identity.connection
        headers = dict(self._dialect.connect_headers)
        if identity.client_id:
            headers["client-id"] = identity.client_id
        if self._dialect.connection_header:
            headers[self._dialect.connection_header] = identity.connection
        self._transport.connect(endpoint, identity.user, identity.password, headers, timeout)

    def ping(self) -> None:
        """Nothing: STOMP's own heart-beats go both ways; a transport that is gone is reported."""
        self._transport.check()

    @property
    def last_heard(self) -> float:
        """When the last byte came."""
        return self._transport.heard

    def abort(self) -> None:
        """Destroy the transport at once (VLV-05)."""
        self._transport.lose(TransportLost("the transport was destroyed"))

    def close(self) -> None:
        """Say farewell, and release everything."""
        if self._transport.usable:
            try:
                self._transport.ask("DISCONNECT", {}, timeout=FAREWELL)
            except (TransportLost, JMSException) as error:
                log.debug("the broker did not confirm the end of the connection: %s", error)
        self._transport.lose(TransportLost("the connection was closed"))
        self._transport.join()

    # -- sessions and consumers ------------------------------------------------------------------------------

    def open_session(self, spec: SessionSpec) -> None:
        """Kept here; STOMP has no sessions."""
        self._transport.check()
        with self._lock:
            self._sessions.setdefault(spec.id, _Session(spec))

    def close_session(self, session: str, delivered: Sequence[Delivery]) -> None:
        """Undo its open transaction, and give back what it holds."""
        with self._lock:
            ended = self._sessions.pop(session, None)
        if ended is None:
            return
        if ended.transaction:
            self._transport.ask("ABORT", {"transaction": ended.transaction}, timeout=self._call_timeout)
            self._forget_unconfirmed(ended)
        self._take_back(list(ended.subscriptions.values()), delivered, self._call_timeout)

    def open_consumer(self, spec: ConsumerSpec) -> None:
        """SUBSCRIBE and wait until it is made."""
        if spec.selector and not self._dialect.selectors:
            raise JMSException("this broker selects no messages over STOMP", Code.UNSUPPORTED)
        if spec.no_local and not self._dialect.no_local:
            raise JMSException("this broker knows no noLocal over STOMP", Code.UNSUPPORTED)
        session = self._session(spec.session)
        if not any(known.spec.id == spec.id and not known.closed for known in session.subscriptions.values()):
            self._subscribe(session, spec, self._call_timeout)

    def close_consumer(self, consumer: str, delivered: Sequence[Delivery]) -> None:
        """UNSUBSCRIBE, at once or when the session has settled what it holds of it."""
        with self._lock:
            found = next((s for s in self._subscriptions.values() if s.spec.id == consumer and not s.closed), None)
            if found is None:
                return
            found.closed = True
            held = {token.ack for token in _tokens(delivered)} & found.outstanding.keys()
            found.held_by_session = held
        if not held:
            self._take_back([found], delivered, self._call_timeout)

    def grant(self, consumer: str, credit: int) -> None:
        """Nothing: an acknowledgement makes room for the next message."""

    # -- messages --------------------------------------------------------------------------------------------

    def send(self, message: Message, spec: SendSpec, timeout: float | None) -> None:
        """SEND; with a receipt if asked to confirm."""
        headers, body = send_frame(message, spec, self._dialect)
        if spec.transaction and not self._dialect.receipts_in_transaction:
            self._session(spec.session).unconfirmed.append(self._transport.pledge("SEND", headers, body))
        elif spec.confirm:
            self._transport.ask("SEND", headers, body, timeout=timeout)
        else:
            self._transport.write("SEND", headers, body)

    def acknowledge(
        self,
        session: str,
        deliveries: Sequence[Delivery],
        transaction: str,
        confirm: bool,
        timeout: float | None,
    ) -> None:
        """One ACK for each; frames are handled in order, so the receipt of the last one confirms all."""
        tokens = _tokens(deliveries)
        for number, token in enumerate(tokens, 1):
            headers = {"id": token.ack}
            if transaction:
                headers["transaction"] = transaction
            if confirm and number == len(tokens):
                self._transport.ask("ACK", headers, timeout=timeout)
            else:
                self._transport.write("ACK", headers)
        kept = self._session(session)
        if transaction:
            with self._lock:
                kept.pledged += tokens
        else:
            self._settled(kept, tokens)

    def begin(self, session: str, transaction: str) -> None:
        """BEGIN and wait until it is made (TX-12)."""
        kept = self._session(session)
        self._transport.ask("BEGIN", {"transaction": transaction}, timeout=self._call_timeout)
        kept.transaction = transaction

    def commit(self, session: str, transaction: str, timeout: float | None) -> None:
        """COMMIT and wait for the confirmation."""
        kept = self._session(session)
        self._transport.ask("COMMIT", {"transaction": transaction}, timeout=timeout)
        unconfirmed, kept.unconfirmed = kept.unconfirmed, []
        for pledge in unconfirmed:
            self._transport.redeem(pledge, timeout)
        kept.transaction = ""
        with self._lock:
            tokens, kept.pledged = kept.pledged, []
        self._settled(kept, tokens)

    def rollback(self, session: str, transaction: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        """ABORT, then start over: STOMP leaves what was delivered with the client."""
        kept = self._session(session)
        if kept.transaction == transaction:
            self._transport.ask("ABORT", {"transaction": transaction}, timeout=timeout)
            kept.transaction = ""
            self._forget_unconfirmed(kept)
        with self._lock:
            kept.pledged = []
        self._start_over(kept, delivered, timeout)

    def _forget_unconfirmed(self, session: _Session) -> None:
        unconfirmed, session.unconfirmed = session.unconfirmed, []
        for pledge in unconfirmed:
            self._transport.forget(pledge)

    def recover(self, session: str, delivered: Sequence[Delivery], timeout: float | None) -> None:
        """Give all back and subscribe again."""
        self._start_over(self._session(session), delivered, timeout)

    def fate(self, transaction: str, timeout: float | None) -> Fate:
        """Nobody can be asked over STOMP."""
        return Fate.UNKNOWN

    # -- starting over -----------------------------------------------------------------------------------------

    def _start_over(self, session: _Session, delivered: Sequence[Delivery], timeout: float | None) -> None:
        with self._lock:
            old = list(session.subscriptions.values())
        if not old:
            self._listener.restarted(session.spec.id)
            return
        self._take_back(old, delivered, timeout, restarts=session.spec.id)
        for subscription in old:
            if not subscription.closed:
                self._subscribe(session, subscription.spec, timeout)

    def _take_back(
        self, old: list[_Subscription], delivered: Sequence[Delivery], timeout: float | None, restarts: str = ""
    ) -> None:
        """End these subscriptions; `restarts` names the session to report at the point where old copies end."""
        last = old[-1] if old else None
        seen = {token.ack for token in _tokens(delivered)}
        for subscription in old:
            headers = {"id": subscription.id}
            if self._dialect.names_delivered:
                headers["jms-delivered"] = ",".join(ack for ack in subscription.outstanding if ack in seen)

            def ended(subscription: _Subscription = subscription) -> None:
                if self._dialect.give_back is GiveBack.NACK:
                    self._ended[subscription.id] = subscription
                self._forget(subscription)
                if subscription is last and restarts:
                    self._listener.restarted(restarts)

            self._transport.ask("UNSUBSCRIBE", headers, timeout=timeout, at_answer=ended)
        if self._dialect.give_back is GiveBack.NACK:
            for subscription in old:
                self._refuse_all(subscription, timeout)

    def _refuse_all(self, subscription: _Subscription, timeout: float | None) -> None:
        """NACK what the ended subscription has left with the connection.

        RabbitMQ finds an ended subscription's deliveries by its id, so one of that id is made on a queue that nobody
        sends to. Refusing before UNSUBSCRIBE would have it send the same messages to the old subscription again. When
        that SUBSCRIBE is answered, the strays have been reported: they were on their way before UNSUBSCRIBE was done.
        """
        nowhere = {"durable": "false", "auto-delete": "true", "exclusive": "true"}
        queue = f"/queue/{self._connection}-nowhere-{subscription.id}"
        self._transport.ask(
            "SUBSCRIBE",
            {"id": subscription.id, "destination": queue, "ack": "client-individual", **nowhere},
            timeout=timeout,
        )
        for ack in subscription.outstanding:
            self._transport.write("NACK", {"id": ack})
        self._ended.pop(subscription.id, None)
        self._transport.ask("UNSUBSCRIBE", {"id": subscription.id, "destination": queue}, timeout=timeout)

    def _subscribe(self, session: _Session, spec: ConsumerSpec, timeout: float | None) -> None:
        subscription = _Subscription(f"s{next(self._numbers)}", spec)
        with self._lock:
            session.subscriptions[subscription.id] = self._subscriptions[subscription.id] = subscription
        window = max(spec.prefetch, 1)
        if spec.mode is not AcknowledgeMode.AUTO:
            window = self._dialect.unlimited_prefetch and max(window, self._dialect.unlimited_prefetch)
        headers: Headers = {
            **self._dialect.subscribe_headers,
            "id": subscription.id,
            "destination": write_destination(to_address(spec.destination)),
            "ack": "client-individual",
            self._dialect.prefetch_header: str(window),
        }
        if spec.selector:
            headers["selector"] = spec.selector
        if spec.no_local:
            headers["no-local"] = "true"
        try:
            self._transport.ask("SUBSCRIBE", headers, timeout=timeout)
        except JMSException:
            self._forget(subscription)
            raise

    def _settled(self, session: _Session, tokens: Sequence[Token]) -> None:
        """These are consumed; ends subscriptions whose end was put off until now."""
        due = []
        with self._lock:
            for token in tokens:
                subscription = session.subscriptions.get(token.subscription)
                if subscription is None:
                    continue
                subscription.outstanding.pop(token.ack, None)
                if subscription.closed and token.ack in subscription.held_by_session:
                    subscription.held_by_session.discard(token.ack)
                    if not subscription.held_by_session:
                        due.append(subscription)
        if due:
            self._take_back(due, (), self._call_timeout)

    def _forget(self, subscription: _Subscription) -> None:
        with self._lock:
            self._subscriptions.pop(subscription.id, None)
            session = self._sessions.get(subscription.spec.session)
            if session is not None:
                session.subscriptions.pop(subscription.id, None)

    # -- on the reader's thread ------------------------------------------------------------------------------

    def _arrived(self, headers: Headers, body: bytes) -> None:
        with self._lock:
            subscription = self._subscriptions.get(headers.get("subscription", ""))
            ack = headers.get("ack") or headers.get("message-id", "")
            self._tag = _tag_of(ack)
            if subscription is None:
                return  # sent before deliveries started over
            subscription.outstanding[ack] = None
            if subscription.closed:
                return
        message = received(headers, body, self._dialect)
        self._listener.delivered(Delivery(subscription.spec.id, Token(subscription.id, ack), message))

    def _strayed(self, id: str) -> None:
        """RabbitMQ has thrown away a MESSAGE because its subscription has ended, yet counts it as with this connection.

        It names deliveries `T_SUBSCRIPTION@@SESSION@@TAG` with consecutive tags, which is how to give this one back.
        """
        with self._lock:
            self._tag += 1
            subscription = self._ended.get(id)
            if subscription is not None:
                subscription.outstanding[f"T_{id}@@{self._transport.session}@@{self._tag}"] = None

    def _session(self, id: str) -> _Session:
        self._transport.check()
        with self._lock:
            session = self._sessions.get(id)
        if session is None:
            raise IllegalStateException(f"session {id!r} is not open on this transport")
        return session


def _tag_of(ack: str) -> int:
    tag = ack.rpartition("@@")[2]
    return int(tag) if tag.isdecimal() else 0


def _tokens(deliveries: Sequence[Delivery]) -> list[Token]:
    return [delivery.token for delivery in deliveries if isinstance(delivery.token, Token)]
