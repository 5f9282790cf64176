"""SIGUSR1: the server opens its log file again, after logrotate has moved it away."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from support.servers import until

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import Starter


def test_log_that_was_moved_away_is_opened_again(start: Starter, tmp_path: Path) -> None:
    log, moved = tmp_path / "server.log", tmp_path / "server.log.1"
    server = start(f'log_file: "{log}"\n')
    until(lambda: log.exists() and "Server is ready" in log.read_text(), "the log")
    log.rename(moved)
    os.kill(server.pid, signal.SIGUSR1)
    until(lambda: log.exists() and "File log re-opened" in log.read_text(), "a new log")
    before = moved.read_text()
    os.kill(server.pid, signal.SIGHUP)
    until(lambda: 'Trapped "hangup" signal' in log.read_text() or "Reloaded" in log.read_text(),
          "lines in the new log")  # fmt: skip
    assert moved.read_text() == before
    assert server.alive
