"""Pages for people, made from certificates and nothing else."""

from conformance.report.page import write_report

__all__ = ["write_report"]
