"""Backups in batches: archives of both versions hold what was backed up, or are refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.api.json_codec import encode
from penstock.api.stream_config import StreamState
from penstock.jetstream.archive.stream_archive import (
    END,
    MAGIC,
    InvalidArchive,
    entry,
    message_entry,
)
from penstock.records.s2_stream import Deflater
from penstock.spark.files import blocks_archive
from penstock.spark.files.blocks_archive import batches
from penstock.spark.files.blocks_plan import ArchiveTask
from penstock.spark.files.blocks_task import read_archive

if TYPE_CHECKING:
    from penstock.bulk.record_batch import Batch

GOLDEN = Path(__file__).parents[3] / "golden" / "archive-2.12.s2"
Row = tuple[str, int, int, bytes, bytes]
ROWS: list[Row] = [
    (f"s.{n % 7}", n, 1_000 + n, b"NATS/1.0\r\nA: 1\r\n\r\n" if n % 5 == 0 else b"", b"x" * n)
    for n in range(3, 400, 2)
]


def rows_of(found: list[Batch]) -> list[Row]:
    return [row for batch in found for row in batch.rows()]


def written(place: Path, data: bytes) -> Path:
    deflater = Deflater()
    path = place / "stream.tar.s2"
    path.write_bytes(deflater.add(data) + deflater.finish())
    return path


def archive(consumers: int = 2) -> bytes:
    state = StreamState(messages=len(ROWS), first_seq=3, last_seq=399, consumer_count=consumers)
    parts = [MAGIC, entry(b"state.json", 1, 0, b"", encode(state))]
    parts += [entry(b"consumers/c%d" % n, 1, 0, b"", b"{}") for n in range(consumers)]
    parts += [message_entry(seq, ts, subject, hdr, data) for subject, seq, ts, hdr, data in ROWS]
    return b"".join(parts)


@pytest.mark.parametrize("consumers", [0, 2])
def test_archive_holds_its_messages_and_nothing_else(tmp_path: Path, consumers: int) -> None:
    assert rows_of(list(batches(written(tmp_path, archive(consumers) + END)))) == ROWS


def test_batches_are_bounded_and_pieces_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_archive, "BATCH_ROWS", 10)
    monkeypatch.setattr(blocks_archive, "PARSED_BYTES", 1)
    monkeypatch.setattr(blocks_archive, "READ_BYTES", 700)
    found = list(batches(written(tmp_path, archive() + END)))
    assert max(batch.count for batch in found) <= 10
    assert rows_of(found) == ROWS


def test_archive_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArchive, match="cut short"):
        list(batches(written(tmp_path, archive())))
    path = written(tmp_path, archive() + END)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InvalidArchive, match="cut short"):
        list(batches(path))


def test_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, archive() + END)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidArchive):
        list(batches(path))


def test_range_of_archive_is_cut_out_of_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_archive, "BATCH_ROWS", 10)
    task = ArchiveTask("S", str(written(tmp_path, archive() + END)))
    for first, last in ((0, 10**6), (50, 61), (4, 4), (399, 500), (500, 600)):
        expected = [row for row in ROWS if first <= row[1] <= last]
        assert rows_of(list(read_archive(task, first, last))) == expected


def test_archive_of_old_server_is_read_without_what_was_removed() -> None:
    damage = json.loads(GOLDEN.with_suffix(".json").read_text())["messages"]
    found = rows_of(list(batches(GOLDEN)))
    assert [(row[0], row[1], row[4]) for row in found] == [
        (one["subject"], one["seq"], base64.b64decode(one["data"])) for one in damage
    ]
    assert [row[3] for row in found] == [base64.b64decode(one.get("hdrs", "")) for one in damage]
