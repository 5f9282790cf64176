"""Bulk reader: ranges of a stream, the newest record of each subject, and watches, in batches.

Every read uses its own connection, so reads do not block each other, and its own ordered consumer,
which is recreated when it breaks. A range ends at the last sequence the stream had when the read
began, whatever is written later.

Invariant: no record is skipped silently. Records of the range that the stream no longer holds raise
`Evicted`, unless the caller allows it (`skip_evicted`) or supplies its own `check`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from penstock.bulk.bulk_connection import ConnectSettings, open_link
from penstock.bulk.bulk_requests import (
    JetStreamApi,
    StreamSummary,
    SubjectSelection,
    accepted,
)
from penstock.bulk.direct_range import SINGLE_WINDOW, DirectReading, stored_row
from penstock.bulk.errors import Evicted
from penstock.bulk.login import DEFAULT_URL, Credentials, split_urls
from penstock.bulk.ordered_consumer import RECONNECT_SECONDS, EndReached, OrderedConsumer, PastEnd
from penstock.bulk.pulled_range import PulledRange
from penstock.bulk.record_batch import Batch

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from pathlib import Path

    from penstock.bulk.bulk_connection import BulkConnection
    from penstock.bulk.connection_pool import LinkPool
    from penstock.bulk.direct_range import DirectRow

#: Short, so that a range whose last record was removed ends soon.
RANGE_HEARTBEAT_SECONDS: Final = 1.0
WATCH_HEARTBEAT_SECONDS: Final = 5.0
FIRST_SEQ: Final = 1


@dataclass(frozen=True, slots=True)
class BulkReader:
    """Servers, credentials and API prefix to read with; holds no open connection itself."""

    dialling: ConnectSettings
    domain: str = ""
    reconnect_seconds: float = RECONNECT_SECONDS
    api_prefix: str = ""
    consumer_prefix: str = ""
    pool: LinkPool | None = field(default=None, repr=False, compare=False)
    _questions: JetStreamApi = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_questions", JetStreamApi(self.domain, self.api_prefix))

    @classmethod
    def to(
        cls,
        servers: str | Sequence[str] = DEFAULT_URL,
        *,
        creds: str | Path | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        domain: str = "",
        reconnect_seconds: float = RECONNECT_SECONDS,
    ) -> Self:
        """Return a reader of these servers.

        `credentials` take precedence over the file `creds`, and that over credentials in a URL.
        """
        addresses, found = split_urls(servers)
        if creds is not None:
            found = Credentials.from_file(creds)
        return cls(
            ConnectSettings(addresses, credentials or found, tls=tls),
            domain=domain,
            reconnect_seconds=reconnect_seconds,
        )

    async def lookup(
        self, stream: str, questions: Sequence[dict[str, object]]
    ) -> list[DirectRow | None]:
        """Return a record, or None if there is none, for each question (`seq`, `last_by_subj`)."""
        subject = f"{self._questions.prefix}.STREAM.MSG.GET.{stream}"
        rows: list[DirectRow | None] = []
        async with self._linked() as link:
            for start in range(0, len(questions), SINGLE_WINDOW):
                asked = questions[start : start + SINGLE_WINDOW]
                replies = await asyncio.gather(
                    *(link.request(subject, json.dumps(one).encode()) for one in asked)
                )
                rows += [stored_row(one.payload) for one in replies]
        return rows

    async def stream_state(self, stream: str) -> StreamSummary:
        async with self._linked() as link:
            return await self._questions.stream_state(link, stream)

    async def range(
        self,
        stream: str,
        *,
        start: int | None = None,
        stop: int | None = None,
        filters: Sequence[str] = (),
        headers_only: bool = False,
        skip_evicted: bool = False,
        heartbeat: float = RANGE_HEARTBEAT_SECONDS,
        check: Callable[[StreamSummary, int], None] | None = None,
        pulls: bool = True,
    ) -> AsyncGenerator[Batch, None]:
        """Yield records with start <= sequence < stop; by default the whole stream as it is now.

        Raises `Evicted` if the stream begins after `start`, or evicts records before they are read,
        unless `skip_evicted`. A `check` replaces this test; what it raises propagates. With `pulls`
        the server sends exactly what the range holds and stops; without it the server pushes until
        the reader stops it. Users without permission to request messages need the latter.
        """
        state = await self.stream_state(stream)
        check = check or (None if skip_evicted else _check_not_evicted)
        if start is not None and check is not None:
            check(state, start - 1)
        last = state.last_seq if stop is None else min(stop - 1, state.last_seq)
        if last < max(start or FIRST_SEQ, state.first_seq):
            return
        selection = SubjectSelection(
            tuple(filters),
            start,
            headers_only=headers_only,
            heartbeat=heartbeat,
            name_prefix=self.consumer_prefix,
        )
        following = (
            self._pulled(state, selection, last, check)
            if pulls
            else self._following(stream, selection, stop_seq=last, whole_batches=True, check=check)
        )
        async with contextlib.aclosing(_until(following, last)) as batches:
            async for batch in batches:
                yield batch

    async def direct(
        self, stream: str, *, start: int, stop: int, filters: Sequence[str] = (), batched: bool
    ) -> AsyncGenerator[Batch, None]:
        """Yield the same records without a consumer; consumes nothing, whatever the retention.

        `batched` requests many records at a time, which the stream must allow (`allow_direct`);
        otherwise each record costs a request. There is no check for evicted records, and the caller
        handles a lost connection.
        """
        async with self._linked() as link:
            reading = DirectReading(link, self._questions.prefix, stream, filters)
            async for batch in reading.batches(start, stop, batched=batched):
                yield batch

    async def first_since(self, stream: str, time_ns: int) -> int | None:
        """Return the sequence of the first record at or after a time; None if there is none."""
        async with self._linked() as link:
            return await self._questions.first_since(link, stream, time_ns)

    async def time_of(self, stream: str, seq: int) -> int | None:
        """Return the time of the first record at or after a sequence; None if there is none."""
        async with self._linked() as link:
            return await self._questions.time_of(link, stream, seq)

    async def newest_payload(self, stream: str, subject: str) -> bytes | None:
        """Return the payload of the newest record of a subject; None if there is none."""
        async with self._linked() as link:
            return await self._questions.newest_payload(link, stream, subject)

    async def store(self, subject: str, payload: bytes, header: bytes = b"") -> int:
        """Publish one message to a stream; return its sequence. For single messages, not for
        bulk."""
        async with self._linked() as link:
            replies = await link.request(subject, payload, header=header)
        return int(accepted(replies.payload)["seq"])

    async def newest(
        self, stream: str, *, filters: Sequence[str] = (">",), headers_only: bool = False
    ) -> AsyncGenerator[Batch, None]:
        """Yield the newest record of each subject, ascending by sequence.

        A subject written during the read may appear again. If the consumer is recreated, an older
        record of the subject may come first. The last record of a subject is the valid one.
        """
        selection = SubjectSelection(
            tuple(filters),
            last_per_subject=True,
            headers_only=headers_only,
            heartbeat=RANGE_HEARTBEAT_SECONDS,
            name_prefix=self.consumer_prefix,
        )
        following = self._following(stream, selection, whole_batches=True)
        async with contextlib.aclosing(_until(following)) as batches:
            async for batch in batches:
                yield batch

    def follow(
        self,
        stream: str,
        *,
        filters: Sequence[str] = (">",),
        after: int | None = None,
        heartbeat: float = WATCH_HEARTBEAT_SECONDS,
        check: Callable[[StreamSummary, int], None] | None = None,
    ) -> OrderedConsumer:
        """Return a watch without end: after `after`, or from the newest record of each subject on.

        The caller begins and closes it. `check` is called before and after every start at a
        sequence, and raises to reject the start.
        """
        selection = SubjectSelection(
            tuple(filters), last_per_subject=after is None, heartbeat=heartbeat
        )
        return self._following(stream, selection, after=after, check=check)

    def _following(
        self,
        stream: str,
        selection: SubjectSelection,
        *,
        after: int | None = None,
        stop_seq: int = 0,
        whole_batches: bool = False,
        check: Callable[[StreamSummary, int], None] | None = None,
    ) -> OrderedConsumer:
        return OrderedConsumer(
            self._dial,
            self._questions,
            stream,
            selection,
            after=after,
            stop_seq=stop_seq,
            whole_batches=whole_batches,
            check=check,
            reconnect_seconds=self.reconnect_seconds,
            release=self._release,
        )

    def _pulled(
        self,
        state: StreamSummary,
        selection: SubjectSelection,
        last: int,
        check: Callable[[StreamSummary, int], None] | None,
    ) -> PulledRange:
        return PulledRange(
            self._dial,
            self._questions,
            state.name,
            selection,
            stop_seq=last,
            check=check,
            reconnect_seconds=self.reconnect_seconds,
            release=self._release,
            mean_bytes=state.byte_count / max(1, state.messages),
            last_seq=state.last_seq,
        )

    @contextlib.asynccontextmanager
    async def _linked(self) -> AsyncIterator[BulkConnection]:
        link = await self._dial()
        try:
            yield link
        finally:
            await self._release(link)

    async def _dial(self) -> BulkConnection:
        if self.pool is not None:
            return await self.pool.take()
        return await open_link(self.dialling)

    async def _release(self, link: BulkConnection) -> None:
        if self.pool is not None:
            await self.pool.give_back(link)
        else:
            await link.close()


async def _until(
    following: OrderedConsumer, last: int | None = None
) -> AsyncGenerator[Batch, None]:
    """Yield batches up to a sequence, or until the end; delete the consumer in any case."""
    try:
        await following.begin()
        while True:
            event = await following.next()
            if isinstance(event, Batch):
                yield event
            if isinstance(event, EndReached | PastEnd):
                return
            if last is not None and (following.position or 0) >= last:
                return
    finally:
        await following.close()


def _check_not_evicted(state: StreamSummary, position: int) -> None:
    if state.first_seq > position + 1:
        raise Evicted(state.name, wanted=position + 1, first_seq=state.first_seq)
