"""`jms-conformance certify` with the tests of a single requirement: all else is the command itself.

A certificate over a part of a profile would be none, so the command has no such option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance import certify, cli
from conformance.certification.running import Output, Step, run_chapters
from conformance.record import RunResults

ONLY = ("--requirement", "SND-02")


def _run_few(output: Output, options: Sequence[str], workers: int, told: Callable[[Step], None]) -> RunResults:
    return run_chapters(output, [*options, *ONLY], workers, told)


if __name__ == "__main__":
    certify.run_chapters = _run_few
    cli.main()
