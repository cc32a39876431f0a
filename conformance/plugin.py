"""The pytest plugin: `pytest --pyargs conformance --broker my-broker.toml -k failover -n 2`.

Chapter tests take the `scene` fixture and say by markers what they show:

    @pytest.mark.requirement("SND-02", faults=("drop-reply",), profiles=("RC", "NF"))
    @pytest.mark.needs("producer-sequence")
    def test_...(scene): ...

Each runs once for every failover profile and fault that its markers and the certification profile name. On the
controller, after all tests, the delivery logs are judged and each verdict is reported as a test result.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator

import pytest

from conformance.catalogue import load
from conformance.catalogue.collect import MARKER, bindings_of
from conformance.certification.classify import NOT_APPLICABLE, outcome_of, worst
from conformance.certification.command_line import FAILOVERS, PROFILE, SETTING, add_options, setting_of
from conformance.certification.controller import Controller
from conformance.certification.stage import STAGE, Stage, Variant, end_stage
from conformance.certification.termination import interrupt_when_terminated
from conformance.record import PROPERTY, Record, Source, encode
from fixtures.scene import FaultDidNotHappen, Scene

SCENE = pytest.StashKey[Scene]()
OUTCOME = pytest.StashKey[tuple[str, str, float]]()
CALLED = pytest.StashKey[str]()
"""The outcome of the test's own code, once that has come to its end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a conformance run."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, and gather results where this is no xdist worker."""
    config.addinivalue_line("markers", MARKER)
    config.addinivalue_line("markers", "needs(*capabilities): not applicable to a broker or adapter that lacks one")
    config.addinivalue_line("markers", "log_options(dict): options of the delivery log's header, which the rules read")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(config), "jms-conformance-controller")


@pytest.hookimpl(trylast=True)  # after pytest has ended a scene that an interruption left open
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In an xdist worker: end what was started, and tell the controller which versions were met."""
    config = session.config
    if hasattr(config, "workerinput") and STAGE in config.stash:
        config.workeroutput["jmsc_versions"] = end_stage(config)  # type: ignore[attr-defined]


# -- collection ----------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One variant for each failover profile and fault that the markers name and the profile wants."""
    if "variant" not in metafunc.fixturenames:
        return
    try:
        setting_of(metafunc.config)
    except pytest.UsageError:  # raised again, once for all, when the collection is at its end: here it is a traceback
        metafunc.parametrize("variant", [None])
        return
    profile = metafunc.config.stash[PROFILE]
    variants: dict[Variant, None] = {}
    for marker in metafunc.definition.iter_markers("requirement"):
        faults = profile.faults(marker.kwargs.get("faults", ("none",)))
        for failover in metafunc.config.stash[FAILOVERS]:
            if failover in marker.kwargs.get("profiles", ("RA", "RC", "NF")):
                variants.update(dict.fromkeys(Variant(failover, fault) for fault in faults))
    metafunc.parametrize("variant", list(variants), ids=str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the certification profile or `--requirement` does not want."""
    chapters = [item for item in items if "variant" in getattr(item, "fixturenames", ())]
    if not chapters:
        return
    setting_of(config)
    interrupt_when_terminated()
    catalogue = load()
    wanted_ids = set(config.getoption("--requirement") or ())
    for unknown in sorted(wanted_ids - set(catalogue.requirements)):
        raise pytest.UsageError(f"There is no requirement {unknown!r} in the catalogue.")
    left_out = []
    for item in chapters:
        shown = {name for binding in bindings_of(item) for name in binding.requirements}
        wanted = any(config.stash[PROFILE].wants(catalogue.requirement(name)) for name in shown)
        if not wanted or (wanted_ids and not shown & wanted_ids) or _is_empty(item):
            left_out.append(item)
    if left_out:
        gone = set(left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in gone]


def _is_empty(item: pytest.Item) -> bool:
    """A test none of whose failover profiles is run: pytest makes one skipped item of an empty parameter set."""
    call = getattr(item, "callspec", None)
    return call is not None and not isinstance(call.params.get("variant"), Variant)


# -- running -------------------------------------------------------------------------------------------------


@pytest.fixture
def scene(request: pytest.FixtureRequest, variant: Variant) -> Iterator[Scene]:
    """The scene of this test; not applicable where broker or adapter lack what the test needs."""
    config = request.config
    setting = setting_of(config)
    if STAGE not in config.stash:
        config.stash[STAGE] = Stage(setting)
    stage = config.stash[STAGE]
    needs = tuple(name for marker in request.node.iter_markers("needs") for name in marker.args)
    reason = stage.lacks(variant.fault, needs)
    if reason is not None:
        pytest.skip(NOT_APPLICABLE + reason)
    options: dict[str, str] = {}
    for marker in request.node.iter_markers("log_options"):
        options.update(marker.args[0])
    with stage.scene(request.node.nodeid, _requirements(request.node, variant), variant, options) as made:
        request.node.stash[SCENE] = made
        yield made
        ended = request.node.stash.get(CALLED, None)
        if ended is None:  # the run was interrupted inside the test: nothing more is to be learned from it
            return
        made.finish()
        if ended != "passed":
            stage.discard_cluster()
        elif not made.fault_happened:
            raise FaultDidNotHappen(f"the test ended without its fault {variant.fault}: its result means nothing")


def _requirements(item: pytest.Item, variant: Variant) -> tuple[str, ...]:
    """What this variant shows: a marker speaks only of the faults and failover profiles that it names."""
    said = [b for b in bindings_of(item) if variant.fault in b.faults and variant.failover in b.profiles]
    return tuple(dict.fromkeys(name for binding in said for name in binding.requirements))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Classify each phase of a chapter test; the teardown's report carries the record of the whole."""
    report = yield
    if "variant" not in getattr(item, "fixturenames", ()):
        return report
    outcome, message, seconds = item.stash.get(OUTCOME, ("passed", "", 0.0))
    error = call.excinfo.value if call.excinfo is not None else None
    now = outcome_of(report.when or "call", report, error)
    if now != "passed":
        outcome = worst(outcome, now)
        message = message or _message(report, error)
    item.stash[OUTCOME] = (outcome, message, seconds + report.duration)
    if report.when == "call":
        item.stash[CALLED] = now
    if now == "setup-failed" and STAGE in item.config.stash and item.config.stash[STAGE].hopeless:
        item.session.shouldfail = "nothing can be tested: what all tests need cannot be started"
    if report.when == "teardown":
        report.user_properties.append((PROPERTY, encode(_record(item))))
    return report


def _message(report: pytest.TestReport, error: BaseException | None) -> str:
    if report.outcome == "skipped":
        longrepr = report.longrepr
        return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr).removeprefix("Skipped: ")
    if isinstance(error, pytest.fail.Exception):
        return str(error)[:2000]
    return f"{type(error).__name__}: {error}"[:2000] if error is not None else str(report.longrepr)[-2000:]


def _record(item: pytest.Item) -> Record:
    outcome, message, seconds = item.stash[OUTCOME]
    variant: Variant = item.callspec.params["variant"]  # type: ignore[attr-defined]
    made = item.stash.get(SCENE, None)
    return Record(
        source=Source.TEST,
        test=item.nodeid,
        requirements=_requirements(item, variant),
        outcome=outcome,
        failover=variant.failover,
        fault=variant.fault,
        seconds=round(seconds, 3),
        failover_seconds=tuple(made.failover_seconds) if made else (),
        message=message,
        log=made.journal.path.name if made else "",
        evidence=tuple(made.evidence) if made else (),
        replay=_replay(item),
    )


def _replay(item: pytest.Item) -> str:
    setting = item.config.stash[SETTING]
    name = item.nodeid.rpartition("/")[2]
    command = ["pytest", "--pyargs", f"conformance.chapters.{name.removesuffix('.py').replace('.py::', '::', 1)}"]
    command += ["--broker", str(item.config.getoption("--broker")), "--adapter", setting.adapter]
    command += ["--seed", str(setting.seed)]
    for defect in setting.broker_defects:
        command += ["--broker-defect", defect]
    for defect in setting.client_defects:
        command += ["--client-defect", defect]
    return shlex.join(command)
