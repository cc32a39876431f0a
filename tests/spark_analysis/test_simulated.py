"""A correct broker is never failed by any rule; a planted fault is always found."""

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.spark_analysis.scene import Scene
from tests.spark_analysis.simulated import DEFECTS, Simulation

MODES = ("AUTO", "DUPS_OK", "CLIENT", "TRANSACTED")
tapes = st.binary(min_size=8, max_size=160)
thorough = settings(max_examples=400, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def simulated(mode: str, tape: bytes) -> Simulation:
    """A run whose choices are read from a tape; after its end every choice is the first."""
    choices = iter(tape)
    simulation = Simulation(mode, lambda bound: next(choices, 0) % bound)
    for _ in range(len(tape) // 3):
        simulation.act()
    return simulation


def told(scene: Scene) -> str:
    """The log and its failures, for a person."""
    lines = [
        f"{e.position} {e.kind} {e.outcome} {e.connection}/{e.session} {e.message} {e.transaction}"
        f"{' again' if e.redelivered else ''} {' '.join(e.messages)}"
        for e in scene.events
    ]
    lines += [f"{f.rule}: {f.outcome} {f.detail}" for f in scene.findings().values() if f.outcome == "failed"]
    return "\n".join(lines)


@given(st.sampled_from(MODES), tapes)
@thorough
def test_a_correct_broker_is_never_failed(mode: str, tape: bytes) -> None:
    simulation = simulated(mode, tape)
    simulation.finish()
    assert simulation.scene.failed() == set(), told(simulation.scene)
    assert simulation.scene.outcomes().get("lost", "passed") == "passed"


@given(st.sampled_from(MODES), st.sampled_from(sorted(DEFECTS)), tapes)
@thorough
def test_a_planted_defect_is_always_found(mode: str, defect: str, tape: bytes) -> None:
    simulation = simulated(mode, tape)
    assume(getattr(simulation, defect)())
    simulation.finish()
    assert simulation.scene.failed() & DEFECTS[defect], told(simulation.scene)


def test_every_defect_can_be_planted_in_every_mode() -> None:
    """So that the property above is about something."""
    for mode in MODES:
        for defect in DEFECTS:
            planted = 0
            for seed in range(60):
                numbers = iter(range(seed, 10**9, 7))
                simulation = Simulation(mode, lambda bound, n=numbers: (next(n) * 2654435761 >> 7) % bound)
                for _ in range(40):
                    simulation.act()
                planted += getattr(simulation, defect)()
            assert planted or (mode, defect) == ("DUPS_OK", "duplicate"), f"{defect} in {mode}"


@given(st.sampled_from(MODES), tapes, st.integers(0, 100))
@settings(thorough, max_examples=100)
def test_no_truncated_log_passes_or_crashes(mode: str, tape: bytes, percent: int) -> None:
    simulation = simulated(mode, tape)
    simulation.finish()
    del simulation.scene.events[len(simulation.scene.events) * percent // 100 :]
    simulation.scene.finished = False
    assert "passed" not in simulation.scene.outcomes().values()
