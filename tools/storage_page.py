"""Fills the storage tables of docs/benchmarks.md from the output of `make bench-storage`.

    python tools/storage_page.py                 # out/storage.json
    python tools/storage_page.py --from a.json

Only the text between the page's markers changes. Every engine and every size of the file is in a
table, including those where others are better.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_page import JSON_VERSION, OUT, PAGE, _count, _spread, _table, replace_between

Json = dict[str, Any]
COSTS = ("append", "load", "load_cold", "last", "append_and_trim", "remove", "purge_subject")
COST_HEADINGS = (
    "append",
    "load",
    "load, cold",
    "last by subject",
    "append and trim",
    "remove",
    "purge",
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Fill the storage tables of docs/benchmarks.md.")
    parser.add_argument("--from", dest="source", type=Path, default=OUT / "storage.json")
    content: Json = json.loads(parser.parse_args(argv).source.read_text(encoding="utf-8"))
    if content["version"] != JSON_VERSION:
        raise SystemExit(f"version {content['version']}, not {JSON_VERSION}")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), content), encoding="utf-8")
    return 0


def page(text: str, content: Json) -> str:
    """Return the page with the tables of this file."""
    text = replace_between(text, "storage machine", machine_text(content))
    text = replace_between(text, "storage appends", appends_text(content["appends"]))
    return replace_between(text, "storage growth", growth_text(content["growth"]))


def machine_text(content: Json) -> str:
    machine, effort = content["machine"], content["effort"]
    return (
        f"Taken {content['taken']} on {machine['cores']} cores ({machine['architecture']}), "
        f"Linux {machine['kernel']}, Python {machine['python']}; {effort['rounds']} rounds, "
        f"{effort['share']:.0%} of the full number of messages."
    )


def appends_text(shapes: list[Json]) -> str:
    return "\n\n".join(
        f"### {_capital(one['shape']['title'])}\n\n{_engines(one['engines'])}" for one in shapes
    )


def _capital(title: str) -> str:
    return title[0].upper() + title[1:]


def _engines(engines: dict[str, Json]) -> str:
    rows = [["store", "settings", "msg/s", "cpu-s/M", "ours × rate", "ours × CPU"]]
    for name, one in engines.items():
        rows.append(
            [
                name,
                one["settings"],
                _spread(one["rate"], _count),
                _spread(one["cpu_per_million"], lambda cost: f"{cost:.2f}"),
                f"{one['ours_times_faster']:.2f}",
                f"{one['ours_times_cheaper']:.2f}",
            ]
        )
    return _table(rows)


def growth_text(rows: list[Json]) -> str:
    if not rows:
        return "Not measured in this run."
    costs = [["messages", "subjects", *(f"{heading} µs" for heading in COST_HEADINGS)]]
    opening = [["messages", "subjects", "open, clean s", "open, crash s", "index bytes/message"]]
    for row in rows:
        size = [f"{row['messages']:,}", f"{row['subjects']:,}"]
        costs.append([*size, *(f"{row[f'{name}_ns'] / 1000:.2f}" for name in COSTS)])
        index = row["index_bytes_per_message"]
        opening.append(
            [*size, f"{row['clean_open_s']:.2f}", f"{row['crash_open_s']:.2f}", f"{index:.0f}"]
        )
    return f"{_table(costs)}\n\n{_table(opening)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
