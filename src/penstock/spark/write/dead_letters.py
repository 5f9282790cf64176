"""Dead letters: rows that could not be stored, kept with the reason in a stream or as Parquet
files.

Dead letters are durable before their task succeeds. A repeated attempt stores them once: in a
stream by an id derived from the row's content and partition, within that stream's duplicate window;
as files by a name that is the same in every attempt.
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.bulk.publish_frames import Values
from penstock.spark.write.sink_rows import DATA, REASON, payload_column, values
from penstock.spark.write.worker_publisher import SinkError, publisher_to

if TYPE_CHECKING:
    from penstock.bulk.blocking_publisher import BlockingPublisher
    from penstock.spark.write.bad_rows import BadRecord
    from penstock.spark.write.sink_options import SinkOptions
    from penstock.spark.write.sink_task import Task

ID_BYTES: Final = 16
#: Maximum number of rows in one file, and in the memory of a task.
FILE_ROWS: Final = 10_000
#: Space reserved in a message for headers.
HEADER_ROOM_BYTES: Final = 16 << 10
REASON_CHARS_MAX: Final = 1000
SAFE: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~ "


class DeadLetters(Protocol):
    """Destination of the bad rows of one task."""

    def add(self, rows: pa.RecordBatch, bad: list[BadRecord], start: int) -> None:
        """Add rows with their reasons; `start` is the number of earlier rows of the task."""
        ...

    def finish(self) -> None:
        """Return when everything is durable."""
        ...

    def close(self) -> None:
        """Release resources; without an earlier `finish`, letters may be missing."""
        ...


def dead_letters(options: SinkOptions, task: Task) -> DeadLetters | None:
    """Return the destination of a task's dead letters; None if they are not kept."""
    if options.dead_letter_subject:
        return StreamLetters(options, task)
    return FileLetters(options, task) if options.dead_letter_path else None


class StreamLetters:
    """Publishes bad rows under one subject, with headers that describe their origin."""

    def __init__(self, options: SinkOptions, task: Task) -> None:
        self._options = options
        self._task = task
        self._publisher: BlockingPublisher | None = None
        self._seen: dict[bytes, int] = {}

    def add(self, rows: pa.RecordBatch, bad: list[BadRecord], start: int) -> None:
        if self._publisher is None:
            self._publisher = publisher_to(self._options, "").__enter__()
        room = self._publisher.payload_bytes_max - HEADER_ROOM_BYTES
        payloads = payload_column(rows)
        cut = pa.array([data[: max(room, 0)] for data in payloads.to_pylist()], pa.binary())
        lines = [
            self._lines(one, start, None if len(was) <= room else len(was))
            for one, was in zip(bad, payloads.to_pylist(), strict=True)
        ]
        ids = [self._id(one, data) for one, data in zip(bad, payloads.to_pylist(), strict=True)]
        self._publisher.publish(
            Values.one(self._options.dead_letter_subject.encode(), len(bad)),
            values(cut),
            ids=values(pa.array(ids, pa.binary())),
            lines=values(pa.array(lines, pa.binary())),
        )
        self._check(self._publisher)

    def finish(self) -> None:
        if self._publisher is not None:
            self._publisher.drain()
            self._check(self._publisher)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def _check(self, publisher: BlockingPublisher) -> None:
        if refused := publisher.take_refused():
            raise SinkError(
                f"{len(refused)} dead letters could not be stored under "
                f"{self._options.dead_letter_subject}: {refused[0].description}"
            )

    def _id(self, bad: BadRecord, data: bytes) -> bytes:
        task = self._task
        named = f"{task.name}\0{bad.subject}\0{bad.reason}\0".encode() + data
        digest = hashlib.blake2b(named, digest_size=ID_BYTES).digest()
        self._seen[digest] = nth = self._seen.get(digest, 0) + 1
        return b"dead:%b:%d" % (digest.hex().encode(), nth)

    def _lines(self, bad: BadRecord, start: int, full_bytes: int | None) -> bytes:
        fields: dict[str, Any] = {
            "Penstock-Stream": self._options.stream,
            "Penstock-Subject": quote(bad.subject or "", safe=SAFE),
            "Penstock-Reason": quote(bad.reason[:REASON_CHARS_MAX], safe=SAFE),
            "Penstock-Partition": self._task.partition,
            "Penstock-Row": start + bad.row,
        }
        if self._task.is_streaming:
            fields |= {"Penstock-Query": self._task.query, "Penstock-Batch": self._task.batch}
        if full_bytes is not None:
            fields["Penstock-Cut-From"] = full_bytes
        return b"".join(f"{name}: {value}\r\n".encode() for name, value in fields.items())


class FileLetters:
    """Writes bad rows to Parquet files, whose names contain query, batch and partition."""

    def __init__(self, options: SinkOptions, task: Task) -> None:
        from penstock.spark.files.archive_storage import storage_for

        self._storage = storage_for(options.dead_letter_path)
        self._task = task
        self._held: list[pa.Table] = []
        self._rows = 0
        self._files = 0

    def add(self, rows: pa.RecordBatch, bad: list[BadRecord], start: int) -> None:
        columns: dict[str, Any] = {
            "reason": pa.array([one.reason for one in bad], pa.string()),
            "subject": pa.array([one.subject for one in bad], pa.string()),
            "partition": pa.array([self._task.partition] * len(bad), pa.int32()),
            "row": pa.array([start + one.row for one in bad], pa.int64()),
            "batch": pa.array([self._task.batch] * len(bad), pa.int64()),
            DATA: payload_column(rows),
        }
        for name in rows.schema.names:
            if name not in columns and name != REASON:
                columns[name] = rows.column(name)
        self._held.append(pa.table(columns))
        self._rows += len(bad)
        if self._rows >= FILE_ROWS:
            self._write()

    def finish(self) -> None:
        if self._rows:
            self._write()

    def close(self) -> None:
        """Do nothing: no file stays open between writes."""

    def _write(self) -> None:
        out = io.BytesIO()
        pq.write_table(pa.concat_tables(self._held), out)
        self._storage.write(f"{self._task.name}-{self._files}.parquet", out.getvalue())
        self._held, self._rows, self._files = [], 0, self._files + 1
