"""Running the chapters against a broker: from pytest's items to outcomes, verdicts and a certificate."""
