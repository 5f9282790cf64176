"""A running restore: receives an archive in chunks and creates a stream, completely or not at all.

The server acks every chunk with an empty message once it has read it. An empty chunk marks the end,
and the reply to it reports whether the stream now exists. A chunk that cannot be read does not end
the transfer: as in the reference, the server acks the remaining chunks unread, and the reply to the
end gives the reason. A restore that receives nothing for IDLE_NS is discarded without remains.

    receiving ─ end ─► syncing ─► building ─► published
        └── nothing for 5 s ─► discarded ◄── anything that fails

`archive_handlers.restore` creates it; the server runs it as a `Transfer`.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import api_subjects, refusals
from penstock.api.advisories import RestoreComplete, StreamAction
from penstock.api.json_codec import encode
from penstock.api.refusals import ApiError
from penstock.api.responses import StreamCreateResponse
from penstock.api.stream_config import Retention
from penstock.base.effects import Advise, Send
from penstock.jetstream.account.asset_info import show_stream
from penstock.jetstream.archive.archive_transfer import TransferStep
from penstock.jetstream.archive.restore_stream import Rebuilding
from penstock.jetstream.archive.stream_archive import MAGIC, InvalidArchive, StreamArchiveReader
from penstock.records.s2_stream import InvalidStream, S2Inflater
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.advisories import AdvisoryClient
    from penstock.api.stream_config import StreamConfig
    from penstock.base.effects import Effect
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.archive.archive_v1 import ArchiveReaderV1
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.store.contract import Work

IDLE_NS: Final = 5_000_000_000
"""A restore that receives nothing for this long is discarded."""
STEP_BYTES: Final = 256 << 10
"""Bytes of messages stored in one step, before others have a turn."""
STEP_ITEMS: Final = 100
ITEM_BYTES: Final = STEP_BYTES // STEP_ITEMS
"""The bytes that an item read singly counts in a step, because it costs as much time."""
SYNC_BYTES: Final = 8 << 20
"""Bytes of messages that may wait for their sync while chunks are acked."""
QUEUED_BYTES_MAX: Final = 64 << 20
"""Bytes of chunks that may wait to be read."""


class _Phase(enum.Enum):
    RECEIVING = enum.auto()
    SYNCING = enum.auto()
    BUILDING = enum.auto()


class _Chunk(NamedTuple):
    reply: str
    payload: bytes


class DiscardRestore:
    """Removes an unfinished stream."""

    def __init__(self, rebuilding: Rebuilding) -> None:
        self._rebuilding = rebuilding

    def run(self) -> None:
        self._rebuilding.discard()


class Restore:
    """One stream that is being restored."""

    watched = ""

    def __init__(
        self,
        assets: Assets,
        cfg: StreamConfig,
        *,
        inlet: str,
        client: AdvisoryClient,
        admit: Callable[[StreamConfig], ApiError | None],
        serve: Callable[[StreamHost], None],
        now_ns: int,
    ) -> None:
        """`admit` returns why the stream may not be created now; `serve` routes messages to it."""
        self.inlet = inlet
        self.is_over = False
        self.problem = ""
        self._assets = assets
        self._cfg = cfg
        self._client = client
        self._admit = admit
        self._serve = serve
        self._start_ns = now_ns
        self._active_ns = now_ns
        self._chunks: deque[_Chunk] = deque()
        self._queued = self._total = 0
        self._inflater = S2Inflater()
        self._preamble = b""
        self._reader: StreamArchiveReader | ArchiveReaderV1 | None = None
        self._rebuilding: Rebuilding | None = None
        self._phase = _Phase.RECEIVING
        self._reply = ""
        """The reply subject of the current chunk."""
        self._error: ApiError | None = None

    # -- calls from the server

    def received(self, reply: str, payload: bytes, now_ns: int) -> None:
        """Queue a chunk; an empty one is the last."""
        self._active_ns = now_ns
        if self._phase is not _Phase.RECEIVING:
            return
        if not reply:
            self._fail("every chunk must have a reply subject")
        elif self._queued + len(payload) > QUEUED_BYTES_MAX:
            self._fail("too many chunks at once")
        self._queued += len(payload)
        self._chunks.append(_Chunk(reply, payload))

    def worked(self, work: Work, failure: Exception | None) -> None:
        """Take back a sync, or the work that built the stream."""
        rebuilding = self._rebuilding
        if rebuilding is None:
            return
        if work is not rebuilding:
            rebuilding.store.synced(work, failure)
        if failure is not None:
            self._fail(str(failure))

    def fail(self, why: str) -> None:
        self._fail(why)

    def next_deadline_ns(self) -> int | None:
        waits = self._phase is _Phase.RECEIVING and not self.is_over
        return self._active_ns + IDLE_NS if waits else None

    def abandon(self) -> None:
        self.is_over = True
        if self._rebuilding is not None:
            self._rebuilding.discard()

    def _fail(self, why: str | ApiError) -> None:
        if self._error is None:
            self._error = why if isinstance(why, ApiError) else refusals.STREAM_RESTORE(err=why)

    # -- steps

    def listening(self, is_there: bool) -> None:
        """Do nothing: a restore watches no subject."""

    def step(self, now_ns: int) -> TransferStep:
        """Read more chunks, or take the next step towards the end."""
        if self.is_over:
            return TransferStep()
        if self._error is not None and self._rebuilding is not None:
            rebuilding, self._rebuilding = self._rebuilding, None
            return TransferStep(work=DiscardRestore(rebuilding))
        if self._phase is _Phase.RECEIVING:
            return self._receive(now_ns)
        if self._error is not None:
            return self._end(None, now_ns)
        return self._complete(now_ns)

    def _receive(self, now_ns: int) -> TransferStep:
        """Continue to read the current chunk, or begin the next."""
        if self._error is None and self._goes_on():
            work = self._sync()
            return TransferStep(work=work, more=True)
        return self._next_chunk(now_ns)

    def _next_chunk(self, now_ns: int) -> TransferStep:
        """Ack the chunk that was read, and begin the next."""
        effects: tuple[Effect, ...] = ()
        if self._reply:
            effects = (Send(self._reply),)
            self._reply = ""
        if not self._chunks:
            if effects or now_ns < self._active_ns + IDLE_NS:
                return TransferStep(effects)
            self._fail("stalled")
            self.is_over = self._rebuilding is None
            return TransferStep(more=not self.is_over)
        self._reply, payload = self._chunks.popleft()
        self._queued -= len(payload)
        self._total += len(payload)
        if payload:
            self._inflater.feed(payload if self._error is None else b"")
        else:
            self._finish()
        return TransferStep(effects, more=True)

    def _finish(self) -> None:
        """Check after the last chunk that the archive is complete."""
        self._phase = _Phase.SYNCING
        self._chunks.clear()
        whole = self._reader is not None and self._reader.is_whole
        if not whole or not self._inflater.is_between_frames:
            self._fail("backup was truncated")
        elif self._rebuilding is not None:
            self._try(self._rebuilding.complete)

    def _complete(self, now_ns: int) -> TransferStep:
        """Take one of the steps between the last chunk and `publish`."""
        rebuilding = self._rebuilding
        assert rebuilding is not None
        if self._phase is _Phase.SYNCING:
            work = rebuilding.store.pending_sync()
            if work is not None:
                return TransferStep(work=work)
            self._phase = _Phase.BUILDING
            return TransferStep(work=rebuilding)
        if self._assets.is_making:
            return TransferStep(more=True)  # a new stream may take its name or its subjects
        return self._publish(rebuilding, now_ns)

    def _publish(self, rebuilding: Rebuilding, now_ns: int) -> TransferStep:
        refused = self._admit(self._cfg)
        if refused is not None:
            self._fail(refused)
            return TransferStep(more=True)
        try:
            host = rebuilding.publish(now_ns)
        except StoreError as error:
            self._fail(str(error))
            return TransferStep(more=True)
        self._rebuilding = None
        if self._cfg.retention is Retention.INTEREST:
            host.chores.sweep(now_ns)
        self._serve(host)
        return self._end(host, now_ns)

    def _end(self, host: StreamHost | None, now_ns: int) -> TransferStep:
        self.is_over = True
        name = self._cfg.name
        advisory = RestoreComplete(
            stream=name,
            start=self._start_ns,
            end=now_ns,
            bytes=self._total,
            client=self._client,
        )
        effects: tuple[Effect, ...] = (Advise(f"{api_subjects.RESTORE_COMPLETE}{name}", advisory),)
        if host is not None:
            made = Advise(
                f"{api_subjects.STREAM_CREATED}{name}", StreamAction(stream=name, action="create")
            )
            effects = (made, *effects)
            info = show_stream(self._assets, host, now_ns, with_cluster=False)
            response = StreamCreateResponse(info=info)
        else:
            assert self._error is not None
            response = StreamCreateResponse.refused(self._error)
        if self._reply:
            effects = (*effects, Send(self._reply, encode(response)))
        return TransferStep(effects)

    # -- reading

    def _goes_on(self) -> bool:
        """Read a bounded amount; return whether there is more to read."""
        is_more = bool(self._try(self._read))
        if self._rebuilding is not None:
            self._try(self._rebuilding.count_bytes)
        return is_more and self._error is None

    def _try(self, act: Callable[[], object]) -> object:
        try:
            return act()
        except (InvalidArchive, InvalidStream, StoreError) as error:
            self._fail(str(error))
        except ApiError as error:
            self._fail(error)
        return None

    def _read(self) -> bool:
        stored = 0
        for _ in range(STEP_ITEMS):
            stored += self._read_run()
            if stored >= STEP_BYTES:
                return True
            item = None if self._reader is None else self._reader.next()
            if item is None:
                piece = self._inflater.next()
                if piece is None:
                    break
                self._pass_on(piece)
                stored += len(piece)
            else:
                if self._rebuilding is None:
                    self._begin()
                assert self._rebuilding is not None
                self._rebuilding.take(item)
                stored += ITEM_BYTES
        else:
            return True
        return False

    def _read_run(self) -> int:
        """Store ordinary messages, as many as a step may; return how many bytes they took."""
        if self._rebuilding is None or not isinstance(self._reader, StreamArchiveReader):
            return 0
        return self._reader.pass_messages(self._rebuilding.take_run)

    def _pass_on(self, piece: bytes) -> None:
        """Pass bytes to the reader; the first bytes select the archive format."""
        if self._reader is None:
            self._preamble += piece
            if len(self._preamble) < len(MAGIC):
                return
            piece, self._preamble = self._preamble, b""
            if piece.startswith(MAGIC):
                self._reader = StreamArchiveReader(
                    message_bytes_max=self._assets.policy.max_payload
                )
            else:
                self._reader = _old_reader()
        self._reader.feed(piece)

    def _begin(self) -> None:
        refused = self._admit(self._cfg)
        if refused is not None:
            raise refused
        self._rebuilding = Rebuilding(self._assets, self._cfg, self._start_ns)

    def _sync(self) -> Work | None:
        rebuilding = self._rebuilding
        if rebuilding is None:
            return None
        if rebuilding.unsynced_bytes < SYNC_BYTES:
            return None
        rebuilding.unsynced_bytes = 0
        return rebuilding.store.pending_sync()


def _old_reader() -> ArchiveReaderV1:
    from penstock.jetstream.archive.archive_v1 import (
        ArchiveReaderV1,  # rarely needed, and slow to import
    )

    return ArchiveReaderV1()
