"""What the scenes of one process share: the broker, the adapter, the fault proxy, and where logs go.

Everything is started when the first scene needs it and ended when the session is. A broker that was killed is revived
for the next scene; one on which a test failed is thrown away, so that one failure does not become many. What cannot be
started fails every scene that needs it, at once.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from adapters.registry import make_adapter
from adapters.spi import ClientAdapter
from conformance.certification.classify import SETUP_ERRORS, SetUpFailed
from fixtures.brokers import Brokers
from fixtures.cluster import Cluster
from fixtures.definition import BrokerDefinition
from fixtures.faults import FAULTS
from fixtures.proxy import Preference, ProxyServer, obtain
from fixtures.recording import Journal
from fixtures.remote import RemoteBrokers
from fixtures.scene import Scene
from spark_analysis.log import LogWriter, log_path
from spark_analysis.schema import SCHEMA_VERSION, Header

T = TypeVar("T")

FAILED_STARTS = 3
"""After so many in a row no more are tried; a broker or proxy that never started is not tried twice."""


class Variant(msgspec.Struct, frozen=True):
    """One way to run a chapter test: a failover profile and a fault code."""

    failover: str
    fault: str

    def __str__(self) -> str:
        return f"{self.failover}-{self.fault}"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about a run."""

    definition: BrokerDefinition
    adapter: str
    logs: Path
    seed: int
    proxy: Preference = "auto"
    broker_defects: tuple[str, ...] = ()
    client_defects: tuple[str, ...] = ()


class Stage:
    """Made once per process."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.adapter: ClientAdapter = make_adapter(
            setting.adapter, setting.definition.adapter_settings(setting.adapter)
        )
        self._directory: Path | None = None
        self._proxy: ProxyServer | None = None
        self._cluster: Brokers | None = None
        self._version = ""
        self._has_started = False
        self._failed_starts = 0
        self._unusable: SetUpFailed | None = None

    def lacks(self, fault: str, needs: tuple[str, ...] = ()) -> str | None:
        """Why a variant does not apply to this broker and adapter, None if it does."""
        absent = {**self.setting.definition.lacks, **self.adapter.lacks}
        for need in (*sorted(FAULTS[fault].needs), *needs):
            alternatives = need.split("|")
            if all(name in absent for name in alternatives):
                return "; ".join(f"no {name}: {absent[name]}" for name in alternatives)
        return None

    # -- what is started ---------------------------------------------------------------------------------

    @property
    def proxy(self) -> ProxyServer:
        """The fault proxy, started at first use."""
        if self._proxy is None:
            self._proxy = self._start(lambda: obtain(self.setting.proxy, log_folder=self._folder("proxy-")))
        return self._proxy

    @property
    def cluster(self) -> Brokers:
        """The broker under test, started at first use; all of its nodes serve or wait."""
        if self._cluster is None:
            self._cluster = self._start(self._start_cluster)
        try:
            self._cluster.ensure_ready()
        except SETUP_ERRORS as error:
            self.discard_cluster()
            raise SetUpFailed(error) from None
        return self._cluster

    def _start_cluster(self) -> Brokers:
        definition, folder = self.setting.definition, self._folder("cluster-")
        cluster: Brokers
        if definition.remote is not None:
            cluster = RemoteBrokers(definition, folder)
        else:
            cluster = Cluster(definition, folder, defects=self.setting.broker_defects)
        cluster.start()
        return cluster

    def _start(self, start: Callable[[], T]) -> T:
        """Start something, unless it is known by now that it cannot be: each attempt may take a minute."""
        if self._unusable is not None:
            raise self._unusable
        try:
            started = start()
        except SETUP_ERRORS as error:
            failure = SetUpFailed(error)
            self._failed_starts += 1
            if not self._has_started or self._failed_starts == FAILED_STARTS:
                self._unusable = failure
            raise failure from None
        self._has_started = True
        self._failed_starts = 0
        return started

    @property
    def hopeless(self) -> bool:
        """Whether the first start of the first thing that all scenes need failed."""
        return self._unusable is not None and not self._has_started

    def _folder(self, prefix: str) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="jmsc-"))
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self._directory))

    def discard_cluster(self) -> None:
        """End the broker: the next scene gets a new one."""
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            self._version = self._version or cluster.version()
            cluster.close()

    # -- a scene on it -----------------------------------------------------------------------------------

    @contextmanager
    def scene(
        self, test: str, requirements: tuple[str, ...], variant: Variant, options: dict[str, str]
    ) -> Iterator[Scene]:
        """A scene with its log; whatever happens in the block, nothing of it is left when it ends."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", test.rpartition("::")[2]).strip("-")
        cluster, proxy = self.cluster, self.proxy
        path = log_path(self.setting.logs, test)
        with LogWriter(path, self._header(test, requirements, variant, options)) as writer:
            scene = Scene(
                name=name,
                cluster=cluster,
                adapter=self.adapter,
                proxy=proxy,
                journal=Journal(writer, name),
                fault=variant.fault,
                failover=variant.failover,
                seed=self.setting.seed,
                patience=self.setting.definition.deadlines(),
                client_defects=frozenset(self.setting.client_defects),
            )
            try:
                yield scene
            except Exception:
                scene.close_clients()
                self.discard_cluster()
                raise
            finally:
                scene.close()

    def _header(self, test: str, requirements: tuple[str, ...], variant: Variant, options: dict[str, str]) -> Header:
        return Header(
            schema=SCHEMA_VERSION,
            run=str(self.setting.seed),
            scenario=test,
            test=test,
            requirements=requirements,
            adapter=self.setting.adapter,
            broker=self.setting.definition.name,
            failover=variant.failover,
            fault=variant.fault,
            seed=self.setting.seed,
            started_wall_ms=time.time_ns() // 1_000_000,
            options=options,
        )

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End everything that was started and remove its directory."""
        self.discard_cluster()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def versions(self) -> dict[str, str]:
        """Of broker, adapter libraries and fault proxy, as far as they were used."""
        found = dict(self.adapter.versions())
        version = self._cluster.version() if self._cluster is not None else self._version
        if version:
            found[self.setting.definition.title] = version
        if self._proxy is not None:
            found["fault proxy"] = str(self._proxy)
        return found


STAGE = pytest.StashKey[Stage]()


def end_stage(config: pytest.Config) -> dict[str, str]:
    """Close the stage of this process; the versions that it met."""
    stage = config.stash[STAGE]
    del config.stash[STAGE]
    try:
        return stage.versions()
    finally:
        stage.close()
