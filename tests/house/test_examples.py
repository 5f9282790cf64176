"""The examples run, and say what their readers were promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 240


def test_nodes_at_the_edge_go_on_without_the_server_and_end_alike(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "edge_config.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "still says 7\n" in done.stdout
    assert "now says 70\n" in done.stdout
    assert done.stdout.endswith("both hold the same\n")
