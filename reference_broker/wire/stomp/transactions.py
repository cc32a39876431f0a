"""A STOMP transaction until its end: the sends and settlements that its COMMIT carries out in one piece."""

from __future__ import annotations

from reference_broker.broker.commands import Acknowledge, Begin, ClientCommand, Commit, Return, Send

from .subscriptions import Subscription


class Transaction:
    """Work that waits; `name` is the broker's name for it, never used twice."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._sends: list[Send] = []
        self._acknowledged: list[tuple[Subscription, int]] = []
        self._refused: list[tuple[Subscription, int]] = []

    def send(self, send: Send) -> None:
        """A message of it."""
        send.transaction = self.name
        self._sends.append(send)

    def settle(self, subscription: Subscription, deliveries: tuple[int, ...], *, positive: bool) -> None:
        """ACK or NACK in it."""
        into = self._acknowledged if positive else self._refused
        into.extend((subscription, number) for number in deliveries)
        subscription.pledged.update(deliveries)

    @property
    def settled(self) -> list[int]:
        """Deliveries that it settles."""
        return [number for _, number in (*self._acknowledged, *self._refused)]

    def settlements(self, session: str, request: int, transaction: str) -> list[ClientCommand]:
        """The acknowledgements, and what goes back; the last one carries the request."""
        commands: list[ClientCommand] = []
        for entries, kind in ((self._acknowledged, Acknowledge), (self._refused, Return)):
            if entries:
                numbers = tuple(sorted(number for _, number in entries))
                commands.append(kind(session=session, deliveries=numbers))
                for subscription, number in entries:
                    subscription.pledged.discard(number)
        for command in commands:
            if isinstance(command, Acknowledge):
                command.transaction = transaction
        if commands:
            commands[-1].request = request
        return commands

    def carry_out(self, session: str, request: int) -> list[ClientCommand]:
        """The commands of its COMMIT; none if it has no work. What was refused goes back after it."""
        settlements = self.settlements(session, 0, self.name)
        if not self._sends and not settlements:
            return []
        if not self._sends and not self._acknowledged:
            settlements[-1].request = request
            return settlements
        after = [command for command in settlements if isinstance(command, Return)]
        inside = [command for command in settlements if not isinstance(command, Return)]
        begin = Begin(session=session, transaction=self.name)
        commit = Commit(session=session, transaction=self.name, request=request)
        return [begin, *self._sends, *inside, commit, *after]

    def undo(self, session: str) -> list[ClientCommand]:
        """ABORT: what it had settled is with the client again, or goes back if its subscription has ended."""
        back = []
        for subscription, number in (*self._acknowledged, *self._refused):
            subscription.pledged.discard(number)
            if subscription.ended:
                back.append(number)
            else:
                subscription.unsettled.add(number)
        return [Return(session=session, deliveries=tuple(sorted(back)))] if back else []
