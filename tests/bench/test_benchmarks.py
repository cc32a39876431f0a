"""Each benchmark runs to its end and finds figures; what they are is nobody's verdict on a busy machine."""

from importlib import import_module

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.__main__ import BENCHMARKS, app
from bench.brokers import running
from bench.comparison import Case, Result, interleaved, table_of
from fixtures.definition import load_definition
from fixtures.provision import missing_programs


def text_of(result: Result) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table_of(result))
    return captured.get()


def test_contenders_take_turns_forwards_and_backwards_and_the_first_round_is_not_counted() -> None:
    turns = []

    def contender(name: str):
        def turn() -> dict[str, float]:
            turns.append(name)
            return {"case": float(len(turns))}

        return turn

    found = interleaved({"a": contender("a"), "b": contender("b")}, rounds=3)
    assert turns == ["b", "a", "a", "b", "b", "a", "a", "b"]
    assert found == {"case": {"a": [3.0, 6.0, 7.0], "b": [4.0, 5.0, 8.0]}}


def test_the_ratio_is_that_of_the_medians_and_beside_it_stands_the_middle_half_of_the_rounds() -> None:
    series = {"peer": [10.0, 10.0, 20.0, 10.0, 10.0], "other": [5.0, 9.0, 18.0, 9.0, 9.0]}
    text = text_of(Result("title", [Case("sends", "messages/s", "peer", series)], ("left out: a broker",)))
    assert "0.900" in text
    assert "0.900 to 0.900" in text
    assert "5.0 to 18.0" in text
    assert "left out: a broker" in text


def test_a_broker_that_is_not_installed_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBITMQ_SERVER", "/nowhere/rabbitmq-server")
    with running(["rabbitmq"]) as (clusters, remarks):
        assert clusters == {}
    assert "RabbitMQ" in remarks[0]
    assert "/nowhere/rabbitmq-server" in remarks[0]


def test_an_unknown_benchmark_is_an_error_of_the_command_line() -> None:
    done = CliRunner().invoke(app, ["speed"])
    assert done.exit_code == 2
    assert "speed" in done.output


def hide(monkeypatch: pytest.MonkeyPatch, *variables: str) -> None:
    """Starting a JVM or an Erlang machine is for the tests of the definitions."""
    for variable in variables:
        monkeypatch.setenv(variable, "/nowhere")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_runs_with_tiny_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "ACTIVEMQ_HOME", "RABBITMQ_SERVER")
    result: Result = import_module(f"bench.{name}").measure(0.001)
    assert result.cases
    for case in result.cases:
        assert case.peer in case.series
        assert all(figures and min(figures) > 0 for figures in case.series.values())
    if name in ("throughput", "failover"):
        assert any("ActiveMQ" in remark for remark in result.remarks)
    assert result.title in text_of(result).replace("\n", " ")


@pytest.mark.skipif(
    bool(missing_programs(load_definition("rabbitmq"))), reason="RabbitMQ is not installed on this machine"
)
def test_the_load_is_understood_by_another_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "ACTIVEMQ_HOME")
    result: Result = import_module("bench.throughput").measure(0.001)
    assert all(len(case.series) == 2 for case in result.cases)
