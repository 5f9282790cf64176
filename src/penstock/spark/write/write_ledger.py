"""Delivery `strict`: stores rows together with a mark of the progress, or not at all.

Each partition of a query has a ledger: one subject of the target stream, whose newest message
records which batch was written and how many of its rows. Rows are sent in atomic batches; each ends
with the next mark, conditional on an unchanged ledger. So of two attempts at the same rows one is
refused, reads the ledger, and continues after the other, as an attempt after a crash does.

Invariant: a row is in the stream if and only if the ledger counts it. Rows are counted, so a
repeated partition must have the same rows in the same order: a digest in the mark detects a
difference. A mark names its query, because batches of another query count from 0 again: a query
that is new to a ledger continues after the mark of another; one that finds such a mark later was
overtaken and fails.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.api.error_codes import (
    BATCH_INCOMPLETE,
    BATCH_RETRIABLE,
    BATCH_TOO_LARGE,
    NO_MESSAGE_FOUND,
    WRONG_LAST_SEQUENCE,
)
from penstock.bulk.errors import ConnectionLost, NoResponders, Refused, ReplyTimeout
from penstock.bulk.publish_frames import encode
from penstock.spark.write.worker_publisher import SinkError
from penstock.wire.headers import EMPTY_BLOCK, added

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.write.sink_rows import SinkRows
    from penstock.spark.write.sink_task import Task
    from penstock.spark.write.worker_publisher import WorkerPublisher

TRIES_MAX: Final = 8
PAUSE_SECONDS: Final = 0.1
DIGEST_BYTES: Final = 16
NO_BATCH: Final = -1
BATCH_WRITE: Final = "-"


class LedgerMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a partition. `seq` is the sequence of the mark, 0 if there is none yet; `query`
    is the id of the query, `-` for a batch write, empty in marks of versions before 0.2."""

    batch: int = NO_BATCH
    rows: int = 0
    digest: str = ""
    done: bool = False
    query: str = ""
    seq: int = 0


class WriteLedger:
    """Ledger of one partition; writes its rows together with the marks."""

    def __init__(self, outlet: WorkerPublisher, subject: str, batch: int, query: str = "") -> None:
        self._outlet = outlet
        self._stream: str = outlet.config["name"]
        self._subject = subject
        self._batch = batch
        self._query = query or BATCH_WRITE
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._seen = 0
        self._mark = read_mark(outlet, subject)
        if self._is_foreign(self._mark):
            self._check_kind(self._mark)
        self.skipped = 0

    def write(self, rows: SinkRows, *, is_last: bool) -> None:
        """Store these rows, or verify that they are stored."""
        for tried in range(TRIES_MAX):
            covered = self._covered(rows, is_last=is_last)
            if covered == rows.count:
                self.skipped += rows.count
                break
            if self._commit(rows, covered, is_last=is_last, tried=tried):
                self.skipped += covered
                break
            self._read_again()
        else:
            raise SinkError(f"stream {self._stream} did not take a batch in {TRIES_MAX} tries")
        self._digest.update(_spelt(rows, 0, rows.count))
        self._seen += rows.count

    def _is_foreign(self, mark: LedgerMark) -> bool:
        return mark.query not in ("", self._query)

    def _check_kind(self, mark: LedgerMark) -> None:
        """Raise if a batch write and a query share a ledger: a batch write runs once, a query
        repeatedly."""
        if BATCH_WRITE in (mark.query, self._query):
            used = "a batch write" if mark.query == BATCH_WRITE else f"query {mark.query}"
            raise SinkError(
                f"the ledger {self._subject} is that of {used}: set another writeId for this write"
            )

    def _read_again(self) -> None:
        """Read the mark again; another attempt may have moved it, but another query must not."""
        before, self._mark = self._mark, read_mark(self._outlet, self._subject)
        if self._is_foreign(self._mark) and self._mark.seq != before.seq:
            raise SinkError(
                f"query {self._mark.query} writes to {self._subject} as well: give each query a "
                "writeId of its own"
            )

    def _covered(self, rows: SinkRows, *, is_last: bool) -> int:
        """Return how many of these rows the ledger already counts."""
        mark, stop = self._mark, self._seen + rows.count
        if self._is_foreign(mark):
            return 0
        if mark.batch > self._batch:
            raise self._overtaken(mark)
        if mark.batch < self._batch:
            return 0
        has_more = mark.done and mark.rows < stop
        if has_more or (is_last and mark.rows > stop):
            raise self._diverged()
        covered = min(max(mark.rows - self._seen, 0), rows.count)
        if self._seen + covered == mark.rows:
            digest = self._digest.copy()
            digest.update(_spelt(rows, 0, covered))
            if digest.hexdigest() != mark.digest:
                raise self._diverged()
        return covered

    def _overtaken(self, mark: LedgerMark) -> SinkError:
        """Return the error for a ledger that is ahead: rows of a later batch were written.

        An outdated attempt meets it, whose result Spark ignores. So does a query whose checkpoint
        was set back: its batches may contain other rows now, so they must not count as written.
        """
        if not mark.query and self._query not in self._subject.split("."):
            return SinkError(
                f"{self._subject} was written up to batch {mark.batch} by a version that did not "
                f"record queries, and this is batch {self._batch}. If this is a new query, set "
                f"another writeId, or purge {self._subject} from the stream"
            )
        return SinkError(
            f"{self._subject} was written up to batch {mark.batch} of this query, and this is "
            f"batch {self._batch}: the checkpoint is older than the stream, or the query runs "
            f"twice. To write on from this checkpoint, purge {self._subject} from the stream, "
            "which stores the rows of later batches again"
        )

    def _commit(self, rows: SinkRows, start: int, *, is_last: bool, tried: int) -> bool:
        """Store rows from `start` on with their mark; return False if the ledger must be read
        again."""
        digest = self._digest.copy()
        digest.update(_spelt(rows, 0, rows.count))
        mark = LedgerMark(
            batch=self._batch,
            rows=self._seen + rows.count,
            digest=digest.hexdigest(),
            done=is_last,
            query=self._query,
        )
        ident = secrets.token_hex(DIGEST_BYTES)
        count = rows.count - start
        try:
            reply = self._outlet.publisher.ask(
                self._subject,
                msgspec.json.encode(mark),
                header=self._mark_header(ident, count + 1),
                before=self._frames(rows, start, ident),
            )
        except (ReplyTimeout, ConnectionLost, NoResponders):
            return False  # unknown whether stored: the ledger records it
        answer: dict[str, Any] = json.loads(reply.payload)
        if error := answer.get("error"):
            return self._refused(error, tried)
        self._mark = msgspec.structs.replace(mark, seq=int(answer["seq"]))
        return True

    def _refused(self, error: dict[str, Any], tried: int) -> bool:
        code = error.get("err_code", 0)
        if code in WRONG_LAST_SEQUENCE:
            return False
        if code in BATCH_RETRIABLE and tried + 1 < TRIES_MAX:
            time.sleep(PAUSE_SECONDS * 2**tried)
            return False
        reason = f"{error.get('description')} ({code})"
        if code == BATCH_TOO_LARGE:
            reason += ": set batchRows to less than the server takes"
        if code == BATCH_INCOMPLETE:
            reason += (
                ": the server dropped a row of it; is every subject one of this stream's, and no "
                "message larger than it takes?"
            )
        raise SinkError(f"stream {self._stream} refused an atomic batch: {reason}")

    def _frames(self, rows: SinkRows, start: int, ident: str) -> bytes:
        """Encode the rows as members of a batch; they request no reply."""
        frames = encode(
            rows.subjects,
            rows.payloads,
            lines=rows.lines,
            start=start,
            batch=ident.encode(),
            payload_bytes_max=self._outlet.publisher.payload_bytes_max,
        )
        if frames.count != rows.count - start:
            raise SinkError("an atomic batch of 2 GiB or more: set batchRows to less")
        return frames.data

    def _mark_header(self, ident: str, number: int) -> bytes:
        header = EMPTY_BLOCK
        fields = {
            b"Nats-Batch-Id": ident.encode(),
            b"Nats-Batch-Sequence": b"%d" % number,
            b"Nats-Batch-Commit": b"1",
            b"Nats-Expected-Last-Subject-Sequence": b"%d" % self._mark.seq,
        }
        if self._outlet.config.get("allow_rollup_hdrs"):
            fields[b"Nats-Rollup"] = b"sub"
        if self._outlet.config.get("allow_msg_ttl"):
            fields[b"Nats-TTL"] = b"never"
        for key, value in fields.items():
            header = added(header, key, value)
        return header

    def _diverged(self) -> SinkError:
        return SinkError(
            f"batch {self._batch} was written in part, and its rows now come differently "
            f"({self._subject}): delivery strict repeats a partition row by row. Give the rows a "
            "msgId, by which they are put in order, and keep their partitioning; to write on, "
            f"purge {self._subject} from the stream, which may repeat rows"
        )


def read_mark(outlet: WorkerPublisher, subject: str) -> LedgerMark:
    """Return the newest mark of a ledger, from the leader of the stream."""
    stream = outlet.config["name"]
    for tried in range(TRIES_MAX):
        try:
            found = outlet.call(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return LedgerMark()
            raise
        except (ReplyTimeout, ConnectionLost, NoResponders):
            time.sleep(PAUSE_SECONDS * 2**tried)
            continue
        message = found["message"]
        mark = msgspec.json.decode(base64.b64decode(message.get("data", "")), type=LedgerMark)
        return msgspec.structs.replace(mark, seq=message["seq"])
    raise SinkError(f"the ledger in stream {stream} could not be read")


def check_partitions(
    outlet: WorkerPublisher, ledgers: str, task: Task, written: Iterable[int]
) -> None:
    """Raise if the ledgers of other partitions count rows of this batch.

    A task sees only its own ledger. If an earlier attempt had other partitions, it may have written
    rows under a partition number that no longer exists. They are detected here, after all rows are
    written: too late to prevent the duplicates, but in time to report them.
    """
    stream, batch = outlet.config["name"], task.batch
    ours = ("", task.query or BATCH_WRITE)
    info = outlet.call(f"STREAM.INFO.{stream}", {"subjects_filter": f"{ledgers}.*"})
    known = {f"{ledgers}.{partition}" for partition in written}
    for subject in sorted(set(info["state"].get("subjects") or ()) - known):
        mark = read_mark(outlet, subject)
        if mark.batch == batch and mark.rows and mark.query in ours:
            raise SinkError(
                f"batch {batch} was written in part before, by an attempt with other partitions: "
                f"the {mark.rows} rows that {subject} counts are stored by this attempt as well. "
                "Keep the number of partitions between a failure and a restart, as with "
                f'repartition(n, "msgId"); purge {subject} from the stream to write on'
            )


def _spelt(rows: SinkRows, start: int, stop: int) -> bytes:
    """Return rows as bytes that do not depend on their batching."""
    if start == stop:
        return b""
    frames = encode(
        rows.subjects, rows.payloads, lines=rows.lines, start=start, rows_max=stop - start
    )
    return frames.data
