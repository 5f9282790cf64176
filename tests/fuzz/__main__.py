"""Fuzzes an embedded server for some time: `python -m tests.fuzz --seconds 60 [--seed N]`.

Ends with 1 and the seed of the conversation when the server stops answering, logs an error of its
own, or grows past its bound. Runs of the same seed hold the same conversations.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

from tests.fuzz import protocol

from penstock.server.threaded_server import ThreadedServer

BATCH = 200
GROWTH_BYTES_MAX = 64 << 20


class Bugs(logging.Handler):
    """Keeps the log's entries that carry a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.seen.append(record.getMessage())


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bugs = Bugs()
    logging.getLogger("penstock").addHandler(bugs)
    seed = options.seed
    deadline = time.monotonic() + options.seconds
    with ThreadedServer() as server:
        protocol.run(server.port, range(seed, seed + BATCH))
        before = resident_bytes()
        while time.monotonic() < deadline:
            seed += BATCH
            protocol.run(server.port, range(seed, seed + BATCH))
            grown = resident_bytes() - before
            if bugs.seen or grown > GROWTH_BYTES_MAX:
                print(f"seeds {seed} to {seed + BATCH}: grown {grown} bytes, logged {bugs.seen}")
                return 1
    print(f"{seed + BATCH - options.seed} conversations, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
