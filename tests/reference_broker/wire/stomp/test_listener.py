"""A STOMP connection of the node, with the broker's state machine behind it and no I/O between them."""

from __future__ import annotations

import pytest

from reference_broker.broker.commands import Connect, Refusal, Refused
from reference_broker.broker.engine import Broker, HangUp, Terms
from reference_broker.wire.listener import Welcome
from reference_broker.wire.stomp.codec import Decoder, Frame, encode
from reference_broker.wire.stomp.listener import LIFE, StompConnection

LIMIT = 100_000


class Client:
    """What a client writes, and the frames that it gets for it."""

    def __init__(self, broker: Broker, number: int = 1, version: str = "1.2") -> None:
        self.wire = StompConnection(Welcome("node", f"link-{number}", 1000, LIMIT))
        self.version = version
        self._broker = broker
        self._number = number
        self._frames = Decoder(LIMIT, version)

    def say(self, command: str, body: bytes = b"", **headers: str) -> list[Frame]:
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.write(encode(command, fields, body, self.version))

    def write(self, data: bytes) -> list[Frame]:
        for command in self.wire.receive(data):
            self._broker.handle(self._number, command, 0)
        return self.hear()

    def hear(self) -> list[Frame]:
        answers = [what for link, what in self._broker.take().outputs if link == self._number]
        data = self.wire.send([answer for answer in answers if not isinstance(answer, HangUp)])
        return [*self._frames.feed(data), *self._frames.feed(self.wire.farewell or b"")]

    def connect(self, **headers: str) -> list[Frame]:
        return self.say("CONNECT", accept_version=self.version, host="h", **headers)

    def subscribe(self, id: str = "s", ack: str = "client-individual", **headers: str) -> list[Frame]:
        return self.say("SUBSCRIBE", id=id, destination="/queue/q", ack=ack, **headers)

    def put(self, *bodies: bytes) -> None:
        for body in bodies:
            assert self.say("SEND", body, destination="/queue/q", persistent="true") == []


@pytest.fixture
def broker() -> Broker:
    return Broker(Terms(heartbeat_ms=1000))


@pytest.fixture
def client(broker: Broker) -> Client:
    client = Client(broker)
    assert client.connect()[0].command == "CONNECTED"
    return client


def bodies(frames: list[Frame]) -> list[tuple[bytes, bool]]:
    return [(frame.body, frame.headers.get("redelivered") == "true") for frame in frames if frame.command == "MESSAGE"]


def refused(client: Client, frames: list[Frame], reason: str) -> Frame:
    error = frames[-1]
    assert error.command == "ERROR"
    assert reason in error.headers["message"]
    assert client.wire.farewell is not None
    assert client.wire.receive(b"SEND\n\n\0") == []
    return error


@pytest.mark.parametrize(
    ("offered", "agreed"), [("1.0", "1.0"), ("1.1", "1.1"), ("1.0,1.1,1.2", "1.2"), ("1.1, 2.0", "1.1"), (None, "1.0")]
)
def test_the_highest_common_version_is_spoken(broker: Broker, offered: str | None, agreed: str) -> None:
    client = Client(broker)
    (frame,) = client.say("STOMP", **({} if offered is None else {"accept_version": offered}))
    assert (frame.command, frame.headers["version"]) == ("CONNECTED", agreed)


def test_no_common_version_is_refused(broker: Broker) -> None:
    client = Client(broker)
    refused(client, client.say("CONNECT", accept_version="2.0"), "none of the versions")


@pytest.mark.parametrize(
    ("asked", "own", "peer"), [("0,0", 0, 0), ("500,0", 0, 1000), ("5000,3000", 3000, 5000), ("0,10", 1000, 0)]
)
def test_heart_beats_are_the_slower_of_both_wishes(broker: Broker, asked: str, own: int, peer: int) -> None:
    client = Client(broker)
    client.connect(heart_beat=asked)
    assert (client.wire.own_interval_ms, client.wire.peer_interval_ms) == (own, peer)


def test_credentials_go_to_the_broker() -> None:
    wire = StompConnection(Welcome("node", "link", 1000, LIMIT))
    connect = wire.receive(b"CONNECT\nlogin:me\npasscode:secret\nclient-id:c\njms-connection:j\n\n\0")[0]
    assert isinstance(connect, Connect)
    assert (connect.user, connect.password, connect.client_id, connect.connection) == ("me", "secret", "c", "j")


def test_a_passive_node_says_so_and_hangs_up() -> None:
    wire = StompConnection(Welcome("node", "link", 1000, LIMIT))
    request = wire.receive(b"CONNECT\naccept-version:1.2\n\n\0")[0].request
    (frame,) = Decoder(LIMIT).feed(wire.send([Refused(request=request, why=Refusal.NOT_SERVING, reason="waiting")]))
    assert frame.command == "ERROR"
    assert frame.headers["refusal"] == "not-serving"
    assert wire.farewell == b""


def test_the_first_frame_is_connect(broker: Broker) -> None:
    client = Client(broker)
    refused(client, client.say("SEND", destination="q"), "first frame")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"CONNECT\n\n\0", "connected already"),
        (b"FLY\n\n\0", "no command"),
        (b"\xff\xfe\n\n\0", "UTF-8"),
        (b"SEND\n\n\0", "destination"),
        (b"SEND\ndestination:q\npriority:x\n\n\0", "priority"),
        (b"SEND\ndestination:q\ntransaction:t\n\n\0", "has not begun"),
        (b"SUBSCRIBE\ndestination:q\n\n\0", "'id'"),
        (b"SUBSCRIBE\ndestination:q\nid:1\nack:maybe\n\n\0", "no way to acknowledge"),
        (b"UNSUBSCRIBE\nid:1\n\n\0", "no subscription"),
        (b"ACK\nid:link-1.7\n\n\0", "unacknowledged"),
        (b"ACK\nid:elsewhere.1\n\n\0", "unacknowledged"),
        (b"COMMIT\ntransaction:t\n\n\0", "has not begun"),
        (b"ABORT\n\n\0", "'transaction'"),
        (b"SEND\ndestination:/topic/t\nreceipt:r\n\n\0", "topics"),
    ],
)
def test_violations_end_the_connection_with_their_reason(client: Client, frame: bytes, reason: str) -> None:
    refused(client, client.write(frame), reason)


def test_an_error_names_the_receipt_that_was_asked_for(client: Client) -> None:
    error = refused(client, client.say("ACK", id="x", receipt="r9"), "unacknowledged")
    assert error.headers["receipt-id"] == "r9"


def test_frames_before_garbage_count(client: Client) -> None:
    frames = client.write(b"SEND\ndestination:q\nreceipt:1\n\nx\0nonsense\n\n\0")
    assert [frame.command for frame in frames] == ["RECEIPT", "ERROR"]


def test_receipts_keep_the_order_of_the_frames(client: Client) -> None:
    data = (
        b"BEGIN\ntransaction:t\nreceipt:1\n\n\0SEND\ndestination:q\ntransaction:t\nreceipt:2\n\nx\0"
        b"COMMIT\ntransaction:t\nreceipt:3\n\n\0SUBSCRIBE\ndestination:q\nid:s\nreceipt:4\n\n\0DISCONNECT\nreceipt:5\n\n\0"
    )
    frames = client.write(data)
    assert [frame.headers["receipt-id"] for frame in frames if frame.command == "RECEIPT"] == list("12345")
    assert bodies(frames) == [(b"x", False)]


def test_auto_acknowledges_on_sending(client: Client, broker: Broker) -> None:
    client.put(b"a")
    assert bodies(client.subscribe(ack="auto")) == [(b"a", False)]
    broker.lost(1, 0)
    other = Client(broker, 2)
    other.connect()
    assert bodies(other.subscribe()) == []


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_client_acknowledges_all_up_to_the_one_named(broker: Broker, version: str) -> None:
    client = Client(broker, version=version)
    client.connect()
    client.put(b"a", b"b", b"c")
    messages = client.subscribe(ack="client")
    name = {"id": messages[1].headers["ack"]} if version == "1.2" else {"message_id": messages[1].headers["message-id"]}
    client.say("ACK", subscription="s", **name)
    broker.lost(1, 0)
    other = Client(broker, 2)
    other.connect()
    assert bodies(other.subscribe()) == [(b"c", True)]


def test_nack_gives_one_back_flagged(client: Client) -> None:
    client.put(b"a", b"b")
    first, _ = client.subscribe()
    assert bodies(client.say("NACK", id=first.headers["ack"])) == [(b"a", True)]


def test_unsubscribe_gives_back_flagged_and_in_order(client: Client) -> None:
    client.put(b"a", b"b", b"c")
    client.subscribe()
    assert [frame.command for frame in client.say("UNSUBSCRIBE", id="s", receipt="u")] == ["RECEIPT"]
    assert bodies(client.subscribe("again")) == [(b"a", True), (b"b", True), (b"c", True)]


def test_unsubscribe_may_say_what_was_seen(client: Client) -> None:
    client.put(b"a", b"b")
    first, _ = client.subscribe()
    client.say("UNSUBSCRIBE", id="s", jms_delivered=first.headers["ack"])
    assert bodies(client.subscribe("again")) == [(b"a", True), (b"b", False)]


def test_a_message_that_crosses_the_unsubscribe_is_not_shown(client: Client, broker: Broker) -> None:
    client.subscribe()
    for command in client.wire.receive(encode("SEND", [("destination", "q")], b"x", "1.2")):
        broker.handle(1, command, 0)
    crossing = [output.what for output in broker.take().outputs]
    client.say("UNSUBSCRIBE", id="s")
    assert client.wire.send([answer for answer in crossing if not isinstance(answer, HangUp)]) == b""
    assert bodies(client.subscribe("again")) == [(b"x", False)]


def test_a_transaction_is_done_whole_or_not_at_all(client: Client) -> None:
    client.put(b"a", b"b")
    first, second = client.subscribe()
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=first.headers["ack"], transaction="t")
    client.say("SEND", b"new", destination="/queue/out", transaction="t")
    client.say("ABORT", transaction="t")
    assert bodies(client.say("SUBSCRIBE", id="o", destination="/queue/out")) == []
    client.say("BEGIN", transaction="t")
    client.say("SEND", b"new", destination="/queue/out", transaction="t")
    client.say("ACK", id=first.headers["ack"], transaction="t")
    client.say("NACK", id=second.headers["ack"], transaction="t")
    assert sorted(bodies(client.say("COMMIT", transaction="t"))) == [(b"b", True), (b"new", False)]


def test_what_a_transaction_acknowledged_outlives_its_subscription(client: Client) -> None:
    client.put(b"a", b"b")
    first, _ = client.subscribe()
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=first.headers["ack"], transaction="t")
    client.say("UNSUBSCRIBE", id="s")
    assert bodies(client.subscribe("two")) == [(b"b", True)]
    assert bodies(client.say("ABORT", transaction="t")) == [(b"a", True)]


def test_prefetch_counts_what_is_not_acknowledged(client: Client) -> None:
    client.put(b"a", b"b", b"c")
    first, second = client.subscribe(prefetch_count="2")
    assert bodies([first, second]) == [(b"a", False), (b"b", False)]
    assert bodies(client.say("ACK", id=first.headers["ack"])) == [(b"c", False)]


def test_own_headers_come_out_as_they_went_in(client: Client) -> None:
    client.write(b"SEND\ndestination:q\nx-y:a\\cb\\n\\\\\nfoo:1\n\nbody\0")
    (message,) = client.subscribe()
    assert (message.headers["x-y"], message.headers["foo"]) == ("a:b\n\\", "1")
    assert (message.headers["persistent"], message.headers["destination"]) == ("false", "/queue/q")


def test_life_leads_only_to_states_that_are_known() -> None:
    states = {state for state, _ in LIFE} | {"ended"}
    assert set(LIFE.values()) <= states
