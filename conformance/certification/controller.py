"""The controller of a run: gathers what all tests left, has the logs judged, and writes the results.

Without xdist it lives in the process that runs the tests, with xdist in the one that hands them out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.registry import adapter_class
from conformance.certification import verdicts
from conformance.certification.command_line import FAILOVERS, PROFILE, setting_of
from conformance.certification.stage import STAGE, end_stage
from conformance.certification.termination import interrupt_when_terminated
from conformance.outcomes import ExitStatus
from conformance.record import PROPERTY, Record, RunResults, decode
from spark_analysis.java import JavaMissing
from spark_analysis.log import LogError
from spark_analysis.session import SparkFailed

QUIET_EXITS = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


class Controller:
    """A plugin object, registered once a chapter test is to be run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._records: dict[str, Record] = {}
        self._expected: dict[str, None] = {}
        self._versions: dict[str, str] = {}
        self._tallies: list[dict[str, Any]] = []
        self._unjudged = ""

    # -- what comes in -----------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the record that came with a report."""
        for key, value in report.user_properties:
            if key == PROPERTY and report.when in ("call", "teardown"):
                record = decode(str(value))
                self._records[record.test] = record
                if record.source == "test":
                    self._progress({"test": record.test, "outcome": record.outcome})

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell an xdist worker, before it starts, where logs go."""
        interrupt_when_terminated()
        node.workerinput["jmsc_logs"] = str(setting_of(self._config).logs)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """An xdist worker has ended: it says which versions it met."""
        self._versions.update((getattr(node, "workeroutput", None) or {}).get("jmsc_versions", {}))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell how many tests there are."""
        if session.items:
            self._expect([item.nodeid for item in session.items if "variant" in getattr(item, "fixturenames", ())])
            self._progress({"total": len(session.items)})

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """With xdist only the workers collect."""
        self._expect(ids)
        self._progress({"total": len(ids)})

    def _expect(self, tests: list[str]) -> None:
        self._expected.update(dict.fromkeys(tests))

    # -- the verdicts ------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """After all tests, the verdicts on their logs."""
        result = yield
        if not self._config.option.collectonly:
            self._end_own_stage()
            self._judge(session)
        return result

    def _judge(self, session: pytest.Session) -> None:
        tests = dict(self._records)
        if not any(record.log for record in tests.values()):
            return
        self._progress({"judging": len(tests)})
        logs = setting_of(self._config).logs
        try:
            findings, self._tallies, versions = verdicts.find(logs, self._config.getoption("--judge"))
        except (LogError, SparkFailed, JavaMissing) as error:
            self._unjudged = f"no verdict on the delivery logs: {error}"
            pytest.exit(self._unjudged, returncode=ExitStatus.NO_VERDICT)
        self._versions.update(versions)
        records = [verdicts.as_record(finding, tests) for finding in findings]
        session.testscollected += len(records)
        verdicts.report(session, records)

    # -- the end -----------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """Write the results."""
        result = yield
        self._end_own_stage()
        path: Path | None = self._config.getoption("--results")
        if path is not None:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self._results(int(exitstatus)))))
        return result

    def _end_own_stage(self) -> None:
        if STAGE in self._config.stash:
            self._versions.update(end_stage(self._config))

    def _results(self, exitstatus: int) -> RunResults:
        config, setting = self._config, setting_of(self._config)
        adapter = adapter_class(setting.adapter)
        versions = {"Python": sys.version.split()[0], **self._versions}
        interrupted = "" if exitstatus in QUIET_EXITS else self._unjudged or f"pytest ended with status {exitstatus}"
        return RunResults(
            broker=setting.definition.name,
            broker_title=setting.definition.title,
            adapter=setting.adapter,
            engine=adapter.engine,
            profile=config.stash[PROFILE].name,
            failovers=config.stash[FAILOVERS],
            seed=setting.seed,
            lacks={**setting.definition.lacks, **adapter.lacks},
            proxy=versions.pop("fault proxy", ""),
            versions=versions,
            expected=tuple(self._expected),
            records=list(self._records.values()),
            tallies=self._tallies,
            interrupted=interrupted,
            complete=not interrupted,
        )

    def _progress(self, step: dict[str, Any]) -> None:
        path: Path | None = self._config.getoption("--progress")
        if path is not None:
            with path.open("ab") as file:
                file.write(msgspec.json.encode({"at": time.time(), **step}) + b"\n")
