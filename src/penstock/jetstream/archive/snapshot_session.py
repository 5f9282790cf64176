"""A running snapshot: sends a stream, as it was when the snapshot began, in acked chunks.

Full chunks have a reply subject, and a bounded number may be unacked. The last chunk, which may be
shorter, has none, and an empty message with a status ends the transfer. Messages written while the
snapshot runs are not in it; messages removed before they were read are missing, as in the
reference. Damaged messages are missing, too, and the completion advisory reports them; a snapshot
requested with a check fails instead. Memory holds at most one chunk and the content of one frame.
Invariant: only durable messages are sent. `archive_handlers.snapshot` creates it; the server runs
it as a `Transfer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import api_subjects
from penstock.api.advisories import SnapshotComplete
from penstock.base.effects import Advise, Send
from penstock.base.units import SECOND_NS
from penstock.jetstream.archive import stream_archive
from penstock.jetstream.archive.archive_lane import copy_out
from penstock.jetstream.archive.archive_transfer import TransferStep
from penstock.records.s2_stream import Deflater
from penstock.store.contract import Cold
from penstock.store.indexed_store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.api.advisories import AdvisoryClient
    from penstock.api.request_bodies import SnapshotRequest
    from penstock.base.effects import Effect
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.store.contract import Range, Work

CHUNK_BYTES_DEFAULT: Final = 128 << 10
CHUNK_BYTES_MIN: Final = 1 << 10
CHUNK_BYTES_MAX: Final = 1 << 20
WINDOW_BYTES_DEFAULT: Final = 8 << 20
WINDOW_BYTES_MAX: Final = 32 << 20
ACK_NS: Final = 5 * SECOND_NS
"""Without an ack for this long, the snapshot ends."""
INTEREST_NS: Final = 2 * SECOND_NS
"""How long a receiver may take to subscribe."""
STEP_BYTES: Final = 256 << 10
"""Bytes of messages read in one step, before others have a turn."""
STEP_MESSAGES: Final = 100
RANGES_SENT_MAX: Final = 16
"""Ranges of damaged messages that the report lists."""

WHOLE: Final = b"NATS/1.0 204\r\n\r\n"
NO_INTEREST: Final = b"NATS/1.0 408 No Interest\r\n\r\n"
NO_FLOW: Final = b"NATS/1.0 408 No Flow Response\r\n\r\n"


def capture(
    host: StreamHost, now_ns: int, *, has_consumers: bool
) -> tuple[stream_archive.ArchiveExtent, list[bytes]]:
    """Return the stream's totals, and the archive's bytes before the messages."""
    consumers = [host.consumers[name] for name in host.registry.listed]
    state = host.stream.state(consumers=len(consumers))
    written = host.stream.state(consumers=len(consumers) if has_consumers else 0)
    head = [stream_archive.MAGIC, stream_archive.state_entry(written, now_ns)]
    if has_consumers:
        head += [
            stream_archive.consumer_entry(
                each.name, each.cfg, each.log.state, state.last_seq, now_ns
            )
            for each in consumers
        ]
    return stream_archive.ArchiveExtent(state), head


class SnapshotSession:
    """One stream that is being sent."""

    def __init__(
        self,
        host: StreamHost,
        request: SnapshotRequest,
        *,
        head: list[bytes],
        last_seq: int,
        inlet: str,
        client: AdvisoryClient,
        has_interest: Callable[[str], bool],
        now_ns: int,
    ) -> None:
        """`head` is the archive before the messages; those go up to `last_seq`."""
        self.inlet = f"{inlet}.>"
        self.watched = request.deliver_subject
        self.is_over = False
        self.problem = ""
        self._host = host
        self._is_checked = request.jsck
        self._acks = inlet
        self._to = request.deliver_subject
        self._chunk_bytes = clamp(request.chunk_size or CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MAX)
        window = clamp(request.window_size or WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX)
        self._free = self._free_max = max(window // self._chunk_bytes, 1)
        self._client = client
        self._has_interest = has_interest
        self._start_ns = now_ns
        self._deadline_ns = now_ns + INTEREST_NS
        self._is_awaited = False
        """Whether the deliver subject itself, not only a wildcard, has a subscriber."""
        self._has_reader = False
        """Whether the deliver subject has had a receiver."""
        self._deflater = Deflater()
        self._out = bytearray()
        self._last_seq = last_seq
        self._chunks = 0
        self._pieces = self._read(head)
        self._cold: Cold | None = None
        self._is_read = False
        self._failure = ""

    # -- calls from the server

    def received(self, reply: str, payload: bytes, now_ns: int) -> None:
        """Take the ack of a chunk."""
        self._free = min(self._free + 1, self._free_max)

    def listening(self, is_there: bool) -> None:
        self._is_awaited = is_there

    def worked(self, work: Work, failure: Exception | None) -> None:
        """Take back a fetched block, or the reason it cannot be read."""
        if failure is not None:
            self._failure = str(failure)
        elif not self._host.is_closed:
            self._host.stream.store.fetched(work)

    def fail(self, why: str) -> None:
        self._failure = self._failure or why

    def next_deadline_ns(self) -> int | None:
        return None if self.is_over else self._deadline_ns

    def abandon(self) -> None:
        self.is_over = True

    # -- steps

    def step(self, now_ns: int) -> TransferStep:
        """Read on, or send a chunk."""
        if self.is_over:
            return TransferStep()
        if not (self._has_reader or self._is_awaited or now_ns >= self._deadline_ns):
            # A client with a wildcard inbox may subscribe only after the reply: its inbox shows
            # interest before the receiver is ready.
            return TransferStep()
        if not self._has_interest(self._to):
            is_over = self._has_reader or now_ns >= self._deadline_ns
            return self._end(NO_INTEREST, "no interest", now_ns) if is_over else TransferStep()
        if not self._has_reader:
            self._has_reader = True
            self._deadline_ns = now_ns + ACK_NS
        if not self._free:
            late = now_ns >= self._deadline_ns
            return self._end(NO_FLOW, "no flow response", now_ns) if late else TransferStep()
        if len(self._out) < self._chunk_bytes and not (self._is_read or self._failure):
            self._fill()
            if self._cold is not None and not self._failure:
                return TransferStep(work=self._host.stream.store.fetch(self._cold))
        if self._failure:
            failed = b"NATS/1.0 500 %b\r\n\r\n" % self._failure.encode()
            return self._end(failed, self._failure, now_ns)
        return self._send(now_ns)

    def _send(self, now_ns: int) -> TransferStep:
        size = self._chunk_bytes
        if len(self._out) >= size:
            chunk = bytes(self._out[:size])
            del self._out[:size]
            self._chunks += 1
            self._free -= 1
            self._deadline_ns = now_ns + ACK_NS
            reply = f"{self._acks}.{size}.{self._chunks}"
            return TransferStep((Send(self._to, chunk, reply=reply),), more=True)
        if not self._is_read:
            return TransferStep(more=True)
        last: tuple[Effect, ...] = (Send(self._to, bytes(self._out)),) if self._out else ()
        ended = self._end(WHOLE if self._chunks else b"", self.problem, now_ns)
        return TransferStep(last + ended.effects)

    def _end(self, header: bytes, error: str, now_ns: int) -> TransferStep:
        self.is_over = True
        advisory = SnapshotComplete(
            stream=self._host.name,
            start=self._start_ns,
            end=now_ns,
            client=self._client,
            error=error,
        )
        return TransferStep(
            (
                Send(self._to, header=header),
                Advise(f"{api_subjects.SNAPSHOT_COMPLETE}{self._host.name}", advisory),
            )
        )

    # -- reading

    def _fill(self) -> None:
        """Read until a chunk is full, the step is used up, or a block is missing."""
        read = 0
        self._cold = None
        if self._host.is_closed:
            self._failure = self._failure or "stream closed"
        for _ in range(0 if self._failure else STEP_MESSAGES):
            piece = next(self._pieces, None)
            if piece is None:
                self._finish()
                return
            if isinstance(piece, Cold):
                self._cold = piece
                return
            self._out += self._deflater.add(piece)
            read += len(piece)
            if read >= STEP_BYTES or len(self._out) >= self._chunk_bytes:
                return

    def _finish(self) -> None:
        """Report damage and end the archive: everything readable is read."""
        damaged = [each for each in self._host.stream.store.state().damaged if self._is_part(each)]
        if damaged:
            listed = [f"{first}-{last}" for first, last in damaged[:RANGES_SENT_MAX]]
            ranges = ", ".join(listed + ["..."] * (len(damaged) > len(listed)))
            self.problem = (
                f"stream {self._host.name}: messages {ranges} are damaged, and not in the snapshot"
            )
        if damaged and self._is_checked:
            number = sum(min(last, self._last_seq) - first + 1 for first, last in damaged)
            self._failure = f"snapshot check detected {number} bad messages"
            return
        self._out += self._deflater.finish()
        self._is_read = True

    def _is_part(self, damaged: Range) -> bool:
        return damaged[0] <= self._last_seq

    def _read(self, head: list[bytes]) -> Iterator[bytes | Cold]:
        """Yield the archive in pieces; a `Cold` stands for a block that must be read first."""
        yield from head
        store = self._host.stream.store
        log = store.lane_parts()["log"] if isinstance(store, IndexedStore) else None
        seq = 0
        while seq <= self._last_seq:
            if log is not None:
                run, seq = copy_out(log, seq, self._last_seq, STEP_BYTES)
                if run:
                    yield run
                    continue
            found = store.next_match((), seq)
            if isinstance(found, Cold):
                yield found
                continue
            if found is None or found.seq > self._last_seq:
                break
            seq = found.seq + 1
            yield stream_archive.message_entry(
                found.seq, found.ts_ns, found.subject, found.header, found.payload
            )
        yield stream_archive.END


def clamp(size: int, size_max: int) -> int:
    """Return a size within the allowed range."""
    return min(max(CHUNK_BYTES_MIN, size), size_max)
