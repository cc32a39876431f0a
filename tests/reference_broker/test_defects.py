"""Each broker defect does what its sentence says, and without it the broker does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import reference_broker
from reference_broker.broker.commands import AskFate, Commit, Fate, FateIs, Recover, Rollback, Send
from reference_broker.defects import BROKER_DEFECTS, CLIENT_DEFECTS, UnknownDefect, arm

from .broker.dialogue import Stage, bodies, flags, message


def _confirmed_send_not_stored(stage: Stage) -> bool:
    stage.send(1, *"abc")
    stage.crash()
    return stage.left() == ["a", "b"]


def _takeover_forgets_redelivered(stage: Stage) -> bool:
    stage.send(1, "a")
    stage.consume(1)
    stage.crash()
    stage.attach(2)
    return flags(stage.consume(2)) == [False]


def _recover_forgets_redelivered(stage: Stage) -> bool:
    stage.send(1, "a")
    stage.consume(1)
    stage.say(1, Recover(session="s", delivered=(1,)))
    stage.lose(1)
    stage.attach(2)
    return stage.consume(2)[0].delivery_count == 2


def _acknowledgement_not_stored(stage: Stage) -> bool:
    stage.send(1, "a")
    stage.consume(1)
    stage.acknowledge(1, 1)
    stage.crash()
    return stage.left() == ["a"]


def _acknowledge_takes_one(stage: Stage) -> bool:
    stage.send(1, "a", "b")
    stage.consume(1)
    stage.acknowledge(1, 1, 2)
    stage.lose(1)
    return stage.left() == ["b"]


def _acknowledge_takes_prefetched(stage: Stage) -> bool:
    stage.send(1, "a", "b")
    stage.consume(1)
    stage.acknowledge(1, 1)
    stage.lose(1)
    return stage.left() == []


def _repeated_send_stored_again(stage: Stage) -> bool:
    command = Send(session="s", envelope=message("a"), producer="p", sequence=1)
    stage.say(1, command, command)
    return stage.left() == ["a", "a"]


def _torn_commit(stage: Stage) -> bool:
    stage.send(1, "a")
    stage.consume(1)
    stage.acknowledge(1, 1, transaction="t")
    stage.send(1, "b", queue="r", transaction="t")
    stage.say(1, Commit(session="s", transaction="t"))
    stage.lose(1)
    return stage.left("r") == ["b"] and stage.left() == ["a"]


def _uncommitted_sends_visible(stage: Stage) -> bool:
    stage.send(1, "a", transaction="t")
    return stage.left() == ["a"]


def _rolled_back_sends_stored(stage: Stage) -> bool:
    stage.send(1, "a", transaction="t")
    stage.say(1, Rollback(session="s", transaction="t"))
    stage.crash()
    return stage.left() == ["a"]


def _commit_not_stored(stage: Stage) -> bool:
    stage.send(1, "a", transaction="t")
    stage.say(1, Commit(session="s", transaction="t"))
    stage.crash()
    return stage.left() == []


def _fate_inverted(stage: Stage) -> bool:
    stage.send(1, "a", transaction="t")
    stage.say(1, Commit(session="s", transaction="t"))
    return stage.say(1, AskFate(transaction="t")) == [FateIs(fate=Fate.ROLLED_BACK)]


def _requeue_reverses_order(stage: Stage) -> bool:
    stage.send(1, "a", "b")
    stage.consume(1)
    stage.lose(1)
    return stage.left() == ["b", "a"]


def _takeover_swaps_order(stage: Stage) -> bool:
    stage.send(1, "a", "b")
    stage.crash()
    return stage.left() == ["b", "a"]


def _nonpersistent_twice(stage: Stage) -> bool:
    for body in "abc":
        stage.say(1, Send(session="s", envelope=message(body, persistent=False)))
    found = stage.consume(1)
    return bodies(found) == ["a", "b", "c", "c"] and not any(flags(found))


def _prefetched_lost_with_link(stage: Stage) -> bool:
    stage.send(1, "a")
    stage.consume(1)
    stage.lose(1)
    return stage.left() == []


def _dead_client_keeps_its_messages(stage: Stage) -> bool:
    return _prefetched_lost_with_link(stage) and len(stage.disk.messages) == 1


def _body_altered(stage: Stage) -> bool:
    stage.send(1, "a", "b", "c")
    return bodies(stage.consume(1)) == ["a", "b", "b"]


def _expiry_ignored(stage: Stage) -> bool:
    stage.say(1, Send(session="s", envelope=message("a", expires_at_ms=stage.now + 1)))
    stage.pass_time(10)
    return stage.left() == ["a"]


SIGNS: dict[str, Callable[[Stage], bool]] = {
    name[1:].replace("_", "-"): sign
    for name, sign in list(globals().items())
    if name.startswith("_") and getattr(sign, "__module__", "") == __name__
}
ELSEWHERE = {"confirm-before-commit"}
"""Shown by tests/reference_broker/store/test_gate.py."""


def _seen(name: str, *armed: str) -> bool:
    stage = Stage(*armed)
    stage.attach(1)
    return SIGNS[name](stage)


@pytest.mark.parametrize("name", SIGNS)
def test_armed_it_shows(name: str) -> None:
    assert _seen(name, name)


@pytest.mark.parametrize("name", SIGNS)
def test_unarmed_it_does_not(name: str) -> None:
    assert not _seen(name)


def test_every_broker_defect_has_a_sign() -> None:
    assert {defect.name for defect in BROKER_DEFECTS} == SIGNS.keys() | ELSEWHERE


def test_every_defect_has_a_seam_in_the_code_and_names_what_it_violates() -> None:
    root = Path(reference_broker.__file__).parent
    code = "".join(path.read_text() for path in root.rglob("*.py") if path.name != "defects.py")
    for defect in BROKER_DEFECTS + CLIENT_DEFECTS:
        assert f'"{defect.name}"' in code, f"nothing asks for {defect.name}"
        assert defect.violates
    names = [defect.name for defect in BROKER_DEFECTS + CLIENT_DEFECTS]
    assert len(names) == len(set(names))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    assert arm(["torn-commit"], BROKER_DEFECTS) == {"torn-commit"}
    with pytest.raises(UnknownDefect, match="no such defect: torn-comit; known are: acknowledge"):
        arm(["torn-comit"], BROKER_DEFECTS)
