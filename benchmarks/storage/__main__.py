"""Measures the file store: appends compared with SQLite, LMDB and RocksDB, and the cost of growth.

    python -m benchmarks.storage --json out/storage.json          # everything
    python -m benchmarks.storage --bars --json out/storage.json   # figures with targets; minutes
    python -m benchmarks.storage --quick                          # a check, under a minute

`--bars` measures the full number of messages in fewer rounds, and skips the comparison of messages
that are synced one by one. `tools/storage_page.py` fills the tables of docs/benchmarks.md from the
file. The directory given with `--place` (default: a temporary one) determines which file system is
measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.storage.appends import SHAPES, compare
from benchmarks.storage.growth import MESSAGES, grow

JSON_VERSION = 1
ROUNDS = 5
BARS_ROUNDS = 3
QUICK_SHARE = 0.05


def main() -> int:
    options = _parser().parse_args()
    share, largest, shapes = 1.0, max(MESSAGES), SHAPES
    rounds = options.rounds or (BARS_ROUNDS if options.bars else ROUNDS)
    if options.bars:
        shapes = tuple(shape for shape in SHAPES if shape.batch > 1)
    if options.quick:
        share, rounds, largest = QUICK_SHARE, 2, min(MESSAGES)
    with tempfile.TemporaryDirectory(dir=options.place) as place:
        answer = {
            "version": JSON_VERSION,
            "taken": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {
                "cores": os.cpu_count(),
                "architecture": platform.machine(),
                "kernel": platform.release(),
                "python": platform.python_version(),
            },
            "effort": {"rounds": rounds, "share": share},
            "appends": compare(shapes, Path(place), rounds, share, _tell),
            "growth": [] if options.no_growth else grow(Path(place), largest, _tell),
        }
    text = json.dumps(answer, indent=1)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")
    else:
        print(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--place", help="directory on the file system to measure")
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}; of bars {BARS_ROUNDS}")
    parser.add_argument("--bars", action="store_true", help="only what has a bar, at full size")
    parser.add_argument("--quick", action="store_true", help="few messages, two rounds")
    parser.add_argument("--no-growth", action="store_true", help="only the comparison")
    return parser


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text} …", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
