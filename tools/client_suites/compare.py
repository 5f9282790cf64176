"""Two results of a suite beside each other: how many passed, and what differs.

compare.py OURS THEIRS, both either of run_go.py (.json) or of pytest (.xml).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def read(path: Path) -> dict[str, str]:
    """What became of each test."""
    text = path.read_text()
    if path.suffix == ".json":
        found: dict[str, str] = json.loads(text)
        return found
    results = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        marks = {child.tag for child in case}
        state = "failed" if marks & {"failure", "error"} else "passed"
        name = f"{case.get('classname')}.{case.get('name')}"
        results[name] = "skipped" if "skipped" in marks else state
    return results


def main() -> None:
    ours, theirs = (read(Path(name)) for name in sys.argv[1:3])
    for title, results in (("ours", ours), ("reference", theirs)):
        counts = Counter(results.values())
        print(title, len(results), ", ".join(f"{n} {state}" for state, n in counts.most_common()))
    for name in sorted(ours.keys() | theirs.keys()):
        pair = ours.get(name, "not run"), theirs.get(name, "not run")
        if len(set(pair)) > 1 or pair == ("failed", "failed"):
            print(f"{name}: {pair[0]} here, {pair[1]} there")


if __name__ == "__main__":
    main()
