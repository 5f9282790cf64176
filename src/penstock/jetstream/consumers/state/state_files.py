"""State files of a consumer: a checkpoint in two slots, and a log of the changes since.

Every change is applied to `state` at once and packed for the log. `flush` writes the packed
changes; `pending_sync` returns the sync that makes them durable. Invariants: recovery returns a
state that the consumer had, not older than the last sync; a slot or log is overwritten only when
its content is durable elsewhere; a single damaged page or slot loses nothing.

Checkpoint g and log g belong together. Log g + 1 is created and synced before checkpoint g + 1 is
written, and checkpoint g + 1 is durable before log g is overwritten (as g + 2), so that either
checkpoint leads to the newest change. docs/formats/consumer.md describes the full order.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Final

from penstock.jetstream.consumers.state.consumer_deltas import (
    ConsumerState,
    MalformedDelta,
)
from penstock.jetstream.consumers.state.consumer_recovery import (
    LOG_SUFFIXES,
    STATE_SUFFIX,
    Damage,
    Recovered,
    RecoveryReport,
    recover,
)
from penstock.jetstream.consumers.state.consumer_state import StateLog
from penstock.jetstream.consumers.state.delta_log import (
    COPIES,
    HALF_BYTES_MAX,
    ConsumerLog,
    ConsumerSync,
    half_bytes_for,
    read_log,
)
from penstock.store.errors import CorruptRecord, DiskFull, NotFound, StoreError, SyncFailed
from penstock.store.io.slots import SlotFile, state_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.io.disk import Disk, File
    from penstock.store.io.slots import SlotReading

__all__ = [
    "ConsumerState",
    "ConsumerStateStore",
    "ConsumerSync",
    "Damage",
    "RecoveryReport",
]

CUT_SUFFIX: Final = ".cut"
"""Both logs as found, kept when recovery could not use all of them."""
ROLE: Final = "consumer"


class ConsumerStateStore(StateLog):
    """The owner of one consumer's state; others read `state` and change it through these
    methods."""

    __slots__ = (
        "_alone",
        "_buffer",
        "_dirty",
        "_disk",
        "_failure",
        "_is_closing",
        "_key",
        "_log",
        "_log_files",
        "_next",
        "_next_synced",
        "_out",
        "_overflow",
        "_slots",
        "_wanted_bytes",
        "_written_seq",
        "durable_seq",
        "name",
        "recorded_seq",
    )

    def __init__(
        self,
        disk: Disk,
        name: str,
        key: bytes,
        slots: SlotFile,
        log: ConsumerLog,
        log_files: tuple[File, File],
        state: ConsumerState,
        seq: int,
    ) -> None:
        """For `create` and `open`; everything passed in is durable."""
        super().__init__(state)
        self.name = name
        self.recorded_seq = seq
        """The number of the last change."""
        self.durable_seq = seq
        """The number of the last durable change."""
        self._disk = disk
        self._key = key
        self._slots = slots
        self._log = log
        self._log_files = log_files
        self._next: ConsumerLog | None = None
        self._next_synced = False
        self._buffer = bytearray()
        self._written_seq = seq
        self._overflow = False
        """Changes since `_written_seq` are only in `state`: the next checkpoint must include
        them."""
        self._alone = False
        """The newest checkpoint has changes that are in no log: another checkpoint must follow."""
        self._wanted_bytes = 0
        self._dirty: dict[str, File] = {}
        self._out: ConsumerSync | None = None
        self._is_closing = False
        self._failure: Exception | None = None

    # -- opening

    @classmethod
    def create(
        cls, disk: Disk, name: str, *, incarnation: int, state: ConsumerState | None = None
    ) -> ConsumerStateStore:
        """Create the files of a new consumer, durably. Blocks for a few syncs.

        The `.state` file is created last: without it the consumer does not exist, whatever other
        files do.
        """
        key = state_key(f"{ROLE}/{name}", incarnation)
        state = state or ConsumerState()
        files = _open_logs(disk, name)[0]
        first = [
            ConsumerLog.fresh(disk, file, key, generation, half_bytes_for(0))
            for file, generation in zip(files, (2, 1), strict=True)
        ]
        for file in files:
            disk.fdatasync(file)
        disk.sync_dir()  # so that `.state` is never durable without the logs
        slots = SlotFile.create(disk, name + STATE_SUFFIX, key, state.encode(0))
        return cls(disk, name, key, slots, first[0], files, state, 0)

    @classmethod
    def open(
        cls, disk: Disk, name: str, *, incarnation: int
    ) -> tuple[ConsumerStateStore, RecoveryReport]:
        """Recover the state; repair what is wrong, and report it.

        Raises NotFound if there is no such consumer, and SlotsDamaged, without a change, if no
        checkpoint is valid. Blocks for reading and for some syncs.
        """
        key = state_key(f"{ROLE}/{name}", incarnation)
        slots, reading = SlotFile.open(disk, name + STATE_SUFFIX, key, repair=False)
        opened = [slots.file]
        try:
            files, missing = _open_logs(disk, name)
            opened += files
            found = _recover(disk, name, key, reading, files, missing)
            if found.log:
                end, half_bytes = found.log.end, found.log.half_bytes
                file = files[slots.generation % 2]
                log = ConsumerLog(disk, file, key, slots.generation, half_bytes, end)
            else:
                if found.report.cuts:
                    _keep_logs(disk, name, files)
                log = _start_over(disk, key, slots, files, found)
        except StoreError:
            for file in opened:
                disk.close_file(file)
            raise
        store = cls(disk, name, key, slots, log, files, found.state, found.seq)
        store._alone = bool(found.log) and not found.backed
        return store, found.report

    @staticmethod
    def delete(disk: Disk, name: str) -> None:
        """Remove the files of a consumer that is not open, `.state` first."""
        for suffixes in ((STATE_SUFFIX,), (*LOG_SUFFIXES, CUT_SUFFIX)):
            for suffix in suffixes:
                with contextlib.suppress(NotFound):
                    disk.unlink(name + suffix)
            disk.sync_dir()

    @staticmethod
    def sweep(disk: Disk, name: str) -> None:
        """Remove the files of a consumer that no longer exists, without a sync: if a crash restores
        one, `delete` removes it before the consumer is created again."""
        for suffix in (STATE_SUFFIX, *LOG_SUFFIXES, CUT_SUFFIX):
            with contextlib.suppress(NotFound):
                disk.unlink(name + suffix)

    # -- changes

    def replace(self, state: ConsumerState) -> None:
        """Replace the whole state, as from a replica. The store owns it from now on."""
        self.recorded_seq += 1
        self.state = state
        self._overflow = True

    def take_over(self, state: ConsumerState, changes: int) -> None:
        """Adopt a state; the files were created from a copy of it, `changes` changes ago."""
        self.state = state
        if changes:
            self.recorded_seq += changes
            self._overflow = True

    def _note(self, pack: Callable[..., bytes], *fields: object) -> None:
        self.note_change(pack, fields)

    def note_change(self, pack: Callable[..., bytes], fields: tuple[object, ...]) -> None:
        """Record a change of the state; the caller makes it."""
        self.recorded_seq += 1
        if self._overflow:
            return
        self._buffer += pack(*fields)
        if len(self._buffer) > self._log.half_bytes:
            self._overflow = True

    # -- durability

    def flush(self) -> None:
        """Write what is not written: to the log, or as a checkpoint once the log is half full.

        The caller may call it again after an error. Syncs nothing.
        """
        if self._failure:
            raise self._sync_failed()
        if self.recorded_seq > self._written_seq and not self._overflow:
            self._append()
        if self._overflow:
            self._buffer.clear()
            self._wanted_bytes = max(self._wanted_bytes, 2 * self._log.half_bytes)
        if self._overflow or self._alone or 2 * self._log.used > self._log.half_bytes:
            self._checkpoint()

    def _append(self) -> None:
        if not self._log.has_room(len(self._buffer)):
            self._overflow = True
            return
        count = self.recorded_seq - self._written_seq
        self._log.append(self._buffer, self._written_seq + 1, count, self.durable_seq)
        self._dirty[self._log.file.name] = self._log.file
        self._buffer.clear()
        self._written_seq = self.recorded_seq

    def _checkpoint(self) -> None:
        """Take one step towards the next checkpoint, if what it depends on is durable."""
        if not self._slots.ready:
            return
        if self._next is None:
            self._next = self._prepare_log()
            self._next_synced = False
        elif self._next_synced:
            self._slots.put(self.state.encode(self.recorded_seq))
            self._dirty[self._slots.file.name] = self._slots.file
            self._written_seq = self.recorded_seq
            self._alone, self._overflow = self._overflow, False
            self._log, self._next = self._next, None

    def _prepare_log(self) -> ConsumerLog:
        """Create the log of the next checkpoint, large enough to justify the checkpoint."""
        generation = self._slots.generation + 1
        file = self._log_files[generation % 2]
        wanted = max(self._wanted_bytes, 2 * self.state.encoded_bytes())
        self._dirty[file.name] = file
        return ConsumerLog.fresh(self._disk, file, self._key, generation, half_bytes_for(wanted))

    def pending_sync(self) -> ConsumerSync | None:
        """Flush, and return the sync that makes it durable; None if there is nothing to sync.

        At most one sync is out at a time. Call again after `synced`: a checkpoint takes two syncs.
        """
        if self._out is not None:
            return None
        self.flush()
        if not self._dirty:
            return None
        files = tuple(self._dirty.values())
        self._dirty.clear()
        self._out = ConsumerSync(
            self._disk, files, self._written_seq, self._slots.generation, self._next
        )
        return self._out

    def synced(self, work: ConsumerSync, failure: Exception | None = None) -> None:
        """Record that the sync has run. After a failure nothing more becomes durable: changes are
        still accepted, so that reading continues, but `flush` and `pending_sync` raise."""
        assert work is self._out, "another sync is out"
        self._out = None
        if self._is_closing:
            self.close()
        if failure is not None:
            self._failure = failure
            return
        self.durable_seq = work.upto
        self._slots.synced(work.generation)
        if work.prepared is not None and work.prepared is self._next:
            self._next_synced = True

    def sync_all(self) -> None:
        """Write and sync until nothing is pending. Blocks."""
        while work := self.pending_sync():
            try:
                work.run()
            except StoreError as error:
                self.synced(work, error)
                raise
            self.synced(work)

    def close(self) -> None:
        """Write and sync what is pending, unless a sync failed before, and close the files. While a
        sync is out (the consumer is being deleted), only close the files, once that sync has
        run."""
        if self._out is not None:
            self._is_closing = True
            return
        try:
            if not (self._failure or self._is_closing):
                self.sync_all()
        finally:
            self._slots.close()
            for file in self._log_files:
                self._disk.close_file(file)

    def abandon(self) -> None:
        """Close the files as they are, once a running sync has finished; the caller removes
        them."""
        self._is_closing = True
        if self._out is None:
            self.close()

    def _sync_failed(self) -> SyncFailed:
        path = f"{self._disk.path}/{self.name}"
        return SyncFailed(path, "write", errno.EIO, f"a sync failed before: {self._failure}")


def _open_logs(disk: Disk, name: str) -> tuple[tuple[File, File], tuple[Damage, ...]]:
    """Open both log files; create and report a missing one."""
    first, first_missing = _open_log(disk, name, LOG_SUFFIXES[0])
    try:
        second, second_missing = _open_log(disk, name, LOG_SUFFIXES[1])
    except StoreError:
        disk.close_file(first)
        raise
    return (first, second), first_missing + second_missing


def _open_log(disk: Disk, name: str, suffix: str) -> tuple[File, tuple[Damage, ...]]:
    try:
        return disk.open(name + suffix), ()
    except NotFound:
        missing = Damage(suffix, 0, "the file is missing")
        return disk.open(name + suffix, create=True), (missing,)


def _recover(
    disk: Disk,
    name: str,
    key: bytes,
    reading: SlotReading,
    files: tuple[File, File],
    missing: tuple[Damage, ...],
) -> Recovered:
    """Return what the files hold, after syncing them."""
    images = [disk.pread(file, COPIES * HALF_BYTES_MAX, 0) for file in files]
    try:
        found = recover(reading, (read_log(key, images[0]), read_log(key, images[1])))
    except MalformedDelta as error:
        raise CorruptRecord(f"{disk.path}/{name}{STATE_SUFFIX}", 0, str(error)) from error
    for file in files:
        # Data that a killed process wrote is readable before it is durable.
        disk.fdatasync(file)
    if not missing:
        return found
    disk.sync_dir()
    report = found.report._replace(damage=missing + found.report.damage)
    return found._replace(report=report, log=None)


def _keep_logs(disk: Disk, name: str, files: tuple[File, File]) -> None:
    images = [disk.pread(log, COPIES * HALF_BYTES_MAX, 0) for log in files]
    file = disk.open(name + CUT_SUFFIX, create=True)
    try:
        disk.truncate(file, 0)
        disk.pwrite(file, b"".join(images), 0)
        disk.fdatasync(file)
        disk.sync_dir()
    except DiskFull:
        pass  # a full disk must not prevent opening; the report has the count
    finally:
        disk.close_file(file)


def _start_over(
    disk: Disk, key: bytes, slots: SlotFile, files: tuple[File, File], found: Recovered
) -> ConsumerLog:
    """Write two checkpoints of the recovered state and two empty logs, each durable before the
    next.

    The first checkpoint makes the logs redundant, whatever their state; only then are they
    overwritten. After a crash on the way, recovery returns the same state.
    """
    value = found.state.encode(found.seq)
    slots.write(value)
    for generation in (slots.generation, slots.generation + 1):
        file = files[generation % 2]
        log = ConsumerLog.fresh(disk, file, key, generation, half_bytes_for(0))
        disk.fdatasync(file)
    slots.write(value)
    return log
