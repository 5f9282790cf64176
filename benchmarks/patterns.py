"""Cost of pattern queries over a log of many subjects, on the first call and on repetition.

    python benchmarks/patterns.py [MESSAGES] [SUBJECTS]

Ten million messages and a million subjects by default, about 2 GB of memory. CPU time of one
thread, in milliseconds. The figures are in docs/decisions/0025-tallies.md.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.store.index.message_log import MessageLog

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 10_000_000
SUBJECTS = 1_000_000
BATCH = 10_000
NEAR_THE_END = 300_000
ALL = "s.*"
SINGLES = 100
SHOWN = (0, SINGLES - 1)


def filled(messages: int, subjects: int) -> MessageLog:
    log = MessageLog()
    for start in range(0, messages, BATCH):
        stop = min(start + BATCH, messages)
        rows = [(b"s.%d" % (at % subjects), b"", b"x") for at in range(start, stop)]
        log.append_batch(rows, start)
    return log


def measured(label: str, ask: Callable[[], int], expected: int, shown: bool = True) -> None:
    begun = time.thread_time()
    answer = ask()
    took = time.thread_time() - begun
    if answer != expected:
        raise SystemExit(f"{label}: {answer} instead of {expected}")
    if shown:
        print(f"{label:52}{took * 1e3:10.3f} ms")


def main(messages: int, subjects: int) -> None:
    log = filled(messages, subjects)
    last = log.last_seq
    middle, near = last // 2, max(last - NEAR_THE_END, 1)

    def pending(start: int) -> Callable[[], int]:
        return partial(log.num_pending, start, (ALL,), last=last)

    measured(f"the first num_pending of {ALL}", pending(1), last)
    measured("the same again", pending(1), last)
    measured("from the middle of the log on", pending(middle), last - middle + 1)
    measured(f"from {NEAR_THE_END:,} before its end", pending(near), last - near + 1)
    measured("the last message before a sequence", partial(log.last_match, ALL, middle), middle)
    for number in range(SINGLES):
        newest = last - (last - 1 - number) % subjects
        label = f"pattern {number + 1} of those that match one subject"
        measured(label, partial(log.last_match, f"*.{number}", last), newest, number in SHOWN)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(MESSAGES, SUBJECTS)[len(given) :])
