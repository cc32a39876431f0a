"""What Spark counts fits the certificate, field by field."""

import msgspec

from conformance.certificate import Tally
from spark_analysis.rules import ScenarioTally


def test_the_certificate_has_a_place_for_everything_that_spark_counts():
    counted = set(ScenarioTally.__struct_fields__) - {"scenario"}
    assert counted | {"scenarios"} == set(Tally.__struct_fields__)
    zeros = {name: "AUTO" if name in {"mode", "fault", "failover"} else 0 for name in counted}
    assert msgspec.convert(zeros, Tally).mode == "AUTO"
