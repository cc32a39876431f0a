"""A node as a process: what a killed one had confirmed is there, and a pair never serves twice."""

from __future__ import annotations

import random
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from reference_broker.broker.commands import (
    AskFate,
    Commit,
    Connected,
    Disconnect,
    Done,
    Fate,
    FateIs,
    Refusal,
    Refused,
    Send,
)
from reference_broker.broker.envelope import Address, Envelope
from reference_broker.store.sqlite import FILE

from .node_process import DEADLINE, MODULE, CoreClient, NodeProcess, alive

HA = ("--ha", "shared-store")


# -- start and end -------------------------------------------------------------------------------------------


def test_it_says_where_it_listens_that_it_serves_and_that_it_stopped(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        assert node.listening["role"] == "live"
        assert node.listening["pid"] == node.process.pid
        assert node.event("serving")["epoch"] == 1
        with CoreClient(node.address) as client:
            assert isinstance(client.greeting, Connected)
            client.send(b"confirmed")
            assert node.stop() == 0
            with pytest.raises(EOFError):
                client.hear()
        node.event("stopped")
    with NodeProcess(tmp_path) as again:
        assert again.event("serving")["epoch"] == 2
        with CoreClient(again.address) as client:
            client.consume()
            (found,) = client.receive(1)
            assert (found.envelope.body, found.redelivered) == (b"confirmed", False)


def failed_start(*options: str) -> str:
    ended = subprocess.run([*MODULE, "node", *options], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 2
    assert ended.stdout == "" or '"listening"' in ended.stdout
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    return ended.stderr


def test_what_stands_in_the_way_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "address already in use" in failed_start("--store", str(tmp_path), "--core", f"127.0.0.1:{port}").lower()
    (tmp_path / "file").write_text("")
    assert "Not a directory" in failed_start("--store", str(tmp_path / "file" / "store"))
    assert "is no HOST:PORT" in failed_start("--store", str(tmp_path), "--core", "nonsense")
    assert "no such defect: nonsense" in failed_start("--store", str(tmp_path), "--defect", "nonsense")
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt" / FILE).write_bytes(b"garbage" * 1000)
    assert "not a database" in failed_start("--store", str(tmp_path / "spoilt"))


def test_a_store_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "first") as node:
        said = failed_start("--store", str(tmp_path), "--name", "second")
        assert f"in use by node 'first', process {node.process.pid}" in said


def test_garbage_ends_the_transport_and_not_the_node(tmp_path: Path) -> None:
    chance = random.Random(7)
    with NodeProcess(tmp_path) as node, CoreClient(node.address) as bystander:
        for _ in range(20):
            with socket.create_connection(node.address, DEADLINE) as vandal:
                vandal.sendall(b"\x00\x00\x00\x10" + chance.randbytes(chance.randrange(16, 2000)))
                with suppress(ConnectionResetError):
                    assert vandal.recv(1024) == b""
        bystander.send(b"fine")


def test_disconnect_is_answered_and_then_the_transport_is_closed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, CoreClient(node.address) as client:
        assert client.ask(Disconnect(request=5)) == Done(request=5)
        with pytest.raises(EOFError):
            client.hear()


# -- crash ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_it_keeps_all_that_it_confirmed_once_and_in_order(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    confirmed: list[int] = []
    with NodeProcess(tmp_path) as node, CoreClient(node.address) as client:

        def produce() -> None:
            try:
                for number in range(1, 100_000):
                    client.send(b"%d" % number, sequence=number)
                    confirmed.append(number)
            except (OSError, EOFError):
                pass

        producer = Thread(target=produce)
        producer.start()
        until = time.monotonic() + DEADLINE
        enough = chance.randrange(20, 400)
        while len(confirmed) < enough and time.monotonic() < until:
            producer.join(0.001)
        node.kill()
        producer.join(DEADLINE)
    with NodeProcess(tmp_path) as node, CoreClient(node.address) as client:
        last = confirmed[-1]
        client.send(b"%d" % last, sequence=last)  # repeated: not stored again
        client.send(b"%d" % (last + 1), sequence=last + 1)  # the one in flight: stored once, then or now
        client.consume()
        found = client.receive(last + 1)
        assert [int(each.envelope.body) for each in found] == list(range(1, last + 2))
        assert not any(each.redelivered for each in found)


def test_killed_at_any_commit_a_transaction_is_whole_or_not_at_all_and_its_fate_is_told(tmp_path: Path) -> None:
    chance = random.Random(3)
    for round_number in range(4):
        store = tmp_path / str(round_number)
        with NodeProcess(store) as node, CoreClient(node.address) as client:
            for number in range(10):
                client.send(b"in%d" % number)
            client.consume()
            names = []
            for number, delivery in enumerate(client.receive(10)):
                names.append(f"c/s/{number}")
                client.acknowledge(delivery, transaction=names[-1])
                client.send(b"out%d" % number, "r", names[-1])
            client.say(*[Commit(session="s", transaction=name) for name in names])
            time.sleep(chance.random() * 0.004)  # where it hits is chance; every place is right
            node.kill()
        with NodeProcess(store) as node, CoreClient(node.address) as client:
            fates = [client.ask(AskFate(transaction=name)) for name in names]
            done = [number for number, fate in enumerate(fates) if fate == FateIs(fate=Fate.COMMITTED)]
            client.send(b"end")
            client.send(b"end", "r")
            client.consume()
            received = [each.envelope.body for each in client.receive(11 - len(done))]
        assert received == [b"in%d" % number for number in range(10) if number not in done] + [b"end"]
        with NodeProcess(store) as node, CoreClient(node.address) as client:
            client.consume("r")
            sent = [each.envelope.body for each in client.receive(len(done) + 1)]
        assert sent == [b"out%d" % number for number in done] + [b"end"]


def test_a_store_that_fails_ends_the_node_and_confirms_nothing_more(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, CoreClient(node.address) as client:
        client.send(b"before")
        with sqlite3.connect(tmp_path / FILE) as other:
            other.execute("DROP TABLE message")
        client.say(Send(request=9, session="s", envelope=Envelope(Address("q"), body=b"after")))
        with pytest.raises((EOFError, ConnectionError)):
            client.hear()
        assert node.process.wait(DEADLINE) == 2
        assert node.process.stderr is not None
        (line,) = node.process.stderr.read().splitlines()
        assert "what is not written is not confirmed" in line


# -- a pair --------------------------------------------------------------------------------------------------


def test_takeover_serves_the_stored_state_flagged_and_the_backup_refused_before(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "a", *HA) as live, NodeProcess(tmp_path, "b", *HA) as backup:
        assert (live.listening["role"], backup.listening["role"]) == ("live", "backup")
        with CoreClient(backup.address) as early:
            assert isinstance(early.greeting, Refused)
            assert early.greeting.why is Refusal.NOT_SERVING
        with CoreClient(live.address) as client:
            for body in (b"a", b"b", b"c"):
                client.send(body)
            client.consume(credit=2)
            first, _ = client.receive(2)
            client.acknowledge(first)
            live.kill()
        assert backup.event("serving")["epoch"] == 2
        with CoreClient(backup.address) as client:
            assert isinstance(client.greeting, Connected)
            assert (client.greeting.node, client.greeting.epoch) == ("b", 2)
            client.consume()
            found = client.receive(2)
        assert [(each.envelope.body, each.redelivered) for each in found] == [(b"b", True), (b"c", False)]


def test_a_paused_live_keeps_its_role(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "a", *HA) as live, NodeProcess(tmp_path, "b", *HA) as backup:
        live.signal(signal.SIGSTOP)
        with CoreClient(backup.address) as client:
            assert client.refused
        live.signal(signal.SIGCONT)
        with CoreClient(live.address) as client:
            client.send(b"still here")


def test_an_orderly_stop_hands_over_only_if_told_to(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "b", *HA) as backup_to_be:
        backup_to_be.event("serving")
        with NodeProcess(tmp_path, "a", *HA) as backup:
            assert backup_to_be.stop() == 0
            with CoreClient(backup.address) as client:
                assert client.refused
            with NodeProcess(tmp_path, "b", *HA, "--failover-on-shutdown") as live:
                live.event("serving")
                assert live.stop() == 0
            assert backup.event("serving")["epoch"] == 3


def test_three_nodes_one_serves_and_the_roles_move_on(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path, "a", *HA) as first,
        NodeProcess(tmp_path, "b", *HA) as second,
        NodeProcess(tmp_path, "c", *HA) as third,
    ):
        with CoreClient(first.address) as client:
            client.send(b"m")
        first.kill()
        until = time.monotonic() + DEADLINE
        serving = None
        while serving is None and time.monotonic() < until:
            for node in (second, third):
                with CoreClient(node.address) as client:
                    if not client.refused:
                        serving = node
        assert serving is not None
        other = third if serving is second else second
        with CoreClient(other.address) as client:
            assert client.refused
        serving.kill()
        assert other.event("serving")["epoch"] == 3


def test_a_backup_refuses_stomp_with_an_error_frame(tmp_path: Path) -> None:
    stomp = ("--stomp", "127.0.0.1:0")
    with NodeProcess(tmp_path, "a", *HA), NodeProcess(tmp_path, "b", *HA, *stomp) as backup:
        host, port = backup.listening["stomp"]
        with socket.create_connection((host, port), DEADLINE) as client:
            client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            said = b"".join(iter(lambda: client.recv(4096), b""))
    assert said.startswith(b"ERROR\n")
    assert b"does not serve" in said


# -- clients that die ----------------------------------------------------------------------------------------


def test_a_client_that_is_cut_off_gives_back_at_once(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, CoreClient(node.address, "other") as other:
        client = CoreClient(node.address)
        client.send(b"m")
        client.consume()
        client.receive(1)
        other.consume()
        client.reset()
        (found,) = other.receive(1)
        assert found.redelivered


def test_a_silent_client_gives_back_after_twice_its_promise_and_not_before(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, CoreClient(node.address, "other") as other:
        with CoreClient(node.address, heartbeat_ms=300) as client:
            client.send(b"m")
            client.consume()
            client.receive(1)
            silent_since = time.monotonic()
            other.consume()
            (found,) = other.receive(1)
            waited = time.monotonic() - silent_since
        assert found.redelivered
        assert 0.5 < waited < DEADLINE


def test_a_client_that_comes_back_is_not_kept_out_by_its_ghost(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, CoreClient(node.address, "same") as ghost:
        ghost.send(b"m")
        ghost.consume()
        ghost.receive(1)
        with CoreClient(node.address, "same") as client:
            client.consume()
            (found,) = client.receive(1)
            assert found.redelivered
            client.acknowledge(found)
        with pytest.raises(EOFError):
            ghost.hear()


def test_a_client_that_does_not_read_holds_up_nobody_else(tmp_path: Path) -> None:
    body = b"x" * 100_000
    with NodeProcess(tmp_path) as node, CoreClient(node.address, "lazy") as lazy, CoreClient(node.address) as client:
        lazy.consume("big")
        for _ in range(200):
            client.send(body, "big")
        client.send(b"m")
        client.consume()
        assert client.receive(1)[0].envelope.body == b"m"
        assert len(lazy.receive(200)) == 200


def test_a_burst_that_outruns_the_disk_arrives_whole_and_an_orderly_stop_confirms_it(tmp_path: Path) -> None:
    count = 50_000
    sends = [
        Send(request=number, session="s", envelope=Envelope(Address("q"), body=b"%d" % number))
        for number in range(1, count + 1)
    ]
    with NodeProcess(tmp_path) as node, CoreClient(node.address) as client:
        talk = Thread(target=client.say, args=sends)
        talk.start()
        confirmed = [client.hear().request for _ in range(count - 100)]
        talk.join(DEADLINE)
        assert node.stop() == 0
        with suppress(EOFError, ConnectionResetError):
            while True:
                confirmed.append(client.hear().request)
    assert confirmed == list(range(1, len(confirmed) + 1))
    with NodeProcess(tmp_path) as node:
        assert len(confirmed) <= node.event("serving")["messages"] <= count


# -- broker pair ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_pair_command_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    command = [*MODULE, "pair", "--store", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pair:
        assert pair.stdout is not None
        shown = []
        for line in pair.stdout:
            shown.append(line)
            if line.startswith("Ctrl-C"):
                break
        rows = [[cell.strip() for cell in line.split("│")] for line in shown if line.startswith("│")]
        pids = [int(row[3]) for row in rows]
        assert len(pids) == 2, shown
        assert all(alive(pid) for pid in pids)
        pair.send_signal(number)
        assert pair.wait(DEADLINE) == 0, pair.stdout.read()
        assert not any(alive(pid) for pid in pids)
