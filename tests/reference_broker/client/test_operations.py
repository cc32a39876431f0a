from __future__ import annotations

from reference_broker.client.operations import ON_LOSS, OnLoss, Operation, on_loss


def test_every_operation_has_its_rule() -> None:
    assert set(ON_LOSS) == set(Operation)


def test_a_send_is_repeated_only_under_protection() -> None:
    assert on_loss(Operation.SEND, protected=True) is OnLoss.RETRY
    assert on_loss(Operation.SEND, protected=False) is OnLoss.REPORT


def test_protection_changes_no_other_rule() -> None:
    for operation in set(Operation) - {Operation.SEND}:
        assert on_loss(operation, protected=True) is on_loss(operation) is ON_LOSS[operation]
