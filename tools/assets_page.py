"""Fills the table of many streams and consumers in docs/benchmarks.md.

    python tools/assets_page.py                 # out/assets.json, of `python -m benchmarks.assets`
    python tools/assets_page.py --from a.json

Only the text between the page's markers changes. Every figure of the file is in the table, those
where the reference is better included.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from benchmark_page import JSON_VERSION, NOT_KNOWN, OUT, PAGE, _bytes, _table, replace_between

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Fill the table of many streams and consumers.")
    parser.add_argument("--from", dest="source", type=Path, default=OUT / "assets.json")
    content: Json = json.loads(parser.parse_args(argv).source.read_text(encoding="utf-8"))
    if content["version"] != JSON_VERSION:
        raise SystemExit(f"version {content['version']}, not {JSON_VERSION}")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), content), encoding="utf-8")
    return 0


def page(text: str, content: Json) -> str:
    """Return the page with the table of this file."""
    return replace_between(text, "assets", f"{_machine(content)}\n\n{table(content)}")


def _machine(content: Json) -> str:
    machine = content["machine"]
    return (
        f"{content['streams']:,} streams and {content['consumers']:,} consumers. "
        f"Taken {content['taken']} on {machine['cores']} cores, Linux {machine['kernel']}, "
        f"{machine['file_system']}, Python {machine['python']}."
    )


def table(content: Json) -> str:
    """Return a table with a row per figure and a column per server."""
    columns = [rows(figures, content) for figures in content["servers"].values()]
    head = ["figure", *content["servers"]]
    return _table([head, *([name, *(each[name] for each in columns)] for name in columns[0])])


def rows(figures: Json, content: Json) -> dict[str, str]:
    """Return the figures of one server as text."""
    streams, consumers = content["streams"], content["consumers"]
    per_stream = (figures["streams_rss"] - figures["start_rss"]) / streams
    per_consumer = (figures["consumers_rss"] - figures["streams_rss"]) / consumers
    shown = {
        "making a stream, first fifth": _each(figures["streams"][0], streams / 5),
        "making a stream, last fifth": _each(_last(figures["streams"]), streams / 5),
        "making a consumer, first fifth": _each(figures["consumers"][0], consumers / 5),
        "making a consumer, last fifth": _each(_last(figures["consumers"]), consumers / 5),
        "memory of a stream": _bytes(per_stream),
        "memory of a consumer": _bytes(per_consumer),
        "memory of the process": _bytes(figures["consumers_rss"]),
        "open files": f"{figures['open_files']:,}",
        "on disk": _bytes(figures["disk_bytes"]),
        "CPU when idle": f"{figures['idle_cpu']:.1%}",
    }
    for what, took in figures["answers_ms"].items():
        shown[f"{what}, median (max)"] = f"{took['median']:.2f} ms ({took['max']:.1f})"
    shown["stop"] = "killed after 60 s" if figures["stop_s"] is None else _s(figures["stop_s"])
    shown["start again"] = _s(figures.get("restart_s"))
    return shown


def _last(marks: list[float]) -> float:
    return marks[-1] - marks[-2]


def _each(seconds: float, count: float) -> str:
    return f"{seconds / count * 1000:.2f} ms"


def _s(seconds: float | None) -> str:
    return NOT_KNOWN if seconds is None else f"{seconds:.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
