"""What recording costs: the reference client on the reference pair, with and without the recorders round it.

The peer is the same client without recording. A *send* is persistent and confirmed, so it waits until the broker has
the message on disk; a *receive* is one call in AUTO mode, acknowledged before it returns. The recorders give each
message a uid, digest its body, and write two events for a send and one for a receive, each handed to the operating
system before the call goes on. The demand is that recording takes less than 5% of a run's throughput, that is a ratio
above 0.95.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from adapters.registry import make_adapter
from bench.brokers import options_for, running
from bench.comparison import BenchmarkError, Case, Result, interleaved, rate
from fixtures.recording import Journal, RecordedConnection
from reference_broker.jms import Connection, Queue, TextMessage
from spark_analysis.log import LogWriter
from spark_analysis.schema import SCHEMA_VERSION, Header

MESSAGES = 20
"""A round and contender; few, so that the turns change faster than the load of the machine does."""
ROUNDS = 400
BODY = "x" * 256
WITHOUT, WITH = "without recording", "with recording"


class Client:
    """One connection with a producer and a consumer of its own queue."""

    def __init__(self, connection: Connection, queue: str, messages: int) -> None:
        self._messages = messages
        session = connection.create_session()
        self._producer = session.create_producer(Queue(queue))
        self._consumer = session.create_consumer(Queue(queue))
        connection.start()

    def turn(self) -> dict[str, float]:
        """Send, then receive what was sent: both in messages a second."""
        return {
            "persistent confirmed send": rate(self._messages, self._send_all),
            "AUTO receive": rate(self._messages, self._receive_all),
        }

    def _send_all(self) -> None:
        for _ in range(self._messages):
            self._producer.send(TextMessage(BODY))

    def _receive_all(self) -> None:
        for _ in range(self._messages):
            if self._consumer.receive(30_000) is None:
                raise BenchmarkError("a message that was sent did not come within 30 s")


def measure(scale: float) -> Result:
    """Both clients on one pair, in turn."""
    messages, rounds = max(5, round(MESSAGES * scale)), max(2, round(ROUNDS * min(1.0, scale)))
    with running(["reference"]) as (clusters, _), tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        factory = make_adapter("core").connection_factory(options_for(clusters["reference"], "core"))
        log = stack.enter_context(LogWriter(Path(scratch, "recording.delivery.jsonl"), _header()))
        plain, recorded = factory.create_connection(), RecordedConnection(Journal(log, "bench"), factory)
        stack.callback(plain.close)
        stack.callback(recorded.close)
        clients = {WITHOUT: Client(plain, "plain", messages), WITH: Client(recorded, "recorded", messages)}
        found = interleaved({name: client.turn for name, client in clients.items()}, rounds)
    cases = [Case(case, "messages/s", WITHOUT, series) for case, series in found.items()]
    return Result("recording: the reference client with and without the delivery log", cases)


def _header() -> Header:
    return Header(
        schema=SCHEMA_VERSION,
        run="bench",
        scenario="recording",
        test="bench",
        requirements=(),
        adapter="core",
        broker="reference",
        failover="RC",
        fault="none",
        seed=0,
        started_wall_ms=time.time_ns() // 1_000_000,
    )
