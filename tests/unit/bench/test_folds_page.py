"""The tables of folds show every figure, and what misses its bar."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[3]


def tool() -> ModuleType:
    path = ROOT / "tools" / "folds_page.py"
    spec = importlib.util.spec_from_file_location("folds_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figure(work: str, store: str, **changed: float) -> dict[str, Any]:
    return {
        "server": "penstock",
        "store": store,
        "work": work,
        "count": 1_000_000,
        "seconds": 4.0,
        "cpu": 2.0,
        "server_cpu": 0.5,
        "rss_before": 1 << 20,
        "rss_peak": 11 << 20,
        **changed,
    }


def content(*figures: dict[str, Any]) -> dict[str, Any]:
    machine = {"cores": 2, "architecture": "x", "kernel": "6", "python": "3", "filesystem": "ext4"}
    head = {"version": 1, "taken": "now", "machine": machine, "keys": 10, "value_bytes": 100}
    return {**head, "figures": list(figures)}


def test_every_figure_is_shown_and_checked() -> None:
    page = tool()
    met, missed = figure("hydrate", "lmdb"), figure("hydrate", "sqlite", cpu=20.0)
    text = page.table("hydrate", [met, missed, figure("hydrate", "nats-py watch")])
    rows = text.splitlines()
    assert "| 500.0 k | 250.0 k | 0.50 | 10.0 MiB | 400.0 k: met |" in rows[2]
    assert rows[3].endswith("| 250.0 k: **missed** |")
    assert rows[4].endswith("|  |")


def test_continuing_depends_on_clock() -> None:
    page = tool()
    rows = [figure("resume", "lmdb", seconds=0.5), figure("resume", "sqlite", seconds=1.5)]
    lines = page.table("resume", rows).splitlines()
    assert lines[2].endswith("| 1 s: met |")
    assert lines[3].endswith("| 1 s: **missed** |")


def test_page_has_place_for_every_table() -> None:
    page = tool()
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    filled = page.page(text, content(figure("follow", "rocksdb")))
    assert "| penstock | rocksdb | 1,000,000 | 500.0 k |" in filled
    assert "Not measured in this run." in filled
    assert page.page(filled, content(figure("follow", "rocksdb"))) == filled
