"""What the valve and the engine round it cost a send in undisturbed operation (VLV-19: a small share, at most 5%).

Three ways to send over the core wire to one reference pair: by the wire driver *alone*, which is the peer; by the same
driver over the same transport through the engine's *valve*, which is the on/off comparison of the requirement; and by
the *whole client*, which checks arguments, sets headers and numbers messages besides. An unconfirmed send returns when
it is written and so shows every microsecond. A confirmed one waits for the broker's disk, as persistent sends do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack

from bench.brokers import options_for, running
from bench.comparison import BenchmarkError, Case, Result, interleaved, rate
from reference_broker.client import CoreConnectionFactory
from reference_broker.client.core_driver import CoreDriver
from reference_broker.client.driver import Delivery, Identity, SendSpec, SessionSpec
from reference_broker.client.engine import Engine, Link
from reference_broker.client.operations import Operation
from reference_broker.client.options import ClientOptions
from reference_broker.jms import AcknowledgeMode, DeliveryMode, Queue, TextMessage

MESSAGES = 50
"""A round, contender and case; few enough not to fill the socket."""
ROUNDS = 200
BODY = "x" * 256
QUEUE = Queue("bench-valve")
CASES = {"unconfirmed send": DeliveryMode.NON_PERSISTENT, "confirmed persistent send": DeliveryMode.PERSISTENT}
ALONE = "driver alone"
Send = Callable[[DeliveryMode], None]


class NoObjects:
    """The engine's `Objects` of a connection that has none but a session that is never restored."""

    def delivered(self, delivery: Delivery) -> None:
        """Nothing consumes here."""

    def restarted(self, session: str) -> None:
        """Nothing consumes here."""

    def transport_lost(self) -> None:
        """The run fails by what its sends raise."""

    def transport_opened(self, epoch: int) -> None:
        """Nothing waits for it."""

    def valve_failed(self) -> None:
        """Nothing receives."""

    def restore(self, link: Link) -> None:
        """A benchmark that lost its transport is over."""
        raise BenchmarkError("the transport was lost")

    def all_restored(self) -> bool:
        """Nothing is left to be made."""
        return True


class BelowTheApi:
    """Sends by driver, directly and through the valve of an engine."""

    def __init__(self, options: ClientOptions) -> None:
        self._session = "bench.s1"
        self._numbers = itertools.count(1)
        self._engine = Engine(
            options,
            lambda listener: CoreDriver(listener, options.heartbeat, options.call_timeout),
            Identity("bench"),
            NoObjects(),
        )
        self._engine.connect()
        link = self._engine.valve.transport
        assert link is not None, "connect() returns with an open valve, or raises"
        self._link = link
        link.driver.open_session(SessionSpec(self._session, AcknowledgeMode.AUTO))

    def alone(self, mode: DeliveryMode) -> None:
        """Straight to the driver."""
        self._driver_send(self._link, mode)

    def through_valve(self, mode: DeliveryMode) -> None:
        """With a passage, as every network call of the client."""
        operation = Operation.SEND if mode is DeliveryMode.PERSISTENT else Operation.SEND_NON_PERSISTENT
        self._engine.call(self._session, operation, lambda link: self._driver_send(link, mode))

    def _driver_send(self, link: Link, mode: DeliveryMode) -> None:
        message = TextMessage(BODY)
        message.destination = QUEUE
        message.delivery_mode = mode
        message.message_id = f"ID:bench.{next(self._numbers)}"
        confirm = mode is DeliveryMode.PERSISTENT
        link.driver.send(message, SendSpec(self._session, confirm=confirm), None)

    def settle(self) -> None:
        """Wait until the broker has taken everything in."""
        self._link.driver.open_session(SessionSpec(self._session, AcknowledgeMode.AUTO))

    def close(self) -> None:
        """End the connection."""
        self._engine.begin_close()
        self._engine.finish_close()


def measure(scale: float) -> Result:
    """All three on one pair, in turn."""
    messages, rounds = max(5, round(MESSAGES * scale)), max(2, round(ROUNDS * min(1.0, scale)))
    with running(["reference"]) as (clusters, _), ExitStack() as stack:
        options = options_for(clusters["reference"], "core")
        below = BelowTheApi(options)
        stack.callback(below.close)
        connection = CoreConnectionFactory(options).create_connection()
        stack.callback(connection.close)
        session = connection.create_session()
        producer = session.create_producer(QUEUE)

        def by_client(mode: DeliveryMode) -> None:
            producer.send(TextMessage(BODY), delivery_mode=mode)

        def settle() -> None:
            below.settle()
            session.create_consumer(Queue("bench-valve-settled")).close()

        ways: dict[str, Send] = {
            ALONE: below.alone,
            "driver through the valve": below.through_valve,
            "whole client": by_client,
        }
        found = interleaved({name: _turn(send, settle, messages) for name, send in ways.items()}, rounds)
    cases = [Case(case, "messages/s", ALONE, series) for case, series in found.items()]
    return Result("valve: what the failover engine costs a send", cases)


def _turn(send: Send, settle: Callable[[], None], messages: int) -> Callable[[], dict[str, float]]:
    def one_case(mode: DeliveryMode) -> float:
        def send_all() -> None:
            for _ in range(messages):
                send(mode)

        figure = rate(messages, send_all)
        settle()
        return figure

    return lambda: {case: one_case(mode) for case, mode in CASES.items()}
