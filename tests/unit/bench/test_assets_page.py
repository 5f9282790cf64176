"""The table of many streams and consumers: every figure, also where the reference is better."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def page_tool() -> Any:
    path = ROOT / "tools" / "assets_page.py"
    spec = importlib.util.spec_from_file_location("assets_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figures(scale: float, stop_s: float | None) -> dict[str, Any]:
    return {
        "start_rss": 0,
        "streams": [n * scale for n in (1, 2, 3, 4, 6)],
        "streams_rss": int(100 * 2048 * scale),
        "consumers": [n * scale for n in (1, 2, 3, 4, 5)],
        "consumers_rss": int(100 * 2048 * scale + 1000 * 1024),
        "answers_ms": {"INFO": {"median": scale, "max": 2 * scale}},
        "open_files": 529,
        "idle_cpu": 0.01,
        "disk_bytes": 1 << 20,
        "stop_s": stop_s,
        "restart_s": 3.0,
    }


def test_every_figure_of_every_server_is_in_table() -> None:
    content = {
        "taken": "today",
        "machine": {"cores": 2, "kernel": "6", "python": "3", "file_system": "ext4"},
        "streams": 100,
        "consumers": 1000,
        "servers": {"penstock": figures(1.0, 2.0), "nats-server": figures(0.5, None)},
    }
    text = page_tool().page("<!-- assets: begin -->\n<!-- assets: end -->", content)
    assert "| figure | penstock | nats-server |" in text
    assert "| making a stream, last fifth | 100.00 ms | 50.00 ms |" in text
    assert "| memory of a stream | 2.0 KiB | 1.0 KiB |" in text
    assert "| INFO, median (max) | 1.00 ms (2.0) | 0.50 ms (1.0) |" in text
    assert "| stop | 2.0 s | killed after 60 s |" in text
