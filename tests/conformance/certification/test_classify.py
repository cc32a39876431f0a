"""What is a word about the product, and what is not."""

import pytest

from conformance.certification.classify import NOT_APPLICABLE, SetUpFailed, outcome_of, worst
from fixtures.cluster import ClusterError
from fixtures.nodes import NodeError
from fixtures.proxy import CannotObtain, FaultImpossible
from fixtures.scene import FaultDidNotHappen
from fixtures.waiting import NotInTime
from reference_broker.jms import JMSException
from spark_analysis.log import LogError


def report(outcome: str, longrepr: object = None) -> pytest.TestReport:
    return pytest.TestReport("test", ("test.py", 1, "test"), {}, outcome, longrepr, "call")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("when", "error", "outcome"),
    [
        ("call", AssertionError("two copies"), "failed"),
        ("call", NotInTime("it arrives", 1.0), "failed"),
        ("call", JMSException("refused"), "failed"),
        ("teardown", JMSException("the drain"), "failed"),
        ("call", pytest.fail.Exception("said so"), "failed"),
        ("call", FaultDidNotHappen("no loss"), "harness-failed"),
        ("call", FaultImpossible("no reset"), "harness-failed"),
        ("teardown", LogError("disk full"), "harness-failed"),
        ("call", KeyError("our own bug"), "harness-failed"),
        ("setup", AssertionError("our own bug"), "harness-failed"),
        ("setup", SetUpFailed(NodeError("died")), "setup-failed"),
        ("call", ClusterError("nobody serves"), "setup-failed"),
        ("setup", CannotObtain("no proxy"), "setup-failed"),
    ],
)
def test_an_error_is_of_the_product_the_set_up_or_the_harness(when: str, error: BaseException, outcome: str) -> None:
    assert outcome_of(when, report("failed"), error) == outcome


def test_a_skip_is_not_applicable_only_with_its_reason() -> None:
    assert outcome_of("setup", report("skipped", ("f", 1, f"Skipped: {NOT_APPLICABLE}no xa")), None) == "not-applicable"
    assert outcome_of("setup", report("skipped", ("f", 1, "Skipped: flaky")), None) == "untested"
    assert outcome_of("call", report("passed"), None) == "passed"


def test_of_two_phases_the_worse_counts() -> None:
    assert worst("passed", "failed") == "failed"
    assert worst("failed", "harness-failed") == "failed"
    assert worst("untested", "not-applicable") == "untested"
