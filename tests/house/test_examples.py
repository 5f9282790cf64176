"""The examples run, and print what their readers were promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sockets

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 240


def run(name: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / name],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart_shows_stream_work_queue_and_bucket(tmp_path: Path) -> None:
    shown = run("quickstart.py", tmp_path)
    assert "1,000 messages are on disk" in shown
    assert "0 jobs are left" in shown
    assert "gold = 2010 (revision 2)" in shown


def test_nodes_follow_bucket_again_after_outage(tmp_path: Path) -> None:
    shown = run("edge_config.py", tmp_path)
    assert "still says 7\n" in shown
    assert "now says 70\n" in shown
    assert shown.endswith("both hold the same\n")
