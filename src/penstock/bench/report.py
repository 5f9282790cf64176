"""Report results: a progress line during a run, tables for people, a JSON file for programs.

Tables go to standard output, progress to standard error and only to a terminal. This module only
chooses units and computes nothing else.
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bench import process_stats
from penstock.bench.bench_error import BenchError
from penstock.bench.chart import ChartRow, render
from penstock.bench.comparison import Comparison, Effort, Series
from penstock.bench.probes.figures import Figure
from penstock.bench.sample_stats import Spread

if TYPE_CHECKING:
    from rich.table import Table

JSON_VERSION = 1
PIPE_WIDTH = 200
NOT_KNOWN = "–"
DEFINITIONS = (
    "msg/s: messages published (requested, read) per second until all are delivered (answered); "
    "cpu-s/M: server CPU-seconds per million of them;\n± is the distance between the extremes of "
    "all rounds as a share of the median; rate ×: ours ÷ reference; CPU ×: reference ÷ ours "
    "(above 1 is better)"
)


class ProgressLine:
    """One line on the terminal, rewritten in place; no output without a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._shown:
            print(f"\r\x1b[K{text} …", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def show_comparisons(comparisons: Sequence[Comparison]) -> None:
    first = comparisons[0]
    ours, reference = first.ours.label, first.reference.label
    table = _table(f"{ours} and {reference}, medians")
    for heading in (f"{ours} msg/s", f"{reference} msg/s", "rate ×"):
        table.add_column(heading, justify="right")
    for heading in (f"{ours} cpu-s/M", f"{reference} cpu-s/M", "CPU ×", "peak RSS"):
        table.add_column(heading, justify="right")
    for one in comparisons:
        table.add_row(
            one.scenario.title,
            _rate(one.ours.rate),
            _rate(one.reference.rate),
            _factor(one.rate_ratio),
            _cpu(one.ours.cpu_per_million),
            _cpu(one.reference.cpu_per_million),
            _factor(one.cpu_advantage),
            f"{_memory(one.ours.rss_peak_bytes)} / {_memory(one.reference.rss_peak_bytes)}",
        )
    both = [series for one in comparisons for series in (one.ours, one.reference)]
    _print(table, *_latency_tables(both), DEFINITIONS)


def show_series(series: Sequence[Series]) -> None:
    table = _table(f"{series[0].label}, medians")
    for heading in ("msg/s", "MB/s", "cpu-s/M", "peak RSS"):
        table.add_column(heading, justify="right")
    for one in series:
        table.add_row(
            one.scenario.title,
            _rate(one.rate),
            f"{one.megabytes_per_second.median:.1f}" if one.megabytes_per_second else NOT_KNOWN,
            _cpu(one.cpu_per_million),
            _memory(one.rss_peak_bytes),
        )
    _print(table, *_latency_tables(series), DEFINITIONS.partition("; rate")[0])


def show_figures(title: str, columns: Mapping[str, Sequence[Figure]]) -> None:
    table = _table(title)
    for label in columns:
        table.add_column(label, justify="right")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(cells[0].name, *(_figure(cell) for cell in cells))
    _print(table)


def write_text(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot write {path}: {error.strerror}") from None


def comparison_json(comparisons: Sequence[Comparison], effort: Effort) -> str:
    scenarios = [
        {
            "name": one.scenario.name,
            "title": one.scenario.title,
            "rate_ratio": one.rate_ratio,
            "cpu_advantage": one.cpu_advantage,
            "ours": _series_json(one.ours),
            "reference": _series_json(one.reference),
        }
        for one in comparisons
    ]
    return _dump({"effort": asdict(effort), "scenarios": scenarios})


def series_json(series: Sequence[Series], effort: Effort) -> str:
    scenarios = [
        {"name": one.scenario.name, "title": one.scenario.title, **_series_json(one)}
        for one in series
    ]
    return _dump({"effort": asdict(effort), "scenarios": scenarios})


def figures_json(title: str, columns: Mapping[str, Sequence[Figure]]) -> str:
    servers = {label: [asdict(figure) for figure in figures] for label, figures in columns.items()}
    return _dump({"probe": title, "servers": servers})


def comparison_chart(comparisons: Sequence[Comparison]) -> str:
    rows = [ChartRow(one.scenario.title, one.cpu_advantage, one.rate_ratio) for one in comparisons]
    first = comparisons[0]
    return render(f"{first.ours.label} against {first.reference.label}", rows)


def _series_json(series: Series) -> dict[str, object]:
    runs = [
        {
            **asdict(result),
            "rate": result.rate,
            "cpu_per_million": result.cpu_per_million,
            "megabytes_per_second": result.megabytes_per_second,
        }
        for result in series.results
    ]
    spreads = {
        "rate": series.rate,
        "cpu_per_million": series.cpu_per_million,
        "megabytes_per_second": series.megabytes_per_second,
        "rss_peak_bytes": series.rss_peak_bytes,
    }
    return {
        "server": series.label,
        **{name: asdict(spread) if spread else None for name, spread in spreads.items()},
        "latency": asdict(series.latency) if series.latency else None,
        "runs": runs,
        "failures": series.failures,
    }


def _dump(content: dict[str, object]) -> str:
    machine = {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": process_stats.filesystem(tempfile.gettempdir()),
    }
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    whole = {"version": JSON_VERSION, "taken": taken, "machine": machine, **content}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _latency_tables(series: Sequence[Series]) -> list["Table"]:
    timed = [(one, one.latency) for one in series if one.latency is not None]
    if not timed:
        return []
    table = _table("round trips, µs")
    for heading in ("server", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right")
    for one, latency in timed:
        marks = (latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.max_ns)
        table.add_row(one.scenario.title, one.label, *(f"{mark / 1000:.0f}" for mark in marks))
    return [table]


def _table(title: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("")
    return table


def _print(*parts: "Table | str") -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        # A pipe has no width; wrapped tables cannot be compared line by line.
        console = Console(width=PIPE_WIDTH)
    for part in parts:
        console.print(part, highlight=False)


def _rate(spread: Spread | None) -> str:
    return f"{_count(spread.median)} {_extent(spread)}" if spread else NOT_KNOWN


def _cpu(spread: Spread | None) -> str:
    return f"{spread.median:.3g} {_extent(spread)}" if spread else NOT_KNOWN


def _extent(spread: Spread) -> str:
    return f"±{spread.relative:4.0%}"


def _memory(spread: Spread | None) -> str:
    return _bytes(spread.median) if spread else NOT_KNOWN


def _factor(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.2f}"


def _figure(figure: Figure) -> str:
    value = figure.value
    if value is None:
        return NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if figure.unit == "bytes":
        return _bytes(value)
    if figure.unit == "":
        return f"{value:,.0f}"
    text = _count(value) if figure.unit == "/s" else f"{value:.2f}"
    return f"{text} {figure.unit}"


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value / 1e3:.1f} k" if value >= 1e3 else f"{value:.0f}"


def _bytes(value: float) -> str:
    size = abs(value)
    if size >= 1024**2:
        return f"{value / 1024**2:.1f} MiB"
    return f"{value / 1024:.1f} KiB" if size >= 1024 else f"{value:.0f} B"
