"""The engine against a small model: nothing confirmed is lost, nothing is out twice, order and flags are exact.

The model keeps one list of messages in their order. It does not predict which client gets a message; it checks
that each delivery is of the oldest message that is free, flagged as it must be, and that no message stays free
while some client has credit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference_broker.broker.commands import (
    Acknowledge,
    Commit,
    Deliver,
    Done,
    Grant,
    OpenConsumer,
    Recover,
    Rollback,
    Send,
)
from reference_broker.broker.envelope import Address

from .dialogue import Stage, message

CLIENTS = st.integers(0, 2)
WINDOW = 3


@dataclass
class Modelled:
    body: str
    persistent: bool
    seen: bool = False
    maybe_seen: bool = False
    """Handed out by a node that is gone: flagged there, allowed here."""
    holder: int | None = None
    delivery: int = 0
    pledge: str = ""


@dataclass
class ClientModel:
    link: int
    credit: int = WINDOW
    transaction: int = 1
    unsent: list[Modelled] = field(default_factory=list)

    def name(self, client: int) -> str:
        return f"c{client}.{self.link}/s/{self.transaction}"


class BrokerAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.messages: list[Modelled] = []
        self.clients: dict[int, ClientModel] = {}
        self.links = 0
        self.bodies = 0

    # -- what happens --------------------------------------------------------------------------------------

    @initialize()
    def two_are_there(self) -> None:
        self.attach(0)
        self.attach(1)

    @rule(client=CLIENTS)
    def attach(self, client: int) -> None:
        if client in self.clients:  # the ghost of its earlier transport ends first
            self.forget(client)
        self.links += 1
        self.clients[client] = ClientModel(self.links)
        self.stage.attach(self.links, f"c{client}", transacted=True)
        self.observe()
        self.say(client, OpenConsumer(session="s", consumer="k", source=Address("q"), credit=WINDOW))

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS)
    def lose(self, client: int) -> None:
        if client in self.clients:
            link = self.clients[client].link
            self.forget(client)
            self.stage.lose(link)
            self.observe()

    @rule(orderly=st.booleans())
    def take_over(self, orderly: bool) -> None:
        for client in list(self.clients):
            if orderly:
                self.lose(client)
        self.clients.clear()
        for entry in self.messages:
            if entry.holder is not None or entry.seen:
                entry.maybe_seen = True
            entry.seen = entry.seen or entry.holder is not None
            entry.holder, entry.pledge = None, ""
        self.messages = [entry for entry in self.messages if entry.persistent]
        self.stage.crash()

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, persistent=st.booleans(), transacted=st.booleans(), repeat=st.booleans())
    def send(self, client: int, persistent: bool, transacted: bool, repeat: bool) -> None:
        if (known := self.clients.get(client)) is None:
            return
        self.bodies += 1
        entry = Modelled(str(self.bodies), persistent)
        command = Send(
            request=1,
            session="s",
            envelope=message(entry.body, persistent=persistent),
            transaction=known.name(client) if transacted else "",
            producer=f"p{transacted}{client}.{known.link}",
            sequence=self.bodies,
        )
        if transacted:
            known.unsent.append(entry)
        else:
            self.messages.append(entry)
        self.say(client, *[command] * (2 if repeat else 1))

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, data=st.data(), transacted=st.booleans())
    def acknowledge(self, client: int, data: st.DataObject, transacted: bool) -> None:
        held = [entry for entry in self.held_by(client) if not entry.pledge]
        if not held:
            return
        entry = data.draw(st.sampled_from(held))
        name = self.clients[client].name(client) if transacted else ""
        if transacted:
            entry.pledge = name
        else:
            self.messages.remove(entry)
        self.say(client, Acknowledge(request=1, session="s", deliveries=(entry.delivery,), transaction=name))

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS)
    def grant(self, client: int) -> None:
        if client in self.clients:
            self.clients[client].credit += 1
            self.say(client, Grant(consumer="k", credit=1))

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS)
    def commit(self, client: int) -> None:
        if (known := self.clients.get(client)) is None or not self.has_work(client):
            return
        self.messages = [entry for entry in self.messages if not (entry.holder == client and entry.pledge)]
        self.messages += known.unsent
        name, known.unsent = known.name(client), []
        known.transaction += 1
        self.say(client, Commit(request=1, session="s", transaction=name))

    @precondition(lambda self: self.clients)
    @rule(client=CLIENTS, seen=st.booleans())
    def start_over(self, client: int, seen: bool) -> None:
        if (known := self.clients.get(client)) is None:
            return
        rollback, name = self.has_work(client), known.name(client)
        numbers = tuple(entry.delivery for entry in self.held_by(client)) if seen else ()
        self.give_back(client, seen=seen)
        known.credit, known.unsent = WINDOW, []
        if rollback:
            known.transaction += 1
            self.say(client, Rollback(request=1, session="s", transaction=name, delivered=numbers))
        else:
            self.say(client, Recover(request=1, session="s", delivered=numbers))

    # -- the model -----------------------------------------------------------------------------------------

    def held_by(self, client: int) -> list[Modelled]:
        return [entry for entry in self.messages if entry.holder == client]

    def has_work(self, client: int) -> bool:
        return bool(self.clients[client].unsent) or any(entry.pledge for entry in self.held_by(client))

    def give_back(self, client: int, *, seen: bool) -> None:
        for entry in self.held_by(client):
            entry.maybe_seen = True
            entry.seen = entry.seen or seen
            entry.holder, entry.pledge = None, ""

    def forget(self, client: int) -> None:
        self.give_back(client, seen=True)
        del self.clients[client]

    def say(self, client: int, *commands: object) -> None:
        link = self.clients[client].link
        answers = self.stage.say(link, *commands)  # type: ignore[arg-type]
        self.stage.heard[link] = answers
        asked = sum(1 for command in commands if getattr(command, "request", 0))
        assert answers.count(Done(request=1)) == asked
        self.observe()

    def observe(self) -> None:
        """Every delivery is of the oldest free message, and flagged if it was seen."""
        self.stage.settle()
        heard, self.stage.heard = self.stage.heard, {}
        arrived = [
            (client, answer)
            for client, known in self.clients.items()
            for answer in heard.get(known.link, [])
            if isinstance(answer, Deliver)
        ]
        free = [entry for entry in self.messages if entry.holder is None]
        expected = {entry.body for entry in free[: len(arrived)]}
        assert {answer.envelope.body.decode() for _, answer in arrived} == expected, "not the oldest free messages"
        for client, answer in arrived:
            entry = next(entry for entry in free if entry.body == answer.envelope.body.decode())
            assert entry.holder is None, f"{entry.body} is out twice"
            if entry.seen:
                assert answer.redelivered, f"{entry.body} was seen and comes unflagged"
            assert entry.maybe_seen or not answer.redelivered, f"{entry.body} was never out and comes flagged"
            assert answer.redelivered == (answer.delivery_count > 1)
            entry.holder, entry.delivery = client, answer.delivery
            self.clients[client].credit -= 1
        for client in self.clients:
            numbers = [answer.delivery for c, answer in arrived if c == client]
            order = [int(answer.envelope.body) for c, answer in arrived if c == client]
            positions = [self.position(body) for body in order]
            assert numbers == sorted(numbers)
            assert positions == sorted(positions), "handed out of order"

    def position(self, body: int) -> int:
        return next(index for index, entry in enumerate(self.messages) if entry.body == str(body))

    @invariant()
    def nothing_waits_while_somebody_wants_it(self) -> None:
        if any(entry.holder is None for entry in self.messages):
            assert all(known.credit <= 0 for known in self.clients.values())

    @invariant()
    def the_disk_holds_the_persistent_ones_in_order(self) -> None:
        stored = [envelope.body.decode() for _, (_, envelope) in sorted(self.stage.disk.messages.items())]
        assert stored == [entry.body for entry in self.messages if entry.persistent]


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
