"""Duplicate replies: rows that the stream did not store because it already has their id.

After a failure that is correct: an earlier attempt stored the row. Otherwise the row is lost, so
under the policy `fail` a duplicate raises an error with the id, unless this very row may have been
written before:

- Two rows of one batch never stand for one message. The sequences in the replies reveal it, within
  a task here and across tasks in the driver (`check_tasks`).
- A first attempt (attempt 0) finds no message that was stored after it began.
- A batch write that is neither repeated by Spark nor named by `writeId` finds no message at all.
- A message that existed before has the row's subject and payload. That is compared for up to
  COMPARED_MAX rows of a task, because a restarted query may repeat very many.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.bulk.errors import BulkError, Refused
from penstock.spark.write.sink_options import FAIL
from penstock.spark.write.worker_publisher import SinkError
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.bulk.bulk_publisher import Repeat
    from penstock.spark.write.sink_report import Written
    from penstock.spark.write.sink_task import Task
    from penstock.spark.write.worker_publisher import WorkerPublisher

COMPARED_MAX: Final = 64
MSG_ID: Final = b"Nats-Msg-Id"
SKIP_HINT: Final = "set onDuplicate to skip if rows are meant to be stored once by their id"


class Content:
    """Subject, payload and id a row would have in the stream, and its place in the input."""

    __slots__ = ("id", "payload", "place", "subject")

    def __init__(self, place: str, subject: str, payload: bytes, id: str) -> None:
        self.place, self.subject, self.payload, self.id = place, subject, payload, id


class DuplicateCheck:
    """Checks the duplicate replies of one task; `count` is the number of valid ones."""

    def __init__(
        self, outlet: WorkerPublisher, task: Task, policy: str, row_at: Callable[[int], Content]
    ) -> None:
        self._outlet = outlet
        self._task = task
        self._policy = policy
        self._row_at = row_at
        self._compared = 0
        self.seqs: list[int] = []

    @property
    def count(self) -> int:
        return len(self.seqs)

    def record_repeats(self, repeats: Sequence[Repeat]) -> None:
        """Take duplicate replies; raises `SinkError` if one of them means that a row is lost."""
        for one in repeats:
            if self._policy == FAIL:
                self._check_repeat(one)
            self.seqs.append(one.seq)

    def finish(self) -> None:
        """After all replies: raise `SinkError` if two of them name the same message."""
        if self._policy == FAIL and (seq := twice(self.seqs)) is not None:
            raise SinkError(
                f"two rows of partition {self._task.partition} have the message id "
                f"{id_at(self._outlet, seq)!r}, of which stream {self._outlet.config['name']} "
                f"keeps one: set msgIdColumns to columns that tell rows apart, or {SKIP_HINT}"
            )

    def _check_repeat(self, one: Repeat) -> None:
        task, is_new = self._task, one.seq > self._outlet.last_seq
        if task.attempt == 0 and is_new:
            raise self._error(
                one, "was stored after this task began, by another row or by another attempt"
            )
        if task.attempt == 0 and not task.is_streaming and not task.write_id:
            raise self._error(
                one,
                "is there already. If this write repeats an earlier one, give both a writeId",
            )
        if not is_new and self._compared < COMPARED_MAX:
            self._compare(one)

    def _compare(self, one: Repeat) -> None:
        self._compared += 1
        row = self._row_at(one.number)
        try:
            found = message_at(self._outlet, one.seq)
        except BulkError:
            self._compared = COMPARED_MAX  # this user may not read the stream
            return
        if found is None:
            return  # removed since, by a limit or a consumer
        data = base64.b64decode(found.get("data", ""))
        has_transform = bool(self._outlet.config.get("subject_transform"))
        if data != row.payload or (found["subject"] != row.subject and not has_transform):
            raise self._error(one, f"is another message, on subject {found['subject']!r}")

    def _error(self, one: Repeat, what: str) -> SinkError:
        row, stream = self._row_at(one.number), self._outlet.config["name"]
        return SinkError(
            f"{row.place}, subject {row.subject!r}, was not stored: stream {stream} has its "
            f"message id {row.id!r} at sequence {one.seq}, and that message {what}. Give rows ids "
            f"that tell them apart (msgIdColumns), or {SKIP_HINT}"
        )


def check_tasks(outlet: WorkerPublisher, written: Sequence[Written]) -> None:
    """Detect rows of two tasks with one id, which no task can see alone. Called in the driver."""
    stream = outlet.config["name"]
    hint = f"set msgIdColumns to columns that tell rows apart, or {SKIP_HINT}"
    bases = [one.base for one in written if one.rows]
    if bases and all(one.task.attempt == 0 for one in written):
        for one in written:
            if max(one.seqs, default=0) > min(bases):
                named = id_at(outlet, max(one.seqs))
                raise SinkError(
                    f"rows of two tasks have the message id {named!r}, of which stream {stream} "
                    f"keeps one: {hint}"
                )
    seq = twice([seq for one in written for seq in one.seqs])
    if seq is not None:
        raise SinkError(
            f"rows of two tasks have the message id {id_at(outlet, seq)!r}, of which stream "
            f"{stream} keeps one: {hint}"
        )


def twice(seqs: Sequence[int]) -> int | None:
    """Return a sequence that occurs more than once; None if there is none."""
    if len(seqs) < 2:
        return None
    counts = pc.value_counts(pa.array(seqs, pa.int64()))
    at = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
    return None if at < 0 else int(counts.field("values")[at].as_py())


def message_at(outlet: WorkerPublisher, seq: int) -> dict[str, Any] | None:
    """Return a stored message; None if it was removed."""
    try:
        found = outlet.call(f"STREAM.MSG.GET.{outlet.config['name']}", {"seq": seq})
    except Refused:
        return None
    message: dict[str, Any] = found["message"]
    return message


def id_at(outlet: WorkerPublisher, seq: int) -> str:
    """Return the id of a stored message; `?` if unknown."""
    message = message_at(outlet, seq)
    block = base64.b64decode(message.get("hdrs", "")) if message else b""
    return ((headers.get(block, MSG_ID) if block else None) or b"?").decode("utf-8", "replace")
