"""The files of one account: a directory per stream, with its messages and consumers.

    <account>/<stream>/meta             configuration, in two slots
    <account>/<stream>/sources          how far its sources have been copied, if it has any
    <account>/<stream>/msgs/            the blocks of its messages
    <account>/<stream>/obs/<consumer>.* configuration and state of every durable consumer

Invariant: an asset exists if and only if its `meta` (`.meta`) file exists. That file is created
last and removed first, so a crash leaves either a whole asset or remains that `sweep` removes. A
restored stream is created under a temporary name and renamed when all of it is durable. The name on
disk is the asset's own name where that is safe, else a hash; the configuration has the real name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.api.refusals import ApiError
from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState, MalformedDelta
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore, RecoveryReport
from penstock.jetstream.host.disk_work import DiskWork, FileGate, run_all
from penstock.jetstream.host.lazy_consumer_log import LazyConsumerLog
from penstock.jetstream.sources.source_positions import Positions
from penstock.store.errors import NotFound, StoreError
from penstock.store.io.slots import SlotFile, read_slots, state_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jetstream.host.disk_work import FileSteps
    from penstock.store.io.disk import Disk

META_NAME: Final = "meta"
META_SUFFIX: Final = ".meta"
MESSAGES_NAME: Final = "msgs"
CONSUMERS_NAME: Final = "obs"
GONE_PREFIX: Final = "~gone-"
"""A directory with this prefix is being removed."""
STAGED_PREFIX: Final = "~new-"
"""A directory with this prefix is not a stream yet."""
META_BYTES_MAX: Final = 1 << 20
META_INCARNATION: Final = 0
"""The file that stores a stream's incarnation cannot itself be keyed by that incarnation."""
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}\Z")
HASH_PREFIX: Final = "~"
NOT_SERVED: Final = "there are files of an asset that is not served; see the log of the last start"


class StreamMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The stored description of a stream, without its messages."""

    config: msgspec.Raw
    created_ns: int
    incarnation: int
    first_seq: int = 0
    """The first sequence of a stream without blocks; 0: as in the configuration.

    An update may change `first_seq` of the configuration, but not the sequences of the stream.
    """
    version: int = 1


class ConsumerMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The stored description of a consumer."""

    name: str
    config: msgspec.Raw
    created_ns: int
    state: bytes | None = None
    """Its initial state, until its state has files of its own."""
    version: int = 1


def why_unserved(error: Exception) -> str:
    """Return the reason to report to the operator; an unexpected error includes its type."""
    expected = isinstance(error, (StoreError, ApiError, MalformedDelta, msgspec.MsgspecError))
    return str(error) if expected else f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class UnreadableAsset:
    """An asset that cannot be opened: its files stay unchanged, and the server logs the reason."""

    name: str
    why: str


def file_name(name: str) -> str:
    """Return the name of an asset on disk."""
    if PLAIN_NAME.match(name):
        return name
    return HASH_PREFIX + hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class ConsumerFiles:
    """The files of one consumer: the configuration in slots, the state in its own store.

    The state store does not exist before the consumer's first change; until then `save` writes the
    initial state with the configuration. `gate` admits one writer of these files at a time.
    """

    __slots__ = ("_disk", "_incarnation", "_meta", "_name", "gate", "state")

    def __init__(self, disk: Disk, name: str, incarnation: int, begin: ConsumerState) -> None:
        """Describe a consumer that does not exist until `save`; `StreamFiles` calls this."""
        self._disk = disk
        self._name = name
        self._incarnation = incarnation
        self._meta: SlotFile | None = None
        self.gate = FileGate()
        self.state = LazyConsumerLog(begin, self._make_state, self.gate)

    def opened(self, meta: SlotFile, store: ConsumerStateStore | None) -> ConsumerFiles:
        """Attach the open files of an existing consumer."""
        self._meta = meta
        if store is not None:
            self.state = LazyConsumerLog(store.state, self._make_state, self.gate, store)
        return self

    def save(self, meta: ConsumerMeta) -> FileSteps:
        """Write a configuration durably, on a disk thread. Raises StoreError.

        If the first save fails, no file of the consumer remains.
        """
        yield from self.gate.taken()
        try:
            begin = None if self.state.has_files else self.state.state.encode(0)
            upto = self.state.recorded_seq
            value = msgspec.json.encode(msgspec.structs.replace(meta, state=begin))
            work = DiskWork(lambda: self._write(value))
            yield work
            work.result()
            if begin is not None:
                self.state.stored_with_config(upto)
        finally:
            self.gate.leave()

    def _write(self, value: bytes) -> None:
        if self._meta is not None:
            self._meta.write(value)
            return
        try:
            self._meta = SlotFile.create(
                self._disk, self._name + META_SUFFIX, self._meta_key(), value
            )
        except Exception as error:
            if not (isinstance(error, StoreError) and error.errno == errno.EEXIST):
                with contextlib.suppress(StoreError):
                    self._disk.unlink(self._name + META_SUFFIX)
            raise

    def _meta_key(self) -> bytes:
        return state_key(f"consumer-meta/{self._name}", self._incarnation)

    def _make_state(self, state: ConsumerState) -> ConsumerStateStore:
        """Create the state files, then record in the configuration that the state is in files."""
        self._remove_state()  # left by an attempt that failed
        store = ConsumerStateStore.create(
            self._disk, self._name, incarnation=self._incarnation, state=state
        )
        if self._meta is not None:
            reading = read_slots(self._disk, self._meta.file, self._meta_key())
            meta = msgspec.json.decode(reading.value, type=ConsumerMeta)
            self._meta.write(msgspec.json.encode(msgspec.structs.replace(meta, state=None)))
        return store

    def _remove_state(self) -> None:
        with contextlib.suppress(NotFound):
            ConsumerStateStore.delete(self._disk, self._name)

    def close(self) -> None:
        """Write pending changes and close the files; for a consumer that was never saved, only
        close them. Blocks."""
        if self._meta is None:
            self.state.abandon()
            return
        self.state.close()
        self._meta.close()

    def abandon(self) -> None:
        """Close the files without writing: the consumer or its stream is deleted."""
        self.state.abandon()
        if self._meta is not None:
            self._meta.close()

    def delete(self) -> FileSteps:
        """Delete the consumer durably, on a disk thread. If this raises, it still exists."""
        yield from self.gate.taken()
        try:
            work = DiskWork(self._unlink)
            yield work
            work.result()
        finally:
            self.gate.leave()

    def _unlink(self) -> None:
        self._disk.unlink(self._name + META_SUFFIX)
        self._disk.sync_dir()

    def remove_rest(self) -> FileSteps:
        """Remove a deleted consumer's remaining files, on a disk thread; ignore failures."""
        had_state = self.state.has_files
        self.abandon()
        if had_state:
            yield DiskWork(lambda: ConsumerStateStore.sweep(self._disk, self._name))


class StreamFiles:
    """The directory of one stream."""

    def __init__(self, account: Disk, name: str, meta: SlotFile, incarnation: int) -> None:
        self._account = account
        self.name = name
        self._disk = account.subdir(name)
        self._meta = meta
        self.incarnation = incarnation
        self.messages = self._disk.subdir(MESSAGES_NAME)
        self._consumers = self._disk.subdir(CONSUMERS_NAME)
        self.unserved: dict[str, str] = {}
        """Why consumers on disk cannot be served, by file name."""

    def save(self, meta: StreamMeta) -> None:
        """Write a new configuration durably."""
        self._meta.write(msgspec.json.encode(meta))

    def positions(self) -> Positions:
        """Return how far its sources have been copied; the file may not exist."""
        return Positions(self._disk, self.incarnation)

    def create_consumer(
        self, meta: ConsumerMeta, state: ConsumerState | None = None
    ) -> ConsumerFiles:
        """Create a consumer durably, with this initial state. Blocks for several syncs."""
        files = self.begin_consumer(meta.name, state)
        run_all(files.save(meta))
        return files

    def begin_consumer(self, name: str, state: ConsumerState | None = None) -> ConsumerFiles:
        """Return the files of a consumer that exists once it is saved. Raises StoreError."""
        if file_name(name) in self.unserved:
            path = f"{self._consumers.path}/{file_name(name)}"
            raise StoreError(path, "create", errno.EEXIST, NOT_SERVED)
        return ConsumerFiles(
            self._consumers, file_name(name), self.incarnation, state or ConsumerState()
        )

    def open_consumers(
        self,
    ) -> Iterator[tuple[ConsumerMeta, ConsumerFiles, RecoveryReport] | UnreadableAsset]:
        """Open each consumer in turn; yield the reason for each that cannot be read."""
        for file in self._consumers.files():
            if not file.endswith(META_SUFFIX):
                continue
            name = file.removesuffix(META_SUFFIX)
            try:
                found = self._open_consumer(name)
            except Exception as error:  # one bad consumer must not keep others from being served
                self.refuse_consumer(name, error)
                yield UnreadableAsset(name, why_unserved(error))
            else:
                yield found

    def refuse_consumer(self, directory_name: str, error: Exception) -> None:
        """Record that the consumer with this file name is not served; its files stay unchanged."""
        self.unserved[directory_name] = why_unserved(error)

    def _open_consumer(self, name: str) -> tuple[ConsumerMeta, ConsumerFiles, RecoveryReport]:
        key = state_key(f"consumer-meta/{name}", self.incarnation)
        slots, reading = SlotFile.open(self._consumers, name + META_SUFFIX, key)
        meta = msgspec.json.decode(reading.value, type=ConsumerMeta)
        if meta.state is not None:
            begin, _ = ConsumerState.decode(meta.state)
            files = ConsumerFiles(self._consumers, name, self.incarnation, begin)
            return meta, files.opened(slots, None), RecoveryReport()
        store, report = ConsumerStateStore.open(self._consumers, name, incarnation=self.incarnation)
        files = ConsumerFiles(self._consumers, name, self.incarnation, store.state)
        return meta, files.opened(slots, store), report

    def close(self) -> None:
        self._meta.close()

    def publish(self, name: str) -> None:
        """Rename a staged stream to its name, durably; no stream of that name may exist."""
        self._account.rename(self.name, name)
        self.name = name
        self._account.sync_dir()

    def discard(self) -> None:
        """Remove a staged stream; the caller has closed its open files."""
        self._meta.close()
        remove_tree(self._account, self.name)

    def mark_deleted(self) -> str:
        """Delete the stream durably by renaming it; `AccountDirectory.sweep` removes the files."""
        gone = f"{GONE_PREFIX}{self.incarnation:x}"
        self._account.rename(self.name, gone)
        self._account.sync_dir()
        self._meta.close()
        return gone


class AccountDirectory:
    """The directory of one account."""

    def __init__(self, disk: Disk, *, make_incarnation: Callable[[], int]) -> None:
        self.disk = disk
        self._make_incarnation = make_incarnation

    def create_stream(self, name: str, config: bytes, created_ns: int) -> StreamFiles:
        """Create the directory of a new stream, durably. Blocks for several syncs."""
        directory = file_name(name)
        self._clear(directory)
        return self._create(directory, config, created_ns, self._make_incarnation())

    def stage_stream(self, config: bytes, created_ns: int) -> StreamFiles:
        """As `create_stream`, but the stream does not exist until `publish`."""
        incarnation = self._make_incarnation()
        directory = f"{STAGED_PREFIX}{incarnation:x}"
        try:
            return self._create(directory, config, created_ns, incarnation)
        except StoreError:
            with contextlib.suppress(StoreError):  # otherwise the next start removes it
                remove_tree(self.disk, directory)
            raise

    def publish(self, staged: StreamFiles, name: str) -> None:
        """Make a complete staged stream exist under its name. Blocks for a sync."""
        directory = file_name(name)
        self._clear(directory)
        staged.publish(directory)

    def _create(
        self, directory: str, config: bytes, created_ns: int, incarnation: int
    ) -> StreamFiles:
        self.disk.mkdir(directory)
        inside = self.disk.subdir(directory)
        for part in (MESSAGES_NAME, CONSUMERS_NAME):
            inside.mkdir(part)  # durable with the entry of `meta`, which follows
        meta = StreamMeta(
            config=msgspec.Raw(config), created_ns=created_ns, incarnation=incarnation
        )
        key = state_key("stream-meta", META_INCARNATION)
        slots = SlotFile.create(
            inside, META_NAME, key, msgspec.json.encode(meta), value_bytes_max=META_BYTES_MAX
        )
        self.disk.sync_dir()
        return StreamFiles(self.disk, directory, slots, incarnation)

    def open_streams(self) -> Iterator[tuple[StreamMeta, StreamFiles] | UnreadableAsset]:
        """Open each stream in turn; yield the reason for each that cannot be read."""
        for directory in self.disk.directories():
            if directory.startswith((GONE_PREFIX, STAGED_PREFIX)):
                continue
            try:
                if not self._is_stream(directory):
                    continue  # a crash interrupted its creation
                found = self._open_stream(directory)
            except Exception as error:  # one bad stream must not keep others from being served
                yield UnreadableAsset(directory, why_unserved(error))
            else:
                yield found

    def _is_stream(self, directory: str) -> bool:
        """Whether a directory holds a stream, even a damaged one, not an unfinished creation."""
        return META_NAME in self.disk.subdir(directory).files()

    def _open_stream(self, directory: str) -> tuple[StreamMeta, StreamFiles]:
        inside = self.disk.subdir(directory)
        key = state_key("stream-meta", META_INCARNATION)
        slots, reading = SlotFile.open(inside, META_NAME, key, value_bytes_max=META_BYTES_MAX)
        try:
            meta = msgspec.json.decode(reading.value, type=StreamMeta)
            return meta, StreamFiles(self.disk, directory, slots, meta.incarnation)
        except Exception:
            slots.close()
            raise

    def sweep(self, *, staged: bool = False) -> None:
        """Remove the files of deleted streams; with `staged`, which requires that no restore runs,
        also those of unfinished ones. Slow; no other operation depends on it."""
        prefixes = (GONE_PREFIX, STAGED_PREFIX) if staged else (GONE_PREFIX,)
        for directory in self.disk.directories():
            if directory.startswith(prefixes):
                remove_tree(self.disk, directory)

    def _clear(self, directory: str) -> None:
        """Remove what an unfinished creation left. Raises StoreError if a stream is there: a stream
        that is not served must not be lost because a new one gets its name."""
        try:
            if self._is_stream(directory):
                path = f"{self.disk.path}/{directory}"
                raise StoreError(path, "create", errno.EEXIST, NOT_SERVED)
            remove_tree(self.disk, directory)
        except NotFound:
            return


def remove_tree(disk: Disk, name: str) -> None:
    """Remove a directory and its contents."""
    inside = disk.subdir(name)
    for file in inside.files():
        inside.unlink(file)
    for directory in inside.directories():
        remove_tree(inside, directory)
    disk.rmdir(name)
