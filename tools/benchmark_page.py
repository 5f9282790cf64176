"""Fills the tables of docs/benchmarks.md from the output of `penstock bench --json`.

    python tools/benchmark_page.py                 # every existing file below, in out/
    python tools/benchmark_page.py --comparison a.json --probe b.json --probe c.json --chart c.svg

Reads bench.json and bench.svg, jetstream.json and jetstream.svg, stalls.json and stalls.svg,
probe-*.json. Only the text between the page's markers changes; the prose is written by hand.
Invariant: every scenario of a file is in its table, including failed runs and losses.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
CHART = "benchmarks.svg"
JETSTREAM_CHART = "benchmarks-jetstream.svg"
STALLS_CHART = "benchmarks-stalls.svg"
OUT = ROOT / "out"
JSON_VERSION = 1
JETSTREAM = "jetstream "  # prefix of the markers of that section
STALLS = "stalls "
NOT_KNOWN = "–"
MIB = 1024 * 1024
LATENCY_MARKS = ("p50_ns", "p90_ns", "p99_ns", "max_ns")
COMPARISON_HEADINGS = (
    "scenario",
    "ours msg/s",
    "reference msg/s",
    "rate ×",
    "ours cpu-s/M",
    "reference cpu-s/M",
    "CPU ×",
    "peak RSS, ours / reference",
)

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    text = PAGE.read_text(encoding="utf-8")
    if options.comparison.exists():
        text = with_comparison(text, _load(options.comparison))
    probes = [_load(path) for path in options.probe or sorted(OUT.glob("probe-*.json"))]
    if probes:
        text = replace_between(text, "probes", probes_text(probes))
    if options.chart.exists():
        text = with_chart(text, options.chart, CHART)
    if options.jetstream.exists():
        text = with_comparison(text, _load(options.jetstream), JETSTREAM)
    if options.jetstream_chart.exists():
        text = with_chart(text, options.jetstream_chart, JETSTREAM_CHART, JETSTREAM)
    if options.stalls.exists():
        content = json.loads(options.stalls.read_text(encoding="utf-8"))
        text = replace_between(text, "stalls", stalls_text(content))
    if options.stalls_chart.exists():
        text = with_chart(text, options.stalls_chart, STALLS_CHART, STALLS)
    PAGE.write_text(text, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fill the tables of docs/benchmarks.md.")
    parser.add_argument("--comparison", type=Path, default=OUT / "bench.json")
    parser.add_argument("--probe", type=Path, action="append")
    parser.add_argument("--chart", type=Path, default=OUT / "bench.svg")
    parser.add_argument("--jetstream", type=Path, default=OUT / "jetstream.json")
    parser.add_argument("--jetstream-chart", type=Path, default=OUT / "jetstream.svg")
    parser.add_argument("--stalls", type=Path, default=OUT / "stalls.json")
    parser.add_argument("--stalls-chart", type=Path, default=OUT / "stalls.svg")
    return parser


def _load(path: Path) -> Json:
    content: Json = json.loads(path.read_text(encoding="utf-8"))
    if content.get("version") != JSON_VERSION:
        raise SystemExit(f"{path}: version {content.get('version')}, not {JSON_VERSION}")
    return content


def replace_between(text: str, name: str, fresh: str) -> str:
    """Return the text with the part between the markers of `name` replaced."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no markers for {name}")
    return f"{before}{begin}\n\n{fresh.strip()}\n\n{end}{after}"


def with_comparison(text: str, content: Json, section: str = "") -> str:
    """Return the page with every table that a comparison fills."""
    scenarios = content["scenarios"]
    text = replace_between(text, f"{section}machine", machine_text(content))
    text = replace_between(text, f"{section}comparison", comparison_text(scenarios))
    text = replace_between(text, f"{section}latency", latency_text(scenarios))
    return replace_between(text, f"{section}losses", losses_text(scenarios))


def with_chart(text: str, drawn: Path, name: str, section: str = "") -> str:
    shutil.copyfile(drawn, PAGE.parent / name)
    return replace_between(text, f"{section}chart", f"![Factors by scenario]({name})")


def machine_text(content: Json) -> str:
    machine, effort = content["machine"], content["effort"]
    stores = f", stores on {machine['filesystem']}" if "filesystem" in machine else ""
    return (
        f"Taken {content['taken']} on {machine['cores']} cores ({machine['architecture']}), "
        f"Linux {machine['kernel']}, Python {machine['python']}; {effort['rounds']} rounds of "
        f"about {effort['seconds']} s, generator and server on the same machine{stores}."
    )


def comparison_text(scenarios: list[Json]) -> str:
    rows = [list(COMPARISON_HEADINGS)]
    for one in scenarios:
        ours, reference = one["ours"], one["reference"]
        rows.append(
            [
                one["title"],
                _spread(ours["rate"], _count),
                _spread(reference["rate"], _count),
                _factor(one["rate_ratio"]),
                _spread(ours["cpu_per_million"], _three_digits),
                _spread(reference["cpu_per_million"], _three_digits),
                _factor(one["cpu_advantage"]),
                f"{_memory(ours['rss_peak_bytes'])} / {_memory(reference['rss_peak_bytes'])}",
            ]
        )
    return _table(rows)


def latency_text(scenarios: list[Json]) -> str:
    rows = [["scenario", "server", "p50 µs", "p90 µs", "p99 µs", "max µs"]]
    for one in scenarios:
        for side in (one["ours"], one["reference"]):
            latency = side["latency"]
            if latency is not None:
                marks = (latency[mark] for mark in LATENCY_MARKS)
                rows.append(
                    [one["title"], side["server"], *(f"{mark / 1000:.0f}" for mark in marks)]
                )
    return _table(rows) if len(rows) > 1 else "No scenario with single requests was run."


def losses_text(scenarios: list[Json]) -> str:
    """Return where the reference is better, and every run that failed."""
    lines = [f"- {one['title']}: {loss}" for one in scenarios for loss in _losses(one)]
    return "\n".join(lines) if lines else "In this run the reference is better nowhere."


def stalls_text(content: Json) -> str:
    """Return the worst round trips of `benchmarks.stalls`, each the median of the rounds."""
    rows = [["operation", "ours ms", "reference ms", "bar ms", ""]]
    for one in content["rows"]:
        ours, reference = (_middle(one[key]) for key in ("ours_ms", "reference_ms"))
        bar = NOT_KNOWN if math.isinf(one["bar_ms"]) else f"{one['bar_ms']:.0f}"
        verdict = "" if one["passes"] else "**above**"
        rows.append([one["operation"], ours, reference, bar, verdict])
    within = sum(one["passes"] for one in content["rows"])
    head = (
        f"Taken {content['when']} on {content['machine']}, Python {content['python']}, "
        f"{content['rounds']} rounds: {within} of {len(content['rows'])} operations within the bar."
    )
    return f"{head}\n\n{_table(rows)}"


def _middle(values: list[float]) -> str:
    middle = statistics.median(values) if values else math.inf
    return "no answer" if math.isinf(middle) else f"{middle:.1f}"


def _losses(one: Json) -> Iterator[str]:
    ours, reference = one["ours"], one["reference"]
    for what, factor in (("rate", one["rate_ratio"]), ("CPU", one["cpu_advantage"])):
        if factor is not None and factor < 1:
            yield f"{what} {factor:.2f} ×"
    mine, other = ours["rss_peak_bytes"], reference["rss_peak_bytes"]
    if mine is not None and other is not None and mine["median"] > other["median"]:
        yield f"peak memory {_memory(mine)}, reference {_memory(other)}"
    if ours["latency"] is not None and reference["latency"] is not None:
        for mark in LATENCY_MARKS:
            slower, faster = ours["latency"][mark] / 1000, reference["latency"][mark] / 1000
            if slower > faster:
                yield f"{mark.removesuffix('_ns')} {slower:.0f} µs, reference {faster:.0f} µs"
    for side in (ours, reference):
        for failure in side["failures"]:
            yield f"a run of {side['server']} failed: {failure}"


def probes_text(probes: list[Json]) -> str:
    return "\n\n".join(_probe_text(probe) for probe in probes)


def _probe_text(probe: Json) -> str:
    servers: dict[str, list[Json]] = probe["servers"]
    rows = [["", *servers]]
    rows += [
        [figures[0]["name"], *(_figure(figure) for figure in figures)]
        for figures in zip(*servers.values(), strict=True)
    ]
    return f"### {probe['probe'].capitalize()}\n\n{_table(rows)}"


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    ruler = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ruler, *body))


def _spread(spread: Json | None, shown: Any) -> str:
    if spread is None:
        return NOT_KNOWN
    middle = spread["median"]
    share = (spread["high"] - spread["low"]) / middle if middle else 0.0
    return f"{shown(middle)} ±{share:.0%}"


def _figure(figure: Json) -> str:
    value, unit = figure["value"], figure["unit"]
    if value is None:
        return NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "bytes":
        return _bytes(value)
    if unit == "/s":
        return f"{_count(value)} /s"
    return f"{value:.2f} {unit}" if unit else f"{value:,.0f}"


def _memory(spread: Json | None) -> str:
    return NOT_KNOWN if spread is None else _bytes(spread["median"])


def _bytes(value: float) -> str:
    return f"{value / MIB:.1f} MiB" if abs(value) >= MIB else f"{value / 1024:.1f} KiB"


def _count(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.1f} k"


def _three_digits(value: float) -> str:
    return f"{value:.3g}"


def _factor(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
