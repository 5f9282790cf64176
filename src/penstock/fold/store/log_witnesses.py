"""Witnesses: records that a fold stores to detect a log that was restored and has grown since.

A server directory restored from a copy keeps its identity and may have grown past the fold's
cursor. So the fold stores sequence, time and key of the newest records of the last few keys it
changed (`after`), commits them with its cursor, and looks them up before it resumes (`verdict`).
`batch_commit` calls `after`, `resume` calls `verdict`. All functions are pure.
"""

from __future__ import annotations

import enum
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from penstock.kv.update_batch import Updates, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.kv.kv_types import KvEntry, KvUpdate

WITNESSES_MAX = 16
"""Number of stored witnesses; each costs two requests when a fold resumes."""
TIME_ERROR_US = 1
MICROSECOND_NS = 1_000


class Witness(Struct, frozen=True, array_like=True):
    """The newest record of a key up to the cursor, identified by its time or, if that is 0, by the
    digest of its value."""

    seq: int
    key: str
    time_us: int = 0
    digest: str = ""


class WitnessedRecord(NamedTuple):
    """A record as the server stores it."""

    seq: int
    key: str
    time_us: int
    value: bytes


class Sighting(NamedTuple):
    """The server's record at the sequence of a witness, and its newest record of the key."""

    witness: Witness
    at: WitnessedRecord | None
    newest: WitnessedRecord | None


class LogVerdict(enum.Enum):
    SAME = "same"
    LOST = "lost"
    """A record is missing, and no newer record of its key replaced it."""
    RESET = "reset"
    """The log has a different history from the one the fold read."""


def after(known: Sequence[Witness], updates: Sequence[KvUpdate]) -> tuple[Witness, ...]:
    """Return the witnesses after `updates` are applied, the newest last."""
    newest = {one.key: one for one in known}
    for piece in pieces_of(updates):
        for one in () if isinstance(piece, Updates) else piece:
            newest.pop(one.key, None)  # a repair may set an older revision
    newest |= {witness.key: witness for witness in _tail(updates)}
    return tuple(sorted(newest.values(), key=lambda one: one.seq)[-WITNESSES_MAX:])


def of_entries(entries: Iterable[KvEntry]) -> tuple[Witness, ...]:
    """Return witnesses identified by value, for stores that keep none."""
    made = [
        Witness(entry.revision, entry.key, digest=_digest(entry.value))
        for entry in entries
        if entry.revision
    ]
    return tuple(sorted(made, key=lambda one: one.seq))


def verdict(sightings: Iterable[Sighting], cursor: int) -> LogVerdict:
    """Return the verdict on a log from its records of the witnesses.

    The highest witness that is still present decides whether it is the log that the fold read.
    """
    lost = is_recognised = False
    for witness, at, newest in sorted(sightings, key=lambda one: -one.witness.seq):
        if at is not None:
            if not is_recognised and not _is_same(witness, at):
                return LogVerdict.RESET
            is_recognised = True
            continue
        if not is_recognised and newest is not None and witness.seq < newest.seq <= cursor:
            return LogVerdict.RESET
        lost = lost or newest is None or newest.seq < witness.seq
    return LogVerdict.LOST if lost else LogVerdict.SAME


def _is_same(witness: Witness, stored: WitnessedRecord) -> bool:
    if witness.key != stored.key:
        return False
    if witness.time_us:
        return abs(witness.time_us - stored.time_us) <= TIME_ERROR_US
    return witness.digest == _digest(stored.value)


def _digest(value: bytes) -> str:
    return sha256(value).hexdigest()[:32]


def _tail(updates: Sequence[KvUpdate]) -> list[Witness]:
    """Return witnesses of the last records of a batch, oldest first, without repair updates."""
    found: list[Witness] = []
    for piece in reversed(pieces_of(updates)):
        found += islice(_backwards(piece), WITNESSES_MAX - len(found))
        if len(found) >= WITNESSES_MAX:
            break
    return found[::-1]


def _backwards(piece: Sequence[KvUpdate]) -> Iterator[Witness]:
    if not isinstance(piece, Updates):
        for one in reversed(piece):
            if one.revision > 0 and one.created:
                yield Witness(one.revision, one.key, round(one.created * 1_000_000))
        return
    batch = piece.batch
    seqs, times = memoryview(batch.seqs).cast("q"), memoryview(batch.times).cast("q")
    ends = memoryview(batch.subject_offsets).cast("i")
    for at in range(batch.count - 1, -1, -1):
        key = batch.subjects[ends[at] + piece.skipped : ends[at + 1]]
        yield Witness(seqs[at], key.decode(), times[at] // MICROSECOND_NS)
