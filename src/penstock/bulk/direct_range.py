"""Read a range without a consumer: by direct get in batches, or one record per request.

Nothing is consumed, so this works for work-queue and interest streams, and for users who may not
create consumers. It is slower: each record carries its position in headers and passes through
Python. The server matches a single filter; several filters are matched here.

A batch reply ends with a status line (204, or 404 if nothing was found); the next request begins
after the last record. Direct get has no flow control, so requests are small.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from penstock.api.api_client import read_message
from penstock.api.error_codes import NO_MESSAGE_FOUND
from penstock.api.timestamps import parse_time
from penstock.bulk.bulk_requests import accepted
from penstock.bulk.errors import Refused
from penstock.bulk.record_batch import Batch
from penstock.bulk.subscription_feed import Status
from penstock.subjects.match import match_literal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from penstock.bulk.bulk_connection import BulkConnection
    from penstock.bulk.wire_reader import ServerItem

DIRECT_RECORDS: Final = 2000
DIRECT_BYTES: Final = 8 << 20
#: Single-record requests in flight at once.
SINGLE_WINDOW: Final = 128
#: Subjects whose filter result is cached.
SUBJECTS_KEPT: Final = 100_000
END_OF_BATCH: Final = 204
NOT_FOUND: Final = 404

_PLACE: Final = b"\r\nNats-Stream: "
_CRLF: Final = b"\r\n"


@dataclass(slots=True)
class DirectRow:
    """One record."""

    seq: int
    time_ns: int
    subject: bytes
    header: bytes
    payload: bytes


@dataclass(slots=True)
class DirectReading:
    """Reads ranges of one stream over one connection."""

    link: BulkConnection
    prefix: str
    stream: str
    filters: Sequence[str]
    _wanted: dict[bytes, bool] = field(default_factory=dict)

    async def batches(self, start: int, stop: int, *, batched: bool) -> AsyncGenerator[Batch, None]:
        """Yield records with start <= sequence < stop."""
        rows_behind = self._many if batched else self._singles
        while start < stop:
            rows, following = await rows_behind(start, stop)
            kept = [row for row in rows if row.seq < stop and self._is_wanted(row.subject)]
            if kept:
                yield batch_of(kept)
            if following is None:
                return
            start = following

    async def _many(self, start: int, stop: int) -> tuple[list[DirectRow], int | None]:
        """Return some records and the start of the next request; None if there are no more."""
        body: dict[str, Any] = {"seq": start, "batch": min(DIRECT_RECORDS, stop - start)}
        body["max_bytes"] = DIRECT_BYTES
        if len(self.filters) == 1:
            body["next_by_subj"] = self.filters[0]
        rows: list[DirectRow] = []
        subject = f"{self.prefix}.DIRECT.GET.{self.stream}"
        answers = self.link.request_many(subject, json.dumps(body).encode())
        async with aclosing(answers):
            async for message in answers:
                if _PLACE not in message.header:
                    _check_end(Status.read(message.header, ""))
                    break
                rows.append(row_of(message))
        return rows, rows[-1].seq + 1 if rows else None

    async def _singles(self, start: int, stop: int) -> tuple[list[DirectRow], int | None]:
        following = min(start + SINGLE_WINDOW, stop)
        found = await asyncio.gather(*map(self._single, range(start, following)))
        return [row for row in found if row is not None], following

    async def _single(self, seq: int) -> DirectRow | None:
        subject = f"{self.prefix}.STREAM.MSG.GET.{self.stream}"
        return stored_row((await self.link.request(subject, b'{"seq":%d}' % seq)).payload)

    def _is_wanted(self, subject: bytes) -> bool:
        if not self.filters:
            return True
        known = self._wanted.get(subject)
        if known is None:
            text = subject.decode("utf-8", "surrogateescape")
            known = any(match_literal(text, pattern) for pattern in self.filters)
            if len(self._wanted) < SUBJECTS_KEPT:
                self._wanted[subject] = known
        return known


def stored_row(reply: bytes) -> DirectRow | None:
    """Return the record in a reply to STREAM.MSG.GET; None if there is none."""
    try:
        found = read_message(accepted(reply))
    except Refused as error:
        if error.err_code == NO_MESSAGE_FOUND:
            return None
        raise
    return DirectRow(
        seq=found.seq,
        time_ns=parse_time(found.time),
        subject=found.subject.encode(),
        header=found.header,
        payload=found.payload,
    )


def _check_end(status: Status) -> None:
    if status.code not in (END_OF_BATCH, NOT_FOUND):
        raise Refused(status.text or "direct get was refused", code=status.code)


def row_of(message: ServerItem) -> DirectRow:
    """Return the record in a direct-get reply; its position follows the headers it was stored
    with."""
    at = message.header.rindex(_PLACE)
    place = dict(line.split(b": ", 1) for line in message.header[at + 2 : -4].split(_CRLF))
    own = message.header[:at]
    return DirectRow(
        seq=int(place[b"Nats-Sequence"]),
        time_ns=parse_time(place[b"Nats-Time-Stamp"].decode()),
        subject=place[b"Nats-Subject"],
        header=own + _CRLF + _CRLF if _CRLF in own else b"",
        payload=message.payload,
    )


def batch_of(rows: Sequence[DirectRow]) -> Batch:
    """Return the rows as a batch of columns."""
    return Batch(
        len(rows),
        0,
        array("q", [row.seq for row in rows]).tobytes(),
        array("q", [row.time_ns for row in rows]).tobytes(),
        *_column([row.subject for row in rows]),
        *_column([row.header for row in rows]),
        *_column([row.payload for row in rows]),
    )


def _column(values: Sequence[bytes]) -> tuple[bytes, bytes]:
    ends = accumulate(map(len, values), initial=0)
    return b"".join(values), array("i", ends).tobytes()
