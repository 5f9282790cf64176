"""Fills the fold tables of docs/benchmarks.md from the output of `make bench-folds`.

    python tools/folds_page.py                 # out/folds.json
    python tools/folds_page.py --from a.json

Only the text between the page's markers changes. Every figure of the file is in a table, and
figures that miss their target are marked.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_page import JSON_VERSION, OUT, PAGE, _bytes, _count, _table, replace_between

Json = dict[str, Any]
HYDRATE_BARS = {"append-log": 1_000_000, "sqlite": 250_000, "lmdb": 400_000, "rocksdb": 400_000}
"""Keys for each second of CPU time of the folding process."""
RESUME_SECONDS_MAX = 1.0
RESUME_BARS = ("sqlite", "lmdb", "rocksdb")
HEADINGS = {
    "hydrate": ["keys/CPU-s", "keys/s", "server CPU-s/M", "memory added", "bar"],
    "resume": ["seconds", "CPU-s", "server CPU-s", "memory added", "bar"],
    "follow": ["changes/CPU-s", "changes/s", "server CPU-s/M", "memory added", "bar"],
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Fill the tables of folds in docs/benchmarks.md.")
    parser.add_argument("--from", dest="source", type=Path, default=OUT / "folds.json")
    content: Json = json.loads(parser.parse_args(argv).source.read_text(encoding="utf-8"))
    if content["version"] != JSON_VERSION:
        raise SystemExit(f"version {content['version']}, not {JSON_VERSION}")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), content), encoding="utf-8")
    return 0


def page(text: str, content: Json) -> str:
    """The page with the tables of this file."""
    text = replace_between(text, "folds machine", machine_text(content))
    for work in HEADINGS:
        figures = [one for one in content["figures"] if one["work"] == work]
        text = replace_between(text, f"folds {work}", table(work, figures))
    return text


def machine_text(content: Json) -> str:
    machine = content["machine"]
    return (
        f"Taken {content['taken']} on {machine['cores']} cores ({machine['architecture']}), "
        f"Linux {machine['kernel']}, Python {machine['python']}, files on {machine['filesystem']}; "
        f"{content['keys']:,} keys, values of {content['value_bytes']} bytes, one run."
    )


def table(work: str, figures: list[Json]) -> str:
    if not figures:
        return "Not measured in this run."
    rows = [["fold of a bucket on", "store", "number", *HEADINGS[work]]]
    for one in figures:
        head = [one["server"], one["store"], f"{one['count']:,}"]
        memory = _bytes(one["rss_peak"] - one["rss_before"])
        rows.append([*head, *_figures(work, one), memory, bar(work, one)])
    return _table(rows)


def _figures(work: str, one: Json) -> list[str]:
    if work == "resume":
        return [f"{one[name]:.2f}" for name in ("seconds", "cpu", "server_cpu")]
    server = one["server_cpu"] / one["count"] * 1e6
    rates = [_count(one["count"] / one[name]) for name in ("cpu", "seconds")]
    return [*rates, f"{server:.2f}"]


def bar(work: str, one: Json) -> str:
    """Return whether the figure meets its target; empty if it has none."""
    store = one["store"]
    if work == "hydrate" and store in HYDRATE_BARS:
        wanted = HYDRATE_BARS[store]
        return f"{_count(wanted)}: {_judged(one['count'] / one['cpu'] >= wanted)}"
    if work == "resume" and store in RESUME_BARS:
        return f"{RESUME_SECONDS_MAX:g} s: {_judged(one['seconds'] < RESUME_SECONDS_MAX)}"
    return ""


def _judged(met: bool) -> str:
    return "met" if met else "**missed**"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
