"""The bulk reader: ranges of a stream, the newest record of each subject, and watches, in batches.

Every read has a connection of its own, so that none waits behind another, and an ordered consumer
that is made anew when it breaks. A range ends where the stream ended when the read began, however
fast others write. What a range asks for and the stream no longer holds is an error unless the
caller says otherwise; nothing is left out in silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.bulk.bulk_connection import Dialling, open_link
from penstock.bulk.bulk_requests import Questions, StreamSummary, SubjectSelection
from penstock.bulk.direct_range import SINGLE_WINDOW, DirectReading, stored_row
from penstock.bulk.errors import Evicted, Refused
from penstock.bulk.login import DEFAULT_URL, Credentials, split_urls
from penstock.bulk.ordered_consumer import RECONNECT_SECONDS, EndReached, Following, PastEnd
from penstock.bulk.pulled_range import PulledRange
from penstock.bulk.record_batch import Batch

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from pathlib import Path

    from penstock.bulk.bulk_connection import BulkConnection
    from penstock.bulk.connection_pool import LinkPool
    from penstock.bulk.direct_range import DirectRow

#: A range ends soon after its last record went missing, so it is asked for often.
RANGE_HEARTBEAT_SECONDS: Final = 1.0
WATCH_HEARTBEAT_SECONDS: Final = 5.0
FIRST_SEQ: Final = 1


@dataclass(frozen=True, slots=True)
class BulkReader:
    """Where and as whom to read; opens nothing by itself."""

    dialling: Dialling
    domain: str = ""
    reconnect_seconds: float = RECONNECT_SECONDS
    api_prefix: str = ""
    consumer_prefix: str = ""
    pool: LinkPool | None = field(default=None, repr=False, compare=False)
    _questions: Questions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_questions", Questions(self.domain, self.api_prefix))

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
        """A reader of these servers. Given credentials count, then a file of them, then a URL's."""
        addresses, found = split_urls(servers)
        if creds is not None:
            found = Credentials.from_file(creds)
        return cls(
            Dialling(addresses, credentials or found, tls=tls),
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
                heard = await asyncio.gather(
                    *(link.request(subject, json.dumps(one).encode()) for one in asked)
                )
                rows += [stored_row(one.payload) for one in heard]
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
        """Records with start <= sequence < stop; the whole stream as it is now by default.

        `Evicted` if the stream begins behind `start`, or passes us while we read, unless skipped;
        a `check` of the caller's stands in place of that. What it raises is raised here.
        With `pulls` the server sends what the range holds and stops; without, the reader stops it
        after it has sent more. Users who may not request messages need the latter.
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
        """The same records without a consumer, so nothing is consumed whatever the retention.

        `batched` asks for many at a time, which the stream must allow (`allow_direct`); otherwise
        each costs a request. Nothing is checked, and a lost connection is the caller's to mend.
        """
        async with self._linked() as link:
            reading = DirectReading(link, self._questions.prefix, stream, filters)
            async for batch in reading.batches(start, stop, batched=batched):
                yield batch

    async def first_since(self, stream: str, time_ns: int) -> int | None:
        """The sequence of the first record at or after a time; None if there is none."""
        async with self._linked() as link:
            return await self._questions.first_since(link, stream, time_ns)

    async def time_of(self, stream: str, seq: int) -> int | None:
        """The time of the first record at or after a sequence; None if there is none."""
        async with self._linked() as link:
            return await self._questions.time_of(link, stream, seq)

    async def newest_payload(self, stream: str, subject: str) -> bytes | None:
        """The payload of the newest record of a subject; None if there is none."""
        async with self._linked() as link:
            return await self._questions.newest_payload(link, stream, subject)

    async def store(self, subject: str, payload: bytes, header: bytes = b"") -> int:
        """Publish one message to a stream; its sequence. For the odd message, not for many."""
        async with self._linked() as link:
            heard = await link.request(subject, payload, header=header)
        answer: dict[str, Any] = json.loads(heard.payload)
        if error := answer.get("error"):
            raise Refused.said(error)
        return int(answer["seq"])

    async def newest(
        self, stream: str, *, filters: Sequence[str] = (">",), headers_only: bool = False
    ) -> AsyncGenerator[Batch, None]:
        """The newest record of each subject, ascending by sequence.

        A subject written meanwhile may come again, and an older record of it in front if the
        consumer has to be made anew: the last one of a subject is the one that counts.
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
    ) -> Following:
        """A watch without end: behind `after`, or from the newest record of each subject on.

        The caller begins and closes it. `check` is asked before and after every start behind a
        sequence, and raises to refuse it.
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
    ) -> Following:
        return Following(
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


async def _until(following: Following, last: int | None = None) -> AsyncGenerator[Batch, None]:
    """Batches up to a sequence, or all there are; the consumer is taken back however it ends."""
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
