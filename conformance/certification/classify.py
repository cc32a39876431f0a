"""From what a test raised to one of the suite's outcomes.

A failed conformance test must say something about the broker or its client. What went wrong in our own machinery is
`harness-failed`, what could not be set up is `setup-failed`: neither is a word about the product, and neither is green.
"""

from __future__ import annotations

import pytest

from adapters.spi import AdapterError
from fixtures.cluster import ClusterError
from fixtures.definition_errors import DefinitionError
from fixtures.nodes import NodeError
from fixtures.processes import ProcessDied
from fixtures.provision import ProgramMissing
from fixtures.proxy import CannotObtain, FaultImpossible, ProxyFailed
from fixtures.scene import FaultDidNotHappen
from reference_broker.jms import JMSException
from spark_analysis.log import LogError


class SetUpFailed(pytest.fail.Exception):  # type: ignore[name-defined,misc]
    """What a test needs could not be started. The message says why; a traceback through the suite says nothing."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}", pytrace=False)


SETUP_ERRORS = (
    AdapterError,
    CannotObtain,
    ClusterError,
    DefinitionError,
    NodeError,
    ProcessDied,
    ProgramMissing,
    ProxyFailed,
)
HARNESS_ERRORS = (FaultDidNotHappen, FaultImpossible, LogError)
NOT_APPLICABLE = "not applicable: "
"""How the reason of a skip begins that means `not-applicable`; any other skip hides something and is no pass."""


def outcome_of(when: str, report: pytest.TestReport, error: BaseException | None) -> str:
    """One of the values of `conformance.outcomes`, for one phase of one test."""
    if report.outcome == "passed":
        return "passed"
    if report.outcome == "skipped":
        return "not-applicable" if NOT_APPLICABLE in str(report.longrepr) else "untested"
    if isinstance(error, (SetUpFailed, *SETUP_ERRORS)):
        return "setup-failed"
    if isinstance(error, HARNESS_ERRORS):
        return "harness-failed"
    if when != "setup" and isinstance(error, AssertionError | JMSException | pytest.fail.Exception):
        return "failed"
    return "harness-failed"


def worst(first: str, second: str) -> str:
    """Of two phases the outcome that counts."""
    order = ("passed", "not-applicable", "untested", "setup-failed", "harness-failed", "failed")
    return max(first, second, key=order.index)
