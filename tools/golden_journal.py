"""Creates journals that later versions must open: run it with the version to preserve.

    python tools/golden_journal.py DIRECTORY

Writes `DIRECTORY/journal.tar.xz` with the directories `plain`, `sealed` (encrypted) and `torn` (a
copy of a journal that was not closed, with a page of its last turn zeroed), and
`DIRECTORY/expected.json`: what each group held. The test
`tests/unit/store/journal/test_old_journals.py` opens a copy with the current code and compares.
Create it once per released format, never again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.records.journal_codec import PAGE_BYTES
from penstock.store.format.encryption import ServerKey
from penstock.store.io.disk import RealDisk
from penstock.store.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

INCARNATION = 0x1234_5678_9ABC_DEF0
SEGMENT_BYTES = 8 * PAGE_BYTES
KEY = "the key of the kept journal"
KINDS = ("plain", "sealed", "torn")


def opened(place: Path, kind: str) -> Journal:
    return Journal.open(
        RealDisk.at(place),
        incarnation=INCARNATION,
        now_ns=1,
        noise=noise_of(kind),
        key=ServerKey(KEY) if kind == "sealed" else None,
        segment_bytes=SEGMENT_BYTES,
    )


def noise_of(kind: str) -> Callable[[int], bytes]:
    """Return bytes that are the same in every run; a server passes random ones."""
    calls = iter(range(1 << 30))

    def noise(n: int) -> bytes:
        return hashlib.shake_128(f"{kind} {next(calls)}".encode()).digest(n)

    return noise


def told(journal: Journal) -> dict[str, Any]:
    """Return what a journal holds, as JSON."""
    groups = {}
    for group in sorted(journal.groups()):
        first, stop = journal.span(group)
        state = journal.state(group)
        entries = [
            [one.index, one.term, one.kind, hashlib.sha256(one.data).hexdigest()]
            for one in journal.entries(group, first, stop, 1 << 30)
        ]
        groups[str(group)] = {"state": state and state.hex(), "entries": entries, "next": stop}
    replayed = [[one.group, one.entry.index] for one in journal.replay()]
    return {"turn": journal.recovery.turn, "groups": groups, "replay": replayed}


def sync(journal: Journal, now_ns: int) -> None:
    work = journal.pending_sync(now_ns)
    assert work is not None
    work.run()
    journal.synced(work)


def fill(journal: Journal) -> None:
    """Write turns of every kind of record, over several segments."""
    for index in range(1, 13):
        journal.append_entry(1, index, b"one %d " % index * 300, term=index // 4)
        journal.append_entry(2**64 - 1, index + 100, b"last group %d" % index, kind=255)
        journal.put_state(1, b"term %d" % (index // 4))
        if index == 3:
            journal.append_entry(3, 1, b"forgotten")
        if index == 5:
            journal.forget(3)
            journal.cut(1, 4)
            journal.append_entry(1, 4, b"a second fourth entry")
            journal.append_entry(1, 5, b"a second fifth entry")
        if index == 7:
            journal.append_entry(4, 1, bytes(6 * PAGE_BYTES))
            journal.checkpointed(2**64 - 1, 104)
        sync(journal, index)
    journal.append_entry(5, 1, b"the last turn" * 500)
    sync(journal, 13)


def tear(place: Path) -> None:
    """Zero the last page that holds anything."""
    newest = max(place.glob("*.seg"), key=lambda path: path.name)
    data = bytearray(newest.read_bytes())
    end = len(data.rstrip(b"\0"))
    start = (end - 1) // PAGE_BYTES * PAGE_BYTES
    data[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)
    newest.write_bytes(data)


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True)
    expected = {}
    with tempfile.TemporaryDirectory() as place:
        for kind in KINDS:
            made = Path(place) / kind
            made.mkdir()
            journal = opened(made, kind)
            fill(journal)
            if kind == "torn":
                tear(made)
            else:
                journal.close(14)
            copy = Path(place) / "copy"
            shutil.copytree(made, copy)
            expected[kind] = told(opened(copy, kind))
            shutil.rmtree(copy)
        with tarfile.open(directory / "journal.tar.xz", "w:xz") as archive:
            for kind in KINDS:
                archive.add(Path(place) / kind, kind)
    (directory / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
