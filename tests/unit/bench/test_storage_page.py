"""The storage tables show every store and every size of the file they are made from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
COSTS = ("append", "load", "load_cold", "last", "append_and_trim", "remove", "purge_subject")


def tool() -> Any:
    path = ROOT / "tools" / "storage_page.py"
    spec = importlib.util.spec_from_file_location("storage_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def engine(rate: float, times: float) -> dict[str, Any]:
    spread = {"median": rate, "low": rate, "high": rate}
    return {
        "settings": "as it comes",
        "rate": spread,
        "cpu_per_million": spread,
        "ours_times_faster": times,
        "ours_times_cheaper": times,
    }


def content() -> dict[str, Any]:
    row = {"messages": 100_000, "subjects": 1, "clean_open_s": 0.5, "crash_open_s": 0.75}
    row |= {f"{name}_ns": 1234.0 for name in COSTS} | {"index_bytes_per_message": 40}
    machine = {"cores": 2, "architecture": "x", "kernel": "6", "python": "3.11"}
    return {
        "version": 1,
        "taken": "today",
        "machine": machine,
        "effort": {"rounds": 3, "share": 1.0},
        "appends": [
            {
                "shape": {"title": "lazy"},
                "engines": {"penstock": engine(2e6, 1), "other": engine(4e6, 0.5)},
            }
        ],
        "growth": [row],
    }


def test_tables_show_losses_and_every_size() -> None:
    text = tool().page((ROOT / "docs" / "benchmarks.md").read_text(), content())
    assert "| other | as it comes | 4.00 M ±0% | 4000000.00 ±0% | 0.50 | 0.50 |" in text
    assert "| 100,000 | 1 | 1.23 |" in text
    assert "| 100,000 | 1 | 0.50 | 0.75 | 40 |" in text


def test_run_without_growth_reports_it() -> None:
    tables = tool().growth_text([])
    assert tables == "Not measured in this run."
