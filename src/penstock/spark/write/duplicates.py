"""Duplicate replies: rows that the stream did not store because it already has their id.

After a failure that is correct: an earlier attempt stored the row. Otherwise the row is lost, so
under the policy `fail` a duplicate raises an error with the id, unless this very row may have been
written before:

- Two rows of one write never stand for one message: the sequences in all replies reveal it, within
  a task here and across tasks in the driver (`check_tasks`), whatever attempts there were.
- A first attempt (attempt 0) finds no message that was stored after the driver planned this write.
- A write that was not tried before this run finds no message from before it, in any attempt.
- Other messages have the row's subject and payload (`StoredRows` compares all of them).
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.bulk.errors import BulkError, Refused
from penstock.spark.write.sequence_runs import SequenceRuns
from penstock.spark.write.sink_options import FAIL
from penstock.spark.write.stored_rows import StoredRows, digest_of
from penstock.spark.write.worker_publisher import SinkError
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.bulk.bulk_publisher import Repeat
    from penstock.spark.write.sink_options import PublishOptions
    from penstock.spark.write.sink_report import Written
    from penstock.spark.write.sink_task import Task
    from penstock.spark.write.worker_publisher import WorkerPublisher

LOGGER: Final = logging.getLogger("penstock.spark.sink")
#: Rows compared as their replies arrive, so that an error comes early; the others at the end.
COMPARED_FIRST: Final = 16
MSG_ID: Final = b"Nats-Msg-Id"
SKIP_HINT: Final = "set onDuplicate to skip if rows are meant to be stored once by their id"


class Content:
    """Subject, payload and id a row would have in the stream, and its place in the input."""

    __slots__ = ("id", "payload", "place", "subject")

    def __init__(self, place: str, subject: str, payload: bytes, id: str) -> None:
        self.place, self.subject, self.payload, self.id = place, subject, payload, id


class DuplicateCheck:
    """Checks the duplicate replies of one task; `count` is the number of valid ones.

    `base` is the stream's last sequence when the driver planned the write.
    """

    def __init__(
        self,
        outlet: WorkerPublisher,
        task: Task,
        base: int,
        policy: str,
        row_at: Callable[[int], Content],
    ) -> None:
        self._outlet = outlet
        self._task = task
        self._base = base
        self._policy = policy
        self._row_at = row_at
        self._compared = 0
        self._later = StoredRows(has_subjects=not outlet.config.get("subject_transform"))
        self._messages = SequenceRuns()
        self.count = 0

    @property
    def messages(self) -> bytes:
        """The sequences of all rows, packed; empty if they may be shared."""
        return self._messages.packed() if self._policy == FAIL else b""

    def record_replies(self, repeats: Sequence[Repeat], stored: Sequence[tuple[int, int]]) -> None:
        """Take replies; raises `SinkError` if one of them means that a row is lost."""
        if self._policy == FAIL:
            self._messages.extend(stored)
        for one in repeats:
            is_own = one.is_resent and one.seq > self._base
            self.count += not is_own
            if self._policy == FAIL:
                self._messages.add(one.seq, one.seq)
                if not is_own:
                    self._check_repeat(one)

    def finish(self, options: PublishOptions) -> None:
        """After all replies: raise `SinkError` if two rows became one message, or a row became
        another message."""
        stream = self._outlet.config["name"]
        if (seq := self._messages.shared()) is not None:
            raise SinkError(
                f"two rows of partition {self._task.partition} have the message id "
                f"{id_at(self._outlet, seq)!r}, of which stream {stream} keeps one: set "
                f"msgIdColumns to columns that tell rows apart, or {SKIP_HINT}"
            )
        try:
            seq = self._later.differing(options, stream)
        except BulkError as error:
            LOGGER.warning(
                "partition %d: %d repeated rows could not be compared with stream %s: %s",
                self._task.partition,
                len(self._later),
                stream,
                error,
            )
            return
        if seq is not None:
            raise SinkError(
                f"a row of partition {self._task.partition} was not stored: stream {stream} has "
                f"its message id {id_at(self._outlet, seq)!r} at sequence {seq}, and that is "
                f"another message. Give rows ids that tell them apart (msgIdColumns), or "
                f"{SKIP_HINT}"
            )

    def _check_repeat(self, one: Repeat) -> None:
        task, is_new = self._task, one.seq > self._base
        if task.attempt == 0 and is_new:
            raise self._error(
                one, "was stored after this write began, by another row or by another attempt"
            )
        if not is_new and not task.may_repeat:
            raise self._error(
                one,
                f"was there before, although batch {task.batch} was not tried before"
                if task.query
                else "is there already. If this write repeats an earlier one, give both a writeId",
            )
        if self._compared < COMPARED_FIRST:
            self._compare(one)
        else:
            row = self._row_at(one.number)
            self._later.add(one.seq, digest_of(row.subject, row.payload, self._later.has_subjects))

    def _compare(self, one: Repeat) -> None:
        self._compared += 1
        row = self._row_at(one.number)
        try:
            found = message_at(self._outlet, one.seq)
        except BulkError:
            self._compared = COMPARED_FIRST  # this user may not read messages so
            return
        if found is None:
            return  # removed since, by a limit or a consumer
        data = base64.b64decode(found.get("data", ""))
        is_subject = found["subject"] == row.subject or not self._later.has_subjects
        if data != row.payload or not is_subject:
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
    messages = SequenceRuns()
    for one in written:
        if one.messages:
            messages.unpack(one.messages)
    if (seq := messages.shared()) is not None:
        raise SinkError(
            f"rows of two tasks have the message id {id_at(outlet, seq)!r}, of which stream "
            f"{outlet.config['name']} keeps one: set msgIdColumns to columns that tell rows apart, "
            f"or {SKIP_HINT}"
        )


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
    try:
        message = message_at(outlet, seq)
    except BulkError:
        return "?"
    block = base64.b64decode(message.get("hdrs", "")) if message else b""
    return ((headers.get(block, MSG_ID) if block else None) or b"?").decode("utf-8", "replace")
