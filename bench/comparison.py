"""How a benchmark compares: rounds of A B A B, medians, and the ratio of each contender to its peer.

The contenders of a case take turns within each round, forwards in one round and backwards in the next, so that all of
them meet the same machine, however loaded it is. The first round warms up and is not counted. Beside the ratio of the
medians stands where the middle half of the ratios round by round lies: where that is wide, the machine was not steady
and the ratio says little.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

Figures = Mapping[str, float]
"""What one contender did in one round, by case."""


class BenchmarkError(Exception):
    """What is measured did not do its work: which part, and what happened."""


@dataclass(frozen=True)
class Case:
    """One comparison: the series of each contender, round by round, the peer's among them."""

    name: str
    unit: str
    peer: str
    series: Mapping[str, list[float]]


@dataclass(frozen=True)
class Result:
    """What a benchmark found, with remarks for its reader: what was left out, and why."""

    title: str
    cases: list[Case]
    remarks: tuple[str, ...] = ()


def interleaved(contenders: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """By case, the figures of each contender, one for each counted round."""
    cases: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for name in list(contenders)[:: 1 if number % 2 else -1]:
            for case, figure in contenders[name]().items():
                series = cases.setdefault(case, {contender: [] for contender in contenders})
                if number:
                    series[name].append(figure)
    return cases


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second, of a piece of work that does `count`."""
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def table_of(result: Result) -> Group:
    """The result as a table, its remarks below."""
    table = Table(title=result.title, title_justify="left", title_style="bold")
    table.add_column("case")
    table.add_column("contender")
    for column in ("median", "lowest to highest", "ratio to the peer", "middle half of rounds"):
        table.add_column(column, justify="right")
    for case in result.cases:
        peer = case.series[case.peer]
        for number, (name, series) in enumerate(case.series.items()):
            table.add_row(
                f"{case.name} ({case.unit})" if not number else "",
                name,
                f"{statistics.median(series):,.1f}",
                f"{min(series):,.1f} to {max(series):,.1f}",
                *(("peer", "") if name == case.peer else _ratios(series, peer)),
            )
        table.add_section()
    return Group(table, *(Text(remark) for remark in result.remarks))


def _ratios(series: list[float], peer: list[float]) -> tuple[str, str]:
    paired = [one / other for one, other in zip(series, peer, strict=True)]
    middle = ""
    if len(paired) > 1:
        low, _, high = statistics.quantiles(paired, n=4, method="inclusive")
        middle = f"{low:.3f} to {high:.3f}"
    return f"{statistics.median(series) / statistics.median(peer):.3f}", middle


def machine() -> str:
    """Where and when this was measured, and how busy it was there."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    where = f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}"
    return f"{when}; {where}, Python {platform.python_version()}; load {load}"


def show(result: Result, console: Console) -> None:
    """Print it."""
    console.print(table_of(result))
    console.print(machine(), style="dim")
    console.print()
