"""`python -m reference_broker node ...`: the same as `jms-conformance broker node ...`."""

from reference_broker.cli import main

main()
