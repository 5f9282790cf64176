"""`--signal`: sends a signal to a running server: stop, reload, reopen the log, lame duck mode."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.config.command_line import SignalRequest

SIGNALS: Final = {
    "ldm": signal.SIGUSR2,
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
}
PROCESSES: Final = Path("/proc")


def send_signal(request: SignalRequest) -> int:
    """Send a signal to the named process, or to the only running server; return the exit code."""
    try:
        os.kill(_target(request.pid), SIGNALS[request.command])
    except OSError as error:
        print(f"penstock: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    return 0


def _target(named: str) -> int:
    if named:
        return _named_pid(named)
    running = list(_running_servers())
    if not running:
        raise ValueError("no server is running")
    if len(running) > 1:
        listed = "\n".join(map(str, running))
        raise ValueError(f"several servers are running, name one by its process id:\n{listed}")
    return running[0]


def _named_pid(named: str) -> int:
    text = named
    if not named.isdigit():
        text = Path(named).read_text().strip()
    if not text.isdigit():
        raise ValueError(f"invalid pid: {named}")
    return int(text)


def _running_servers() -> Iterator[int]:
    """Yield the processes that run `penstock serve`, except this one."""
    for entry in PROCESSES.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and any(b"penstock" in word for word in words):
            yield int(entry.name)
