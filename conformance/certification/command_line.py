"""What the command line of a conformance run says, read once and checked before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from adapters.registry import adapter_class
from adapters.spi import AdapterError
from conformance.certification.profiles import NAMES, CertificationProfile, certification_profile
from conformance.certification.stage import Setting
from conformance.errors import UserError
from fixtures.definition import BrokerDefinition, load_definition
from fixtures.definition_errors import DefinitionError
from fixtures.proxy import Preference
from spark_analysis.java import JavaMissing, find_java
from spark_analysis.schema import LOG_SUFFIX

SETTING = pytest.StashKey[Setting]()
REFUSAL = pytest.StashKey[str]()
PROFILE = pytest.StashKey[CertificationProfile]()
FAILOVERS = pytest.StashKey[tuple[str, ...]]()


def add_options(parser: pytest.Parser) -> None:
    """The options of a conformance run."""
    group = parser.getgroup("jms-conformance", "JMS conformance of a message broker")
    group.addoption("--broker", default="reference", help="name or TOML file of the broker definition")
    group.addoption("--adapter", help="client API: core, stomp (default: the definition's)")
    group.addoption("--profile", default="full", help=f"certification profile: {', '.join(NAMES)} (default: full)")
    group.addoption(
        "--failover", action="append", choices=("RA", "RC", "NF"), help="profile RA, RC or NF (default: claimed)"
    )
    group.addoption("--seed", type=int, default=1, help="seed of everything that is chosen at random (default: 1)")
    group.addoption("--logs", type=Path, help="directory for delivery logs (default: pytest's temporary directory)")
    group.addoption("--requirement", action="append", help="only tests that show this requirement (repeatable)")
    group.addoption(
        "--proxy", default="auto", choices=get_args(Preference), help="fault proxy: auto, or embedded for the stand-in"
    )
    group.addoption("--judge", default="spark", choices=("spark", "inline"), help="judge of the logs (default: spark)")
    group.addoption("--results", type=Path, help="write all results to this file, for certification")
    group.addoption("--progress", type=Path, help="append a line for each step to this file")
    group.addoption("--broker-defect", action="append", default=[], help="arm a defect of the reference broker")
    group.addoption("--client-defect", action="append", default=[], help="arm a defect of the failover client")


def setting_of(config: pytest.Config) -> Setting:
    """What the command line says; a UsageError for what cannot be."""
    if REFUSAL in config.stash:
        raise pytest.UsageError(config.stash[REFUSAL])
    if SETTING not in config.stash:
        try:
            config.stash[SETTING] = _read_setting(config)
        except (DefinitionError, AdapterError, JavaMissing, UserError) as error:
            config.stash[REFUSAL] = str(error)
            raise pytest.UsageError(str(error)) from error
    return config.stash[SETTING]


def _read_setting(config: pytest.Config) -> Setting:
    definition = load_definition(config.getoption("--broker"))
    profile = certification_profile(config.getoption("--profile"))
    config.stash[PROFILE] = profile
    config.stash[FAILOVERS] = _failovers(config, definition, profile)
    adapter = config.getoption("--adapter") or definition.default_adapter
    if adapter not in definition.adapters:
        offered = ", ".join(definition.adapters)
        raise UserError(
            f"Broker {definition.name} is not reached by adapter {adapter!r}; its definition has: {offered}."
        )
    adapter_class(adapter)
    if config.getoption("--judge") == "spark" and not config.option.collectonly:
        find_java()
    return Setting(
        definition=definition,
        adapter=adapter,
        logs=_log_directory(config),
        seed=config.getoption("--seed"),
        proxy=config.getoption("--proxy"),
        broker_defects=tuple(config.getoption("--broker-defect")),
        client_defects=tuple(config.getoption("--client-defect")),
    )


def _failovers(config: pytest.Config, definition: BrokerDefinition, profile: CertificationProfile) -> tuple[str, ...]:
    asked = config.getoption("--failover")
    return tuple(asked) if asked else tuple(profile.failovers(definition.failover))


def _log_directory(config: pytest.Config) -> Path:
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        return Path(worker_input["jmsc_logs"])
    chosen: Path | None = config.getoption("--logs")
    directory = chosen or config._tmp_path_factory.mktemp("delivery-logs")  # type: ignore[attr-defined]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _refuse_used(directory)
        (directory / ".writable").touch()
        (directory / ".writable").unlink()
    except OSError as error:
        raise UserError(
            f"No delivery logs can be written to {directory}: {error.strerror}; choose another --logs."
        ) from error
    return directory.resolve()


def _refuse_used(directory: Path) -> None:
    """Logs of another run beside ours would be judged as if they were ours."""
    if any(directory.glob(f"*{LOG_SUFFIX}")):
        raise UserError(f"{directory} holds delivery logs of an earlier run; empty it or choose another --logs.")
