"""A broker that obeys JMS, in a few lines, and the log of a client that uses it; and ways to make it wrong.

One queue, a plain and a transacted producer, two consumers in one acknowledge mode. Where JMS leaves a choice, the
caller makes it: whether an unknown send was stored, an unknown commit done, the last AUTO message returned, a
NON_PERSISTENT message lost in a crash.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_analysis.schema import Kind
from tests.spark_analysis.scene import FAILED, INDETERMINATE, OK, Scene

Choose = Callable[[int], int]  # a number below the bound


@dataclass
class Stored:
    """A message in the broker."""

    uid: str
    number: int  # its place in the queue's history
    persistent: bool = True
    deliveries: int = 0
    digest: str = ""


@dataclass
class Client:
    """A consumer's session."""

    name: str
    held: list[Stored] = field(default_factory=list)  # received, not settled
    consumed: list[Stored] = field(default_factory=list)  # AUTO and DUPS_OK, since the last failure
    transaction: int = 0
    stale: bool = False

    @property
    def transaction_name(self) -> str:
        return f"{self.name}#{self.transaction}"


class Simulation:
    """Runs actions against the broker and keeps the log."""

    def __init__(self, mode: str, choose: Choose) -> None:
        self.scene = Scene(mode, scenario=f"simulated {mode}")
        self.mode = mode
        self.choose = choose
        self.queue: list[Stored] = []
        self.settled: list[Stored] = []
        self.clients = [Client("c/s"), Client("d/s")]
        self.count = 0
        self.lonely = bool(choose(2))  # one consumer only: then order is judged over failures
        self.refused: list[str] = []
        self.pending: list[Stored] = []  # of the transacted producer
        self.sent_in = 0
        for name in ("p", "t", "c", "d"):
            self.scene.add(Kind.CONNECT, connection=name)

    # -- actions ---------------------------------------------------------------------------------------------

    ACTIONS = (*("send",) * 2, *("receive",) * 3, "settle", "give_back", "crash", "produce", "end_produce")

    def act(self) -> None:
        getattr(self, self.ACTIONS[self.choose(len(self.ACTIONS))])()

    def message(self, persistent: bool = True) -> Stored:
        self.count += 1
        return Stored(f"m{self.count}", self.count, persistent, digest=f"d-m{self.count}")

    def store(self, message: Stored) -> None:
        self.count += 1
        message.number = self.count
        self.queue.append(message)

    def send(self) -> None:
        message = self.message(persistent=bool(self.choose(4)))
        kind = self.choose(6)
        outcome = (INDETERMINATE, None, FAILED, OK, OK, OK)[kind]
        self.scene.send(message.uid, outcome=outcome, persistent=message.persistent)
        if outcome is OK or (kind < 2 and self.choose(2)):
            self.store(message)
        elif outcome is FAILED:
            self.refused.append(message.uid)

    def produce(self) -> None:
        message = self.message()
        self.scene.send(message.uid, session="t/s", transaction=f"t#{self.sent_in}")
        self.pending.append(message)

    def end_produce(self, broken: bool = False) -> None:
        kind = 3 if broken else self.choose(5)
        outcome = (OK, OK, INDETERMINATE, FAILED, None)[kind]
        if self.choose(4) or broken:
            self.scene.commit(f"t#{self.sent_in}", outcome, session="t/s")
            done = outcome is OK or (outcome in (INDETERMINATE, None) and bool(self.choose(2)))
        else:
            self.scene.rollback(f"t#{self.sent_in}", session="t/s")
            done = False
        for message in self.pending:
            if done:
                self.store(message)
            elif outcome is FAILED:
                self.refused.append(message.uid)
        self.pending = []
        self.sent_in += 1

    def client(self) -> Client:
        return self.clients[0 if self.lonely else self.choose(2)]

    def receive(self) -> None:
        client = self.client()
        if not self.queue or client.stale:
            return
        self.deliver(client, self.queue.pop(0))

    def deliver(self, client: Client, message: Stored) -> None:
        message.deliveries += 1
        self.scene.receive(
            message.uid,
            session=client.name,
            again=message.deliveries > 1,
            delivery_count=message.deliveries,
            digest=message.digest,
            transaction=client.transaction_name if self.mode == "TRANSACTED" else "",
        )
        if self.mode in ("AUTO", "DUPS_OK"):
            client.consumed.append(message)
        else:
            client.held.append(message)

    def settle(self) -> None:
        """Acknowledge or commit; after a failure that is stale, or rolled back."""
        client = self.client()
        kind = self.choose(4)
        if self.mode == "CLIENT" and client.held:
            if client.stale:
                error = {"error": "StaleSessionException", "code": "SESSION_STALE"}
                self.scene.acknowledge(outcome=FAILED, session=client.name, **error)
            else:
                self.scene.acknowledge(*(m.uid for m in client.held), session=client.name)
                self.settled += client.held
            self._leave(client)
        elif self.mode == "TRANSACTED":
            unknown = kind == 0 and not client.stale
            outcome = FAILED if client.stale else INDETERMINATE if unknown else OK
            done = not client.stale and not (unknown and self.choose(2))
            self.scene.commit(client.transaction_name, outcome, session=client.name)
            if done:
                self.settled += [] if unknown else client.held
            elif not client.stale:
                self.put_back(client.held)
            self._leave(client)

    def give_back(self) -> None:
        """recover() or rollback()."""
        client = self.client()
        if self.mode == "CLIENT":
            self.scene.recover(client.name)
        elif self.mode == "TRANSACTED":
            self.scene.rollback(client.transaction_name, client.name)
        if self.mode in ("CLIENT", "TRANSACTED"):
            if not client.stale:
                self.put_back(client.held)
            self._leave(client)

    def _leave(self, client: Client) -> None:
        client.held, client.stale = [], False
        client.transaction += 1

    def put_back(self, messages: list[Stored]) -> None:
        self.queue = sorted([*self.queue, *messages], key=lambda message: message.number)

    def crash(self) -> None:
        """The broker dies and its backup takes over; sessions lose their state."""
        self.scene.fault()
        returned: list[Stored] = []
        for client in self.clients:
            if not client.stale:
                returned += client.held
            client.stale = bool(client.held) and self.mode in ("CLIENT", "TRANSACTED")
            if self.mode == "AUTO" and client.consumed:
                if self.choose(2):
                    returned.append(client.consumed[-1])
                self.settled += client.consumed[:-1]  # the last might come again, and nobody could object
            elif self.mode == "DUPS_OK":
                returned += [message for message in client.consumed if self.choose(2)]
            client.consumed = []
        self.put_back(returned)
        self.queue = [message for message in self.queue if message.persistent or self.choose(2)]
        self.scene.failover("p", "t", "c", "d")
        if self.pending:
            self.end_produce(broken=True)

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        for client in self.clients:
            if client.held and not client.stale:
                self.put_back(client.held)
            self.scene.close(client.name)
        for message in self.queue:
            message.deliveries += 1
            self.scene.receive(
                message.uid,
                session="drain/s",
                mode="AUTO",
                again=message.deliveries > 1,
                delivery_count=message.deliveries,
                digest=message.digest,
            )
        self.scene.add(Kind.DRAINED, destination="q", connection="drain", session="s")

    # -- defects: each returns False where this run gives it nothing to break --------------------------------

    def lose(self) -> bool:
        unseen = [m for m in self.queue if not m.deliveries or self.mode == "CLIENT"]  # AUTO: seen is consumed
        fresh = [m for m in unseen if m.persistent and m.uid in self.confirmed()]
        if fresh:
            self.queue.remove(fresh[self.choose(len(fresh))])
        return bool(fresh)

    def confirmed(self) -> set[str]:
        ended = {e.op for e in self.scene.events if e.kind is Kind.SEND and e.outcome is OK}
        commits = {e.op for e in self.scene.events if e.kind is Kind.COMMIT and e.outcome is OK}
        done = {self.scene.events[op].transaction for op in commits}
        return {
            e.message for e in self.scene.events if e.position in ended and (not e.transaction or e.transaction in done)
        }

    def duplicate(self) -> bool:
        if self.mode == "DUPS_OK":
            return False
        here = {message.uid for message in self.queue}
        since = [message for client in self.clients for message in client.consumed]  # no failure came after these
        settled = [m for m in (*self.settled, *since) if m.uid not in here]
        if settled:
            self.queue.insert(0, settled[self.choose(len(settled))])
        return bool(settled)

    def unflag(self) -> bool:
        seen = [m for m in self.queue if m.deliveries]
        if seen:
            seen[self.choose(len(seen))].deliveries = 0
        return bool(seen)

    def phantom(self) -> bool:
        uid = (self.refused or ["never-sent"])[0]
        self.store(Stored(uid, 0, digest=f"d-{uid}"))
        return True

    def change(self) -> bool:
        if self.queue:
            self.queue[self.choose(len(self.queue))].digest = "changed"
        return bool(self.queue)

    def swap(self) -> bool:
        fresh = [i for i, m in enumerate(self.queue) if not m.deliveries and m.persistent and m.uid in self.plain()]
        if len(fresh) < 2:
            return False
        one, other = fresh[0], fresh[-1]
        earlier, later = self.queue[one], self.queue[other]
        self.queue[one], self.queue[other] = later, earlier
        earlier.number, later.number = later.number, earlier.number
        return True

    def plain(self) -> set[str]:
        """Uids of the producer without transactions."""
        return {e.message for e in self.scene.events if e.kind is Kind.SEND and not e.transaction}

    def tear(self) -> bool:
        for _ in range(2):
            self.produce()
        half = self.pending[self.choose(len(self.pending))]
        self.scene.commit(f"t#{self.sent_in}", INDETERMINATE, session="t/s")
        self.store(half)
        return True


DEFECTS = {
    "lose": {"lost"},
    "duplicate": {"duplicated"},
    "unflag": {"redelivered-flag-missing", "duplicated"},
    "phantom": {"phantom"},
    "change": {"body-changed"},
    "swap": {"reordered"},
    "tear": {"torn-transaction"},
}
"""Each defect and the rules of which one at least must fail."""
