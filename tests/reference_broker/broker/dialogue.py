"""A test's voice towards the engine: says commands, hears answers, keeps records as a store would."""

from __future__ import annotations

from reference_broker.broker.commands import (
    Acknowledge,
    Answer,
    ClientCommand,
    Connect,
    Deliver,
    OpenConsumer,
    OpenSession,
    Refused,
    Send,
)
from reference_broker.broker.effects import HangUp, Terms
from reference_broker.broker.engine import Broker
from reference_broker.broker.envelope import Address, Envelope
from reference_broker.broker.records import StoredMessage, StoredState
from reference_broker.store.group import Group


class Disk:
    """What a store would hold after each group, without a file."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[bool, Envelope]] = {}
        self.producers: dict[str, int] = {}
        self.committed: dict[str, None] = {}

    def write(self, group: Group) -> None:
        for number, envelope in group.puts.items():
            self.messages[number] = (number in group.marks, envelope)
        for number in group.marks - group.puts.keys():
            self.messages[number] = (True, self.messages[number][1])
        for number in group.removes:
            self.messages.pop(number, None)
        self.producers |= group.producers
        for name in group.retired:
            self.producers.pop(name, None)
        self.committed |= group.settled
        for name in group.forgotten:
            self.committed.pop(name, None)

    def state(self) -> StoredState:
        return StoredState(
            tuple(StoredMessage(n, m, e) for n, (m, e) in sorted(self.messages.items())),
            tuple(self.producers.items()),
            tuple(self.committed),
        )


class Stage:
    """One broker, its disk, and what each link has heard."""

    def __init__(self, *defects: str) -> None:
        self.disk = Disk()
        self.now = 1_000
        self.defects = frozenset(defects)
        self.heard: dict[int, list[Answer | HangUp]] = {}
        self.epoch = 0
        self.lookers = 1_000
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.broker = Broker(Terms(epoch=self.epoch), self.disk.state(), self.now, self.defects)
        self.heard = {}

    def crash(self) -> None:
        """Kill -9 and takeover."""
        self.start()

    def say(self, link: int, *commands: ClientCommand) -> list[Answer | HangUp]:
        """Say it; returns what this link has heard since it last spoke."""
        for command in commands:
            self.broker.handle(link, command, self.now)
        return self.hear(link)

    def settle(self) -> None:
        records, outputs = self.broker.take()
        group = Group()
        group.add(records)
        self.disk.write(group)
        for link, what in outputs:
            self.heard.setdefault(link, []).append(what)

    def hear(self, link: int) -> list[Answer | HangUp]:
        self.settle()
        return self.heard.pop(link, [])

    def lose(self, link: int) -> None:
        self.broker.lost(link, self.now)
        self.settle()

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.broker.tick(self.now)
        self.settle()

    # -- phrases -------------------------------------------------------------------------------------------

    def attach(self, link: int, uid: str = "", *, session: str = "s", transacted: bool = False) -> None:
        self.say(link, Connect(connection=uid or f"c{link}"), OpenSession(session=session, transacted=transacted))

    def consume(self, link: int, queue: str = "q", credit: int = 100, consumer: str = "k") -> list[Deliver]:
        command = OpenConsumer(session="s", consumer=consumer, source=Address(queue), credit=credit)
        return deliveries(self.say(link, command))

    def send(self, link: int, *bodies: str, queue: str = "q", transaction: str = "") -> None:
        for body in bodies:
            self.say(link, Send(session="s", envelope=message(body, queue), transaction=transaction))

    def acknowledge(self, link: int, *numbers: int, transaction: str = "") -> list[Answer | HangUp]:
        return self.say(link, Acknowledge(request=1, session="s", deliveries=numbers, transaction=transaction))

    def left(self, queue: str = "q") -> list[str]:
        """What a new client finds on the queue; it gives it back, flagged."""
        self.lookers += 1
        self.attach(self.lookers, "looker")
        found = bodies(self.consume(self.lookers, queue))
        self.lose(self.lookers)
        return found


def message(body: str, queue: str = "q", **attributes: object) -> Envelope:
    return Envelope(Address(queue), body=body.encode(), **attributes)  # type: ignore[arg-type]


def deliveries(answers: list[Answer | HangUp]) -> list[Deliver]:
    return [answer for answer in answers if isinstance(answer, Deliver)]


def refusals(answers: list[Answer | HangUp]) -> list[Refused]:
    return [answer for answer in answers if isinstance(answer, Refused)]


def bodies(answers: list[Deliver]) -> list[str]:
    return [answer.envelope.body.decode() for answer in answers]


def flags(answers: list[Deliver]) -> list[bool]:
    return [answer.redelivered for answer in answers]
