"""The lock of a shared store and the roles round it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reference_broker.ha.shared_store import LOCK_FILE, ROLES, LockError, Role, StoreLock

HOLDER = """
import sys, time
from pathlib import Path
from reference_broker.ha.shared_store import StoreLock
lock = StoreLock(Path(sys.argv[1]), "other"); lock.open(); print(lock.try_take(), flush=True); sys.stdin.read()
"""


def opened(directory: Path, node: str) -> StoreLock:
    lock = StoreLock(directory, node)
    lock.open()
    return lock


def test_only_one_holds_it(tmp_path: Path) -> None:
    first, second = opened(tmp_path, "a"), opened(tmp_path, "b")
    assert first.try_take()
    assert not second.try_take()
    assert not second.try_take_over()
    assert (second.note().node, second.note().pid) == ("a", os.getpid())
    first.release(hand_over=True)
    assert second.try_take_over()


def test_the_kernel_takes_it_from_a_killed_process_and_not_from_a_paused_one(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        backup = opened(tmp_path, "b")
        holder.send_signal(signal.SIGSTOP)
        assert not backup.try_take_over()
        holder.kill()
        holder.wait(10)
        assert backup.try_take_over()


def test_an_orderly_stop_does_not_hand_over_unless_told_to(tmp_path: Path) -> None:
    live, backup = opened(tmp_path, "a"), opened(tmp_path, "b")
    live.try_take()
    live.release(hand_over=False)
    assert not backup.try_take_over()
    again = opened(tmp_path, "a")
    assert again.try_take(), "a node that starts looks at no note"
    again.release(hand_over=True)
    assert backup.try_take_over()


def test_a_torn_note_is_that_of_a_live_that_died(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text('{"state":"stop')
    assert opened(tmp_path, "b").try_take_over()


def test_a_directory_of_no_use_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LockError, match="cannot be used: Not a directory"):
        opened(tmp_path / "file" / "store", "a")


def test_every_role_is_reached_and_every_role_but_the_last_can_be_left() -> None:
    reached = {"starting"}
    while grown := {to for (role, _), to in ROLES.items() if role in reached} - reached:
        reached |= grown
    assert reached == {role for role, _ in ROLES} | {"stopped"}
    role = Role()
    assert [role.happen(e) for e in ("lock taken", "loaded", "stop", "drained")][-1] == "stopped"
    with pytest.raises(KeyError):
        role.happen("loaded")
