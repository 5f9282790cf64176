"""Reads the messages of a backup in batches; an archive is one byte stream, read from its
beginning.

The compiled entry reader reads archives of version 2. The server's own reader reads those of
version 1, twice, because removed messages are listed after the messages. An archive that is
truncated or damaged raises `InvalidArchive`, as a server refuses to restore it: batches read before
that were already returned, and the task fails.
"""

from __future__ import annotations

import array
import json
from typing import TYPE_CHECKING, Final

from penstock.bulk.record_batch import Batch
from penstock.jetstream.archive.archive_v1 import ArchiveReaderV1
from penstock.jetstream.archive.stream_archive import (
    CONSUMER_BYTES_MAX,
    MAGIC,
    ArchiveExtent,
    InvalidArchive,
    RemovedRange,
    SavedMessage,
)
from penstock.records.record_columns import entry_columns
from penstock.records.s2_stream import InvalidStream, S2Inflater

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.records.record_columns import RecordColumns

READ_BYTES: Final = 1 << 20
PARSED_BYTES: Final = 8 << 20
"""Number of bytes of an archive that are collected before they are parsed."""
BATCH_ROWS: Final = 100_000
"""More rows than a block of small messages has: one batch per block."""
BATCH_BYTES: Final = 16 << 20
SEQ_MAX: Final = 2**63 - 1


def batches(archive: Path) -> Iterator[Batch]:
    """Yield every message of the archive, ascending. Raises `InvalidArchive` if it is not
    complete."""
    pieces = _inflated(archive)
    first = next(pieces, b"")
    if first.startswith(MAGIC):
        yield from _second_version(first[len(MAGIC) :], pieces)
    elif first:
        yield from _first_version(archive)
    else:
        raise InvalidArchive("the archive is empty")


def batch_of(columns: RecordColumns) -> Batch:
    """Return the same messages as a batch, like those read from a server."""
    return Batch(columns.rows, 0, *columns[2:])


def _inflated(archive: Path) -> Iterator[bytes]:
    """Yield the decompressed content, a few MiB at a time."""
    inflater, held, size = S2Inflater(), list[bytes](), 0
    with archive.open("rb") as file:
        while data := file.read(READ_BYTES):
            inflater.feed(data)
            while (piece := _next(inflater)) is not None:
                held.append(piece)
                size += len(piece)
            if size >= PARSED_BYTES:
                yield b"".join(held)
                held, size = [], 0
    if not inflater.is_between_frames:
        raise InvalidArchive("the archive is cut short")
    if held:
        yield b"".join(held)


def _next(inflater: S2Inflater) -> bytes | None:
    try:
        return inflater.next()
    except InvalidStream as error:
        raise InvalidArchive(str(error)) from error


# -- version 2


def _second_version(held: bytes, pieces: Iterator[bytes]) -> Iterator[Batch]:
    introduction, place = 1, 0
    while True:
        rows = 1 if introduction else BATCH_ROWS
        columns, is_whole = _entries(held, place, rows)
        place = columns.place
        if introduction and columns.rows:
            introduction += _consumers_behind(columns) - 1
        elif columns.rows:
            yield batch_of(columns)
        if is_whole:
            return
        if columns.rows == 0:
            more = next(pieces, None)
            if more is None:
                raise InvalidArchive("the archive is cut short")
            held, place = held[place:] + more, 0


def _entries(held: bytes, place: int, rows: int) -> tuple[RecordColumns, bool]:
    try:
        return entry_columns(
            held, place, rows_max=rows, bytes_max=BATCH_BYTES, entry_bytes_max=CONSUMER_BYTES_MAX
        )
    except ValueError as error:
        raise InvalidArchive(str(error)) from error


def _consumers_behind(columns: RecordColumns) -> int:
    """Return how many consumers follow an entry that precedes the messages."""
    if columns.subjects != b"state.json":
        return 0
    try:
        return int(json.loads(columns.payloads).get("consumer_count", 0))
    except ValueError as error:
        raise InvalidArchive("state.json cannot be read") from error


# -- version 1


def _first_version(archive: Path) -> Iterator[Batch]:
    removed: set[int] = set()
    first, last = 0, SEQ_MAX
    for item in _items(archive):
        if isinstance(item, RemovedRange):
            removed.update(item.seqs)
        elif isinstance(item, ArchiveExtent):
            first, last = item.state.first_seq, item.state.last_seq
    rows: list[SavedMessage] = []
    size = 0
    for item in _items(archive):
        if (
            not isinstance(item, SavedMessage)
            or item.seq in removed
            or not first <= item.seq <= last
        ):
            continue
        rows.append(item)
        size += len(item.header) + len(item.payload)
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _items(archive: Path) -> Iterator[object]:
    reader = ArchiveReaderV1()
    for piece in _inflated(archive):
        reader.feed(piece)
        while (item := reader.next()) is not None:
            yield item
    if not reader.is_whole:
        raise InvalidArchive("the archive is cut short")


def _batch(rows: list[SavedMessage]) -> Batch:
    subjects = [row.subject.encode("utf-8", "surrogateescape") for row in rows]
    parts = (subjects, [row.header for row in rows], [row.payload for row in rows])
    runs = [run for part in parts for run in _run(part)]
    seqs = array.array("q", (row.seq for row in rows)).tobytes()
    times = array.array("q", (row.ts_ns for row in rows)).tobytes()
    return Batch(len(rows), 0, seqs, times, *runs)


def _run(parts: list[bytes]) -> tuple[bytes, bytes]:
    """Concatenate the parts; return the bytes and the offsets."""
    offsets = array.array("i", [0])
    end = 0
    for part in parts:
        end += len(part)
        offsets.append(end)
    return b"".join(parts), offsets.tobytes()
