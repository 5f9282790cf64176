"""The other side of `victim`: starts victims, kills them, and holds what they said was durable.

The ledger is never inside the process that dies. `check` opens the store that is left and answers
what is wrong: a message that was acknowledged and is not there byte for byte, or one whose removal
was acknowledged and that is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from faults.victim import REMOVED_EVERY, Task, open_store, payload_of
from penstock.store.contract import Missing
from penstock.store.index.message_log import MessageRecord
from support.files import warmed

if TYPE_CHECKING:
    from collections.abc import Iterator

VICTIM = Path(__file__).with_name("victim.py")


class Ledger:
    """What was acknowledged over all lives."""

    def __init__(self) -> None:
        self.life_of: dict[int, int] = {}
        self.removed: set[int] = set()

    def note(self, line: str, life: int) -> None:
        if line.startswith("+"):
            first, last = map(int, line[1:].split())
            self.life_of.update((seq, life) for seq in range(first, last + 1))
        elif line.startswith("-"):
            self.removed.add(int(line[1:]))
        else:
            raise AssertionError(f"a victim said {line!r}")

    def check(self, directory: str) -> list[str]:
        """What is wrong with the store that is left."""
        with open_store(directory) as store:
            wrong = [f"damaged: {span}" for span in store.recovery.damaged]
            for seq, life in self.life_of.items():
                found = warmed(store, lambda seq=seq: store.load(seq))
                wrong += self._wrong(seq, life, found)
        return wrong

    def _wrong(self, seq: int, life: int, found: object) -> list[str]:
        if seq in self.removed:
            return [] if found is Missing.ABSENT else [f"{seq} was removed and is there"]
        if found is Missing.ABSENT and seq % REMOVED_EVERY == 0:
            return []  # perhaps removed, without having said so
        if isinstance(found, MessageRecord) and found.payload == payload_of(seq, life):
            return []
        return [f"{seq} of life {life} was acknowledged and is lost: {found}"]


class Victims:
    """Makes victims, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def live_and_die(self, task: Task, ledger: Ledger, acks: int) -> None:
        """One life, killed when it has acknowledged this often."""
        self._in.write(task.line())
        self._in.flush()
        word, _, pid = self._out.readline().strip().partition(" ")
        assert word == "pid", word
        for line in iter(self._out.readline, "gone\n"):
            assert line, "the program that makes victims has died"
            ledger.note(line.strip(), task.life)
            acks -= 1
            if acks == 0:
                os.kill(int(pid), signal.SIGKILL)
        assert acks <= 0, "a victim died before it was killed"


@contextmanager
def victims(stderr: int | None = None) -> Iterator[Victims]:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(VICTIM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            yield Victims(process)
        finally:
            process.kill()
