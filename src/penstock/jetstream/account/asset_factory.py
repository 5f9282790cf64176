"""Creates streams and consumers, or opens existing ones: their files, stores and state machines.

Invariant: the configuration of a new stream is durable when creation returns, before any client
hears of the stream; a new consumer exists once the caller has saved its files. Assets in memory
have no files and end with the process, as in the reference. Handlers, restore and recovery call
this.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api.json_codec import encode
from penstock.api.stream_config import Compression, PersistMode, Retention, Storage
from penstock.jetstream.consumers.consumer import Consumer
from penstock.jetstream.consumers.consumer_context import ConsumerContext
from penstock.jetstream.consumers.pull_delivery import Closing
from penstock.jetstream.consumers.state.consumer_state import MemoryLog
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.jetstream.streams.retention import limits_of
from penstock.jetstream.streams.stream import Stream
from penstock.jetstream.streams.stream_parts import build_parts
from penstock.store.filestore import FileStore
from penstock.store.format.compression import BlockCompression as StoreCompression
from penstock.store.memstore import MemStore

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.consumers.state.consumer_state import ConsumerState, StateLog
    from penstock.jetstream.host.asset_files import ConsumerFiles, StreamFiles
    from penstock.store.contract import Store


INCARNATION_BYTES: Final = 8
WORD_BYTES: Final = 8


class CreatedAsset(NamedTuple):
    """The files and the store of a new stream that is not registered yet."""

    files: StreamFiles | None
    store: Store


def make_files(assets: Assets, cfg: StreamConfig, now_ns: int) -> CreatedAsset:
    """Create the files of a new stream, durably. Raises StoreError; after any exception no files
    remain. Blocks for several syncs; may run on any thread."""
    build_parts(cfg)  # reject an unservable configuration before files exist
    files = None
    if cfg.storage is Storage.FILE and assets.files is not None:
        files = assets.files.create_stream(cfg.name, encode(cfg), now_ns)
    try:
        return CreatedAsset(files, open_store(assets, cfg, files))
    except BaseException:
        if files is not None:
            files.mark_deleted()
        raise


def host_made(assets: Assets, cfg: StreamConfig, made: CreatedAsset, now_ns: int) -> StreamHost:
    """Create the host of a new stream; after any exception no files remain."""
    try:
        return _host(assets, cfg, made.store, made.files, created_ns=now_ns, now_ns=now_ns)
    except BaseException:
        if made.files is not None:
            made.files.mark_deleted()
        raise


def make_stream(assets: Assets, cfg: StreamConfig, now_ns: int) -> StreamHost:
    """Create an empty stream. Raises StoreError. Blocks for several syncs."""
    return host_made(assets, cfg, make_files(assets, cfg, now_ns), now_ns)


def host_stream(
    assets: Assets,
    cfg: StreamConfig,
    files: StreamFiles | None,
    *,
    created_ns: int,
    now_ns: int,
    first_seq: int = 0,
) -> StreamHost:
    """Create the host of a stream whose files exist; `first_seq` as in its `StreamMeta`."""
    store = open_store(assets, cfg, files, first_seq=first_seq)
    if cfg.mirror is not None and isinstance(store, FileStore) and store.recovery.unsynced:
        # In other streams, sequences that clients may have seen before they were lost stay a gap. A
        # mirror assigns no sequences: its origin has the same ones, so the mirror copies them
        # again.
        store.truncate(store.recovery.unsynced[0] - 1)
    return _host(assets, cfg, store, files, created_ns=created_ns, now_ns=now_ns)


def _host(
    assets: Assets,
    cfg: StreamConfig,
    store: Store,
    files: StreamFiles | None,
    *,
    created_ns: int,
    now_ns: int,
) -> StreamHost:
    host = build_host(assets, cfg, store, files, created_ns=created_ns)
    if host.positions is not None and cfg.sources:
        host.positions.load_into(host.stream)
    while (cold := host.stream.recover(now_ns)) is not None:
        work = store.fetch(cold)  # no client is served yet, so blocking here delays none
        work.run()
        store.fetched(work)
    if host.positions is not None:
        host.positions.trim_to(host.stream)
    assets.add(host)
    return host


def build_host(
    assets: Assets,
    cfg: StreamConfig,
    store: Store,
    files: StreamFiles | None,
    *,
    created_ns: int,
) -> StreamHost:
    """Create the host of a stream that has not recovered yet and is not registered."""
    host: StreamHost | None = None

    def wants(subject: str) -> bool:
        return host is not None and host.wants(subject)

    replicate = assets.environment.replicate
    kind = Stream if replicate is None else ReplicatedStream
    stream = kind(
        cfg,
        store,
        created_ns=created_ns,
        domain=assets.environment.domain,
        has_interest=wants,
        may_store=lambda n: assets.room_for(cfg.storage, n),
        max_payload=assets.policy.max_payload,
        batch_limits=assets.policy.batches,
        in_flight=assets.in_flight,
    )
    identity = _public_identity(assets, files)
    host = StreamHost(stream, files, incarnation=identity, replicate=replicate)
    return host


def _public_identity(assets: Assets, files: StreamFiles | None) -> str:
    """Return a public identifier for the incarnation of a stream. It is a hash: the incarnation
    itself keys the records in the files, and a publisher that knew it could forge records."""
    number = assets.environment.seed() if files is None else files.incarnation
    raw = number.to_bytes(INCARNATION_BYTES, "little")
    return hashlib.blake2b(raw, digest_size=WORD_BYTES, person=b"stream").hexdigest()


def open_store(
    assets: Assets, cfg: StreamConfig, files: StreamFiles | None, *, first_seq: int = 0
) -> Store:
    """Open the messages of a stream: those on disk, or an empty store."""
    environment = assets.environment
    first_seq = max(1, first_seq or cfg.first_seq)
    if files is None:
        return MemStore(
            limits_of(cfg), first_seq=first_seq, seed=environment.seed(), noise=environment.noise
        )
    return FileStore.open(
        files.messages,
        limits=limits_of(cfg),
        incarnation=files.incarnation,
        first_seq=first_seq,
        sync_always=not assets.policy.lazy and cfg.persist_mode is PersistMode.DEFAULT,
        compression=compression_of(cfg),
        key=assets.policy.key,
        former_keys=assets.policy.former_keys,
        key_salt=assets.policy.key_salt,
        seed=environment.seed(),
        noise=environment.noise,
    )


def compression_of(cfg: StreamConfig) -> StoreCompression:
    """Return our block compression for the reference's setting."""
    is_wanted = cfg.compression is not Compression.NONE
    return StoreCompression.ZSTD if is_wanted else StoreCompression.NONE


def make_consumer(
    assets: Assets, host: StreamHost, name: str, cfg: ConsumerConfig, now_ns: int
) -> Consumer:
    """Create a consumer; if it has files, it exists once they are saved. Raises StoreError; after
    any exception nothing of it remains."""
    files = None
    if host.files is not None and not cfg.mem_storage and not cfg.direct:
        files = host.files.begin_consumer(name)
    consumer = Consumer(
        name,
        cfg,
        surroundings(assets, host),
        MemoryLog() if files is None else files.state,
        created_ns=now_ns,
        now_ns=now_ns,
        recovered=False,
    )
    try:
        host.add_consumer(consumer, files)
    except BaseException:
        withdraw_consumer(host, name, now_ns)
        raise
    return consumer


def withdraw_consumer(host: StreamHost, name: str, now_ns: int) -> None:
    """Remove a consumer that could not be added, saved or served; its files stay."""
    host.registry.forget_files(name)
    consumer = host.consumers.get(name)
    if consumer is not None:
        host.drop_consumer(name, consumer.closing(Closing.DELETED), now_ns)


def host_consumer(
    assets: Assets,
    host: StreamHost,
    name: str,
    cfg: ConsumerConfig,
    files: ConsumerFiles | None,
    *,
    created_ns: int,
    now_ns: int,
    recovered: bool,
    state: ConsumerState | None = None,
) -> Consumer:
    """Create a consumer whose files exist; without files, `state` is its initial state."""
    log: StateLog = MemoryLog(state) if files is None else files.state
    consumer = Consumer(
        name,
        cfg,
        surroundings(assets, host),
        log,
        created_ns=created_ns,
        now_ns=now_ns,
        recovered=recovered,
    )
    host.add_consumer(consumer, files)
    return consumer


def surroundings(assets: Assets, host: StreamHost) -> ConsumerContext:
    """Return the context that a stream's consumers work in."""
    cfg = host.stream.cfg
    environment = assets.environment
    return ConsumerContext(
        stream_name=cfg.name,
        store=host.stream.store,
        has_interest=environment.has_interest,
        nuid=environment.nuid,
        account=environment.account,
        account_hash=environment.account_hash,
        domain=environment.domain,
        max_msgs_per_subject=cfg.max_msgs_per_subject,
        by_interest=cfg.retention is not Retention.LIMITS,
        outlet=environment.outlet,
    )
