"""A node of the reference serves plain stomp.py clients of all three versions."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import stomp

WAIT = 10.0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    store: Path = tmp_path_factory.mktemp("store")
    command = [sys.executable, "-m", "reference_broker", "node", "--store", str(store), "--stomp", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        found = 0
        for line in node.stdout:
            event = msgspec.json.decode(line)
            found = event.get("stomp", (0, found))[1]
            if event["event"] == "serving":
                break
        yield found
        node.terminate()


class Ear(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])


@pytest.mark.parametrize("kind", [stomp.StompConnection10, stomp.StompConnection11, stomp.StompConnection12])
def test_send_receive_acknowledge_and_transact(port: int, kind: Any) -> None:
    name = f"/queue/{kind.__name__}"
    connection, ear = kind([("127.0.0.1", port)], auto_decode=False), Ear()
    connection.set_listener("ear", ear)
    connection.connect("user", "secret", wait=True)
    connection.send(name, b"one\0two", headers={"receipt": "sent", "persistent": "true", "x": "y"})
    assert ear.receipts.get(timeout=WAIT) == "sent"
    connection.begin("t")
    connection.send(name, b"held", headers={"transaction": "t"})
    connection.commit("t")
    headers = {} if kind is stomp.StompConnection10 else {"id": "1"}
    connection.subscribe(name, ack="client", **headers)
    first, second = (ear.messages.get(timeout=WAIT) for _ in range(2))
    assert (first.body, first.headers["x"], second.body) == (b"one\0two", "y", b"held")
    if kind is stomp.StompConnection12:
        connection.ack(second.headers["ack"])
    elif kind is stomp.StompConnection11:
        connection.ack(second.headers["message-id"], "1")
    else:
        connection.ack(second.headers["message-id"])
    connection.disconnect("bye")
    assert ear.receipts.get(timeout=WAIT) == "bye"
    again, ear = kind([("127.0.0.1", port)], auto_decode=False), Ear()
    again.set_listener("ear", ear)
    again.connect(wait=True)
    again.subscribe(name, ack="auto", **headers)
    again.send(name, b"last")
    assert ear.messages.get(timeout=WAIT).body == b"last"
    again.disconnect("bye")
