"""Builds a stream from an archive, apart from all other streams until it is complete.

`Restore` passes items in the archive's order, then calls `complete`, `run` and `publish`, or
`discard`. The files are in a staging directory that is not a stream. Invariant: until `publish` has
returned, neither clients nor a recovery can find any of the stream; afterwards all of it. Sequences
and times are kept, and the limits of the configuration apply to restored messages as to any other.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from penstock.api import refusals
from penstock.api.consumer_config import ConsumerAction
from penstock.api.json_codec import encode
from penstock.api.refusals import ApiError
from penstock.api.rules.consumer_requests import RequestContext, decide
from penstock.api.stream_config import Storage
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.account.asset_factory import build_host, host_consumer, open_store
from penstock.jetstream.account.policy import consumer_caps
from penstock.jetstream.archive.archive_lane import ArchiveIntake
from penstock.jetstream.archive.stream_archive import (
    ArchiveExtent,
    Created,
    InvalidArchive,
    RemovedRange,
    SavedConsumer,
)
from penstock.jetstream.host.asset_files import ConsumerMeta, StreamMeta
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.ttl import parse_ttl, ttl_ns
from penstock.store.errors import StoreError
from penstock.store.indexed_store import IndexedStore
from penstock.subjects.tokens import is_valid_subject
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.archive.stream_archive import Item, SavedMessage
    from penstock.jetstream.host.asset_files import ConsumerFiles
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.store.contract import Store


RUN_BYTES: Final = 256 << 10
"""Bytes of entries that one run stores."""
SUBJECT_LENGTH_MAX: Final = 16_383
"""A longer subject could have more bytes than a record can hold."""


class Rebuilding:
    """One stream that is being restored; created once the archive proves readable."""

    def __init__(self, assets: Assets, cfg: StreamConfig, now_ns: int) -> None:
        """Raises StoreError."""
        self._assets = assets
        self._cfg = cfg
        self._now_ns = now_ns
        self._created_ns = now_ns
        self._files = None
        if cfg.storage is Storage.FILE and assets.files is not None:
            self._files = assets.files.stage_stream(encode(cfg), now_ns)
        self.store = self._open()
        state = self.store.state()
        self._last_seq, self._last_ts_ns = state.last_seq, state.last_ts_ns
        self._state_last_seq = 0
        self._state_last_ts_ns = 0
        self._consumers: dict[str, tuple[ConsumerConfig, SavedConsumer]] = {}
        self._consumer_files: dict[str, ConsumerFiles] = {}
        self._host: StreamHost | None = None
        self._held = 0
        self.unsynced_bytes = 0
        self._intake = self._make_intake()

    def _make_intake(self) -> ArchiveIntake | None:
        """Return the fast path for messages without a TTL that no limit affects."""
        cfg, store = self._cfg, self.store
        if not isinstance(store, IndexedStore):
            return None
        bytes_max = self._assets.policy.max_payload
        if cfg.max_msg_size >= 0:
            bytes_max = min(bytes_max, cfg.max_msg_size)
        return ArchiveIntake(
            store.lane_parts()["log"],
            message_bytes_max=bytes_max,
            takes_headers=not cfg.allow_msg_ttl,
            msgs_max=cfg.max_msgs,
            bytes_max=cfg.max_bytes,
            per_subject_max=cfg.max_msgs_per_subject,
        )

    def _open(self) -> Store:
        try:
            return open_store(self._assets, self._cfg, self._files)
        except StoreError:
            if self._files is not None:
                self._files.discard()
            raise

    # -- items

    def take(self, item: Item) -> None:
        """Add the next item. Raises InvalidArchive, ApiError, StoreError."""
        if isinstance(item, ArchiveExtent):
            self._fit(item)
        elif isinstance(item, SavedConsumer):
            self._add_consumer(item)
        elif isinstance(item, RemovedRange):
            self._remove(item)
        elif isinstance(item, Created):
            self._identify(item)
        else:
            self._store(item)

    def take_run(self, entries: bytearray) -> int:
        """Store the ordinary messages at the start of some entries; return the bytes they took."""
        intake = self._intake
        if intake is None:
            return 0
        before = intake.taken_bytes
        taken = intake.copy_in(entries, 0, RUN_BYTES)
        if taken:
            self._last_seq, self._last_ts_ns = self.store.last_seq, self.store.last_ts_ns
            self.unsynced_bytes += intake.taken_bytes - before
        return taken

    def _identify(self, item: Created) -> None:
        if item.name != self._cfg.name:
            raise InvalidArchive("stream names do not match")
        self._created_ns = item.created_ns or self._now_ns

    def _fit(self, item: ArchiveExtent) -> None:
        state = item.state
        if not 0 <= state.last_seq <= SEQ_MAX:
            raise InvalidArchive("invalid stream state: no sequence is left")
        self._check_room(state.bytes - self._held)
        self._state_last_seq, self._state_last_ts_ns = state.last_seq, state.last_ts
        if state.first_seq - 1 > self._last_seq:
            self._skip_to(state.first_seq - 1, 0)
        elif self.store.state().first_seq < state.first_seq:
            self.store.purge(before_seq=state.first_seq)

    def _skip_to(self, last: int, ts_ns: int) -> None:
        ts_ns = max(ts_ns, self._last_ts_ns)
        self.store.skip(self._last_seq + 1, last, ts_ns)
        self._last_seq, self._last_ts_ns = last, ts_ns

    def _store(self, msg: SavedMessage) -> None:
        seq, subject, header = msg.seq, msg.subject, msg.header
        if not self._last_seq < seq <= SEQ_MAX:
            raise InvalidArchive(f"message sequence {seq} out of order")
        if not is_valid_subject(subject) or len(subject) > SUBJECT_LENGTH_MAX:
            raise InvalidArchive(f"message sequence {seq} has an invalid subject")
        size = len(header) + len(msg.payload)
        if 0 <= self._cfg.max_msg_size < size:
            raise InvalidArchive(f"message sequence {seq} exceeds maximum message size")
        # A store requires timestamps that never decrease; an archive may have some that do.
        ts_ns = max(msg.ts_ns, self._last_ts_ns, 0)
        lives_ns = ttl_ns(self._ttl(msg), ts_ns)
        if 0 < lives_ns < self._now_ns - ts_ns:
            self._skip_to(seq, ts_ns)
            return
        self.store.append(
            subject, header, msg.payload, ts_ns, seq=seq, ttl_ns=lives_ns, admitted=True
        )
        self._last_seq, self._last_ts_ns = seq, ts_ns
        self.unsynced_bytes += size

    def _ttl(self, msg: SavedMessage) -> int:
        if not self._cfg.allow_msg_ttl or not msg.header:
            return 0
        ttl = headers.get(msg.header, publish_headers.TTL)
        seconds = parse_ttl(ttl) if ttl else 0
        if seconds is None:
            raise InvalidArchive(f"failed to parse message TTL of sequence {msg.seq}")
        return seconds

    def _remove(self, item: RemovedRange) -> None:
        for seq in item.seqs:
            if seq > SEQ_MAX:
                raise InvalidArchive(f"message sequence {seq} out of range")
            if seq > self._last_seq:
                self._skip_to(seq, item.ts_ns)  # assigned, but its message is not in the archive
            else:
                self.store.remove(seq)

    def _add_consumer(self, item: SavedConsumer) -> None:
        around = RequestContext(
            stream=self._cfg,
            caps=consumer_caps(self._assets.policy, self._assets.limits),
            consumers={name: cfg for name, (cfg, _) in self._consumers.items()},
            has_interest=lambda subject: True,
        )
        named = structs.replace(item.config, name=item.name)
        if named.durable_name not in ("", item.name) or item.name in self._consumers:
            raise InvalidArchive(f'failed to add consumer "{item.name}": its name is another\'s')
        cfg = decide(named, ConsumerAction.CREATE, around)
        if isinstance(cfg, ApiError):
            raise InvalidArchive(f'failed to add consumer "{item.name}": {cfg.description}')
        self._consumers[item.name] = (cfg, item)

    def count_bytes(self) -> None:
        """Count the stored bytes against the account's limits. Raises ApiError."""
        grown = self.store.total_bytes - self._held
        self._assets.hold(self._cfg.storage, grown)
        self._held += grown
        self._check_room(0)

    def _check_room(self, n: int) -> None:
        storage = self._cfg.storage
        if self._assets.room_for(storage, n) is None:
            return
        if storage is Storage.MEMORY:
            raise refusals.MEMORY_RESOURCES_EXCEEDED
        raise refusals.STORAGE_RESOURCES_EXCEEDED

    # -- the end

    def complete(self) -> None:
        """Add the missing sequences at the end: all items were taken."""
        if self._last_seq < self._state_last_seq:
            self._skip_to(self._state_last_seq, self._state_last_ts_ns)
        if self.store.state().msgs < self._last_seq:
            # Messages that it lacks may have been lost before the archive was written.
            self.store.note_lost(self._last_seq)

    def run(self) -> None:
        """Create the consumers' files, durably, and the host. Raises StoreError.

        This takes long, so it runs on a disk thread: no other code can reach the objects yet.
        """
        self._make_consumer_files()
        self._host = build_host(
            self._assets, self._cfg, self.store, self._files, created_ns=self._created_ns
        )
        while (cold := self._host.stream.recover(self._now_ns)) is not None:
            work = self.store.fetch(cold)
            work.run()
            self.store.fetched(work)

    def _make_consumer_files(self) -> None:
        if self._files is None:
            return
        for name, (cfg, saved) in self._consumers.items():
            if cfg.mem_storage:
                continue
            meta = ConsumerMeta(
                name=name,
                config=msgspec.Raw(encode(cfg)),
                created_ns=saved.created_ns or self._now_ns,
            )
            self._consumer_files[name] = self._files.create_consumer(meta, saved.state)

    def publish(self, now_ns: int) -> StreamHost:
        """Make the stream exist. Raises StoreError. Blocks for several syncs."""
        host = self._host
        assert host is not None
        if self._files is not None and self._assets.files is not None:
            meta = StreamMeta(
                config=msgspec.Raw(encode(self._cfg)),
                created_ns=self._created_ns,
                incarnation=self._files.incarnation,
            )
            self._files.save(meta)
            self._assets.files.publish(self._files, self._cfg.name)
        self._release()
        self._assets.add(host)
        for name, (cfg, saved) in self._consumers.items():
            host_consumer(
                self._assets,
                host,
                name,
                cfg,
                self._consumer_files.get(name),
                created_ns=saved.created_ns or self._now_ns,
                now_ns=now_ns,
                recovered=True,
                state=saved.state,
            )
        return host

    def _release(self) -> None:
        self._assets.hold(self._cfg.storage, -self._held)
        self._held = 0

    def discard(self) -> None:
        """Remove the unfinished stream. Blocks; raises StoreError."""
        self._release()
        with contextlib.suppress(StoreError):  # failed writes do not matter: the files are removed
            for files in self._consumer_files.values():
                files.close()
        with contextlib.suppress(StoreError):
            self.store.close()
        if self._files is not None:
            self._files.discard()
