"""The broker: (link, command, now) -> records and outputs; it reads no clock, owns no socket and starts no thread.

A command is taken in whole, answered, and then queues that it touched are served. Outputs leave in the order in
which they were made, and only after the records made before them are durable (see `store.gate`): so a
confirmation is one, a delivery is marked before it leaves (D-08), and a fate that was told stays true.

A link, as the table `TRANSPORT` has it: nobody (no Connect yet), attached, or gone. A Connect with the uid of an
attached link ends that one first, with everything on it: it is the ghost of the same client (SUB-05, RCN-14). So
what a client left open on an earlier transport is rolled back and given back before it hears Connected, and what
still arrives over the old one has no effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from .checks import Refuse, check_queue, open_session
from .commands import (
    Acknowledge,
    AskFate,
    Begin,
    BrokerAnswer,
    ClientCommand,
    CloseConsumer,
    CloseSession,
    Command,
    Commit,
    Connect,
    Connected,
    Deliver,
    Disconnect,
    Done,
    Fate,
    FateIs,
    Grant,
    OpenConsumer,
    OpenSession,
    Ping,
    Recover,
    Refusal,
    Refused,
    Return,
    Rollback,
    Send,
    Settlement,
)
from .effects import Effects, HangUp, Output, Terms
from .envelope import Envelope
from .ledger import EVERY, Ledger
from .memory import Outcomes, Sequences
from .queues import Message, Queue
from .records import Advance, Forget, Record, Retire, Settle, StoredState
from .sessions import Consumer, Delivery, Link, Session, Transaction
from .turns import Line

VERSION = 1
"""Of the command vocabulary."""
LAST_SEQUENCE = 2**63 - 1
"""What every store can hold."""

TRANSPORT: Final = {
    ("nobody", "Connect"): "attached",
    ("nobody", "another command"): "gone",
    ("nobody", "lost"): "gone",
    ("attached", "Connect"): "gone",
    ("attached", "Disconnect"): "gone",
    ("attached", "same uid connects elsewhere"): "gone",
    ("attached", "lost"): "gone",
    ("gone", "another command"): "gone",
}
"""State and event to state of a link."""


class Broker:
    """The broker's whole state; see the module's text."""

    def __init__(
        self, terms: Terms, state: StoredState | None = None, now: int = 0, defects: frozenset[str] = frozenset()
    ) -> None:
        state = state or StoredState()
        self._terms = terms
        self._defects = defects
        self._records: list[Record] = []
        self._outputs: list[Output] = []
        self._ledger = Ledger(self._records.append, defects)
        self._ledger.load(state.messages, now)
        self._outcomes = Outcomes(state.committed)
        self._sequences = Sequences(state.producers)
        self._links: dict[int, Link] = {}
        self._by_uid: dict[str, Link] = {}
        self._lines: defaultdict[str, Line] = defaultdict(Line)
        self._touched: dict[str, Queue] = {}
        self._handed_out = 0

    # -- the interface of the shell ------------------------------------------------------------------------

    def handle(self, link: int, command: ClientCommand, now: int) -> None:
        """Take in one command that arrived over the link, a number that the shell gives each transport once."""
        try:
            if type(command) is Connect:
                self._connect(link, command)
            else:
                attached = self._links.get(link)
                if attached is None:
                    raise Refuse(Refusal.PROTOCOL, "the first command of a transport is Connect, and only one")
                _HANDLERS[type(command)](self, attached, command, now)
        except Refuse as refusal:
            self._say(link, Refused(request=command.request, why=refusal.why, reason=refusal.reason))
            if refusal.why is Refusal.PROTOCOL:
                self.hang_up(link, now)
        if self._touched:
            self._serve(now)

    def lost(self, link: int, now: int) -> None:
        """The transport is gone without goodbye: all that hung on it is undone at once (RC, TX-19)."""
        if "dead-client-keeps-its-messages" in self._defects:
            self._links.pop(link, None)
            return
        attached = self._links.get(link)
        if attached is not None:
            self._detach(attached)
            self._serve(now)

    def hang_up(self, link: int, now: int) -> None:
        """The wire gives the transport up: as `lost`, and it is closed behind what is due."""
        self.lost(link, now)
        self._outputs.append(Output(link, HangUp()))

    def hold_up(self, link: int) -> None:
        """The link's reader is slow: hand nothing out over it until `go_on`."""
        if link in self._links:
            self._links[link].held_up = True

    def go_on(self, link: int, now: int) -> None:
        """The link takes deliveries again."""
        attached = self._links.get(link)
        if attached is not None:
            attached.held_up = False
            for consumer in attached.consumers.values():
                self._line_up(consumer)
            self._serve(now)

    def tick(self, now: int) -> None:
        """Time has passed: expiry and scheduled delivery."""
        for queue in self._ledger.tick(now):
            self._touched[queue.name] = queue
        self._serve(now)

    def take(self) -> Effects:
        """Everything since the last call."""
        effects = Effects(self._records.copy(), self._outputs)
        self._records.clear()
        self._outputs = []
        return effects

    # -- connection ----------------------------------------------------------------------------------------

    def _connect(self, link: int, command: Connect) -> None:
        if link in self._links:
            raise Refuse(Refusal.PROTOCOL, "this transport is connected already")
        if command.version != VERSION:
            raise Refuse(Refusal.PROTOCOL, f"version {command.version} is not spoken here, only {VERSION}")
        ghost = self._by_uid.get(command.connection)
        if command.client_id is not None and any(
            other.client_id == command.client_id and other is not ghost for other in self._links.values()
        ):
            raise Refuse(Refusal.CLIENT_ID_IN_USE, f"client id {command.client_id!r} is in use by another connection")
        if ghost is not None:
            self._detach(ghost)
            self._outputs.append(Output(ghost.number, HangUp()))
        attached = Link(link, command.connection, command.client_id)
        self._links[link] = self._by_uid[command.connection] = attached
        offer, wish = self._terms.heartbeat_ms, command.heartbeat_ms
        interval = min(offer, wish) if offer and wish else offer
        terms = self._terms
        self._say(link, Connected(request=command.request, node=terms.node, epoch=terms.epoch, heartbeat_ms=interval))

    def _disconnect(self, link: Link, command: Disconnect, now: int) -> None:
        self._detach(link)
        self._done(link, command)
        self._outputs.append(Output(link.number, HangUp()))

    def _detach(self, link: Link) -> None:
        for session in link.sessions.values():
            if "prefetched-lost-with-link" in self._defects:
                for number in [n for n, out in session.deliveries.items() if not out.pledge]:
                    self._ledger.consume(session.deliveries.pop(number).message)
            self._end_session(session, seen=None)
        self._links.pop(link.number, None)
        if self._by_uid.get(link.uid) is link:
            del self._by_uid[link.uid]

    def _ping(self, link: Link, command: Ping, now: int) -> None:
        self._done(link, command)

    # -- sessions and consumers ----------------------------------------------------------------------------

    def _open_session(self, link: Link, command: OpenSession, now: int) -> None:
        known = link.sessions.get(command.session)
        if known is None:
            link.sessions[command.session] = Session(command.session, link, transacted=command.transacted)
        elif known.transacted != command.transacted:
            raise Refuse(Refusal.ILLEGAL_STATE, f"session {command.session!r} is open with other attributes")
        self._done(link, command)

    def _close_session(self, link: Link, command: CloseSession, now: int) -> None:
        session = link.sessions.pop(command.session, None)
        if session is not None:
            self._end_session(session, seen=frozenset(command.delivered))
        self._done(link, command)

    def _end_session(self, session: Session, seen: frozenset[int] | None) -> None:
        for transaction in session.transactions.values():
            self._undo(transaction)
        session.transactions.clear()
        for consumer in session.consumers.values():
            consumer.closed = True
            session.link.consumers.pop(consumer.name, None)
        for number in list(session.deliveries):
            self._give_back(session, number, seen=seen is None or number in seen)

    def _open_consumer(self, link: Link, command: OpenConsumer, now: int) -> None:
        session = open_session(link, command.session)
        check_queue(command.source)
        if command.selector:
            raise Refuse(Refusal.UNSUPPORTED, "this release of the reference broker has no message selectors")
        known = link.consumers.get(command.consumer)
        if known is None:
            queue = self._ledger.queue(command.source.name)
            known = Consumer(command.consumer, session, queue, command.credit, command.settlement)
            link.consumers[known.name] = session.consumers[known.name] = known
            self._done(link, command)
            self._line_up(known)
        elif (known.session, known.queue.name, known.settlement) == (session, command.source.name, command.settlement):
            self._done(link, command)
        else:
            raise Refuse(Refusal.ILLEGAL_STATE, f"consumer {command.consumer!r} is open with other attributes")

    def _close_consumer(self, link: Link, command: CloseConsumer, now: int) -> None:
        consumer = link.consumers.pop(command.consumer, None)
        if consumer is not None:
            consumer.closed = True
            session, seen = consumer.session, frozenset(command.delivered)
            del session.consumers[consumer.name]
            for number, out in list(session.deliveries.items()):
                if out.consumer is consumer and number not in seen and not out.pledge:
                    self._give_back(session, number, seen=False)
        self._done(link, command)

    def _grant(self, link: Link, command: Grant, now: int) -> None:
        consumer = link.consumers.get(command.consumer)
        if consumer is not None:  # it may have crossed a close
            consumer.credit += command.credit
            self._line_up(consumer)
        self._done(link, command)

    # -- sending -------------------------------------------------------------------------------------------

    def _send(self, link: Link, command: Send, now: int) -> None:
        session = open_session(link, command.session)
        check_queue(command.envelope.destination)
        producer, sequence = command.producer, command.sequence
        if not 0 <= sequence <= LAST_SEQUENCE:
            raise Refuse(Refusal.PROTOCOL, f"sequence {sequence} is out of range")
        last = self._sequences.last(producer) if producer else 0
        if command.transaction and "uncommitted-sends-visible" not in self._defects:
            transaction = self._transaction(session, command.transaction)
            if self._is_new(max(last, transaction.sequences.get(producer, 0)), sequence):
                transaction.sends.append(command.envelope)
                if producer:
                    transaction.sequences[producer] = sequence
        elif self._is_new(last, sequence):
            self._accept(command.envelope, now)
            if producer:
                self._advance(producer, sequence, stored=command.envelope.persistent)
        self._done(link, command)

    def _is_new(self, last: int, sequence: int) -> bool:
        return not sequence or sequence > last or "repeated-send-stored-again" in self._defects

    def _accept(self, envelope: Envelope, now: int) -> None:
        queue = self._ledger.accept(envelope, now)
        self._touched[queue.name] = queue

    def _advance(self, producer: str, sequence: int, *, stored: bool) -> None:
        dropped = self._sequences.advance(producer, sequence)
        if stored:
            self._records.append(Advance(producer, sequence))
        if dropped is not None:
            self._records.append(Retire(dropped))

    # -- acknowledging -------------------------------------------------------------------------------------

    def _acknowledge(self, link: Link, command: Acknowledge, now: int) -> None:
        session = open_session(link, command.session)
        numbers = command.deliveries
        for number in numbers:
            out = session.deliveries.get(number)
            if out is None or out.pledge:
                raise Refuse(Refusal.ILLEGAL_STATE, f"delivery {number} is not this session's to acknowledge")
        if command.transaction:
            transaction = self._transaction(session, command.transaction)
            for number in numbers:
                session.deliveries[number].pledge = transaction.name
            transaction.pledged.extend(numbers)
        else:
            if "acknowledge-takes-one" in self._defects:
                numbers = numbers[:1]
            elif "acknowledge-takes-prefetched" in self._defects:
                numbers = tuple(session.deliveries)
            for number in numbers:
                self._consume(session, number)
        self._done(link, command)

    def _consume(self, session: Session, number: int) -> None:
        noted = "acknowledgement-not-stored" not in self._defects
        self._ledger.consume(session.deliveries.pop(number).message, noted=noted)

    def _recover(self, link: Link, command: Recover, now: int) -> None:
        session = open_session(link, command.session)
        self._done(link, command)
        self._start_over(session, frozenset(command.delivered))

    def _return(self, link: Link, command: Return, now: int) -> None:
        session = open_session(link, command.session)
        for number in command.deliveries:
            out = session.deliveries.get(number)
            if out is None or out.pledge:
                raise Refuse(Refusal.ILLEGAL_STATE, f"delivery {number} is not this session's to give back")
        for number in command.deliveries:
            self._give_back(session, number, seen=True)
        self._done(link, command)

    def _start_over(self, session: Session, seen: frozenset[int]) -> None:
        if "recover-forgets-redelivered" in self._defects:
            seen = frozenset()
        for number, out in list(session.deliveries.items()):
            if not out.pledge:
                self._give_back(session, number, seen=number in seen)
        for consumer in session.consumers.values():
            consumer.credit = consumer.window
            self._line_up(consumer)

    def _give_back(self, session: Session, number: int, *, seen: bool) -> None:
        queue = self._ledger.give_back(session.deliveries.pop(number).message, seen=seen)
        self._touched[queue.name] = queue

    # -- transactions --------------------------------------------------------------------------------------

    def _begin(self, link: Link, command: Begin, now: int) -> None:
        self._transaction(open_session(link, command.session), command.transaction)
        self._done(link, command)

    def _transaction(self, session: Session, name: str) -> Transaction:
        transaction = session.transactions.get(name)
        if transaction is None:
            if self._outcomes.recall(name) is not None:
                raise Refuse(Refusal.ROLLED_BACK, f"transaction {name!r} is over; begin another")
            transaction = session.transactions[name] = Transaction(name)
        return transaction

    def _commit(self, link: Link, command: Commit, now: int) -> None:
        session = open_session(link, command.session)
        transaction = session.transactions.pop(command.transaction, None)
        if transaction is not None:
            self._carry_out(session, transaction, now)
        elif self._outcomes.recall(command.transaction) is not Fate.COMMITTED:
            raise Refuse(Refusal.ROLLED_BACK, f"transaction {command.transaction!r} is not open here: it is undone")
        self._done(link, command)

    def _carry_out(self, session: Session, transaction: Transaction, now: int) -> None:
        noted = len(self._records)
        for envelope in transaction.sends:
            self._accept(envelope, now)
        for producer, sequence in transaction.sequences.items():
            if producer:
                self._advance(producer, sequence, stored=True)
        for number in transaction.pledged:
            if "torn-commit" in self._defects:
                self._give_back(session, number, seen=True)
            else:
                self._consume(session, number)
        if "commit-not-stored" in self._defects:
            del self._records[noted:]
        self._records.append(Settle(transaction.name))
        self._remember(transaction.name, Fate.COMMITTED)

    def _rollback(self, link: Link, command: Rollback, now: int) -> None:
        session = open_session(link, command.session)
        transaction = session.transactions.pop(command.transaction, None)
        if transaction is not None:
            self._undo(transaction)
            for number in transaction.pledged:
                session.deliveries[number].pledge = ""
        self._done(link, command)
        self._start_over(session, frozenset(command.delivered))

    def _undo(self, transaction: Transaction) -> None:
        self._remember(transaction.name, Fate.ROLLED_BACK)
        if "rolled-back-sends-stored" in self._defects:
            for envelope in transaction.sends:
                self._ledger.store_only(envelope)

    def _remember(self, transaction: str, fate: Fate) -> None:
        self._records.extend(Forget(old) for old in self._outcomes.record(transaction, fate))

    def _ask_fate(self, link: Link, command: AskFate, now: int) -> None:
        name = command.transaction
        still_open = any(name in s.transactions for other in self._links.values() for s in other.sessions.values())
        fate = Fate.UNKNOWN if still_open else self._outcomes.presume(name)
        if fate is Fate.ROLLED_BACK:
            self._remember(name, fate)  # final: a commit that comes later is refused
        if "fate-inverted" in self._defects and fate is not Fate.UNKNOWN:
            fate = Fate.ROLLED_BACK if fate is Fate.COMMITTED else Fate.COMMITTED
        self._say(link.number, FateIs(request=command.request, fate=fate))

    # -- delivering ----------------------------------------------------------------------------------------

    def _line_up(self, consumer: Consumer) -> None:
        queue = consumer.queue
        self._lines[queue.name].join(consumer)
        self._touched[queue.name] = queue

    def _serve(self, now: int) -> None:
        queues = self._touched
        while queues:
            name, queue = queues.popitem()
            line = self._lines[name]
            while (consumer := line.turn()) is not None:
                message = self._ledger.next_for(queue, now)
                if message is None:
                    break
                line.served()
                self._deliver(consumer, message)

    def _deliver(self, consumer: Consumer, message: Message) -> None:
        session = consumer.session
        link = session.link
        link.deliveries += 1
        consumer.credit -= 1
        self._ledger.hand_out(message)
        self._say(
            link.number,
            Deliver(
                consumer=consumer.name,
                delivery=link.deliveries,
                envelope=self._as_sent(message),
                redelivered=message.seen > 0,
                delivery_count=message.seen + 1,
            ),
        )
        if consumer.settlement is Settlement.ON_SEND:
            self._ledger.consume(message)
        else:
            session.deliveries[link.deliveries] = Delivery(message, consumer)

    def _as_sent(self, message: Message) -> Envelope:
        self._handed_out += 1
        if "body-altered" in self._defects and not self._handed_out % EVERY and message.envelope.body:
            altered = message.envelope.body[:-1] + bytes([message.envelope.body[-1] ^ 1])
            return msgspec.structs.replace(message.envelope, body=altered)
        return message.envelope

    # -- answering -----------------------------------------------------------------------------------------

    def _say(self, link: int, answer: BrokerAnswer) -> None:
        self._outputs.append(Output(link, answer))

    def _done(self, link: Link, command: Command) -> None:
        if command.request:
            self._outputs.append(Output(link.number, Done(request=command.request)))


_HANDLERS: dict[type[Command], Callable[[Broker, Link, Any, int], None]] = {
    Disconnect: Broker._disconnect,
    OpenSession: Broker._open_session,
    CloseSession: Broker._close_session,
    OpenConsumer: Broker._open_consumer,
    CloseConsumer: Broker._close_consumer,
    Grant: Broker._grant,
    Send: Broker._send,
    Acknowledge: Broker._acknowledge,
    Recover: Broker._recover,
    Return: Broker._return,
    Begin: Broker._begin,
    Commit: Broker._commit,
    Rollback: Broker._rollback,
    AskFate: Broker._ask_fate,
    Ping: Broker._ping,
}
