"""A store in files: a directory of blocks, appended to, synced in groups, recovered by replay.

Appends go to the image of the newest block. `pending_sync` takes the bytes that the files lack;
the server runs that work on any thread and reports it with `synced`, which makes it durable. A
full block gets a footer, so that opening can skip its records, and leaves memory. A block that is
half dead, or not stored in the current form, is rewritten into a new file next to the old one.

Invariants: a file is removed or replaced only after the records that explain it are durable; a
failed sync is final for the store; readers see nothing that a power cut could undo, unless the
store is lazy, and even a lazy store never assigns a visible sequence again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.base.sequences import SEQ_MAX
from penstock.store.append_commit import Appender, CommitPlan
from penstock.store.block_file import Form, Sealing
from penstock.store.contract import Limits
from penstock.store.disk_jobs import BlockFiles, FetchWork, SyncWork, resumed
from penstock.store.errors import StoreError
from penstock.store.format.compression import BlockCompression
from penstock.store.format.data_keys import open_keys
from penstock.store.format.end_marker import EndMark
from penstock.store.format.range_kinds import FLOOR, REMOVE, RESERVE
from penstock.store.index.block_images import block_facts, has_unwritten, put_image, take_unwritten
from penstock.store.index.message_log import MessageLog
from penstock.store.index.seq_set import SequenceSet
from penstock.store.indexed_store import IndexedStore
from penstock.store.sealed_blocks import SealedBlocks
from penstock.store.store_recovery import Opening, Recovery

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.contract import Cold, Range, Syncing, Work
    from penstock.store.format.encryption import ServerKey
    from penstock.store.io.disk import Disk

__all__ = ["BLOCK_BYTES", "WARM_BYTES_MAX", "FileStore", "Recovery"]

BLOCK_BYTES: Final = 8 * 1024 * 1024
WARM_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of sealed block images in memory; the store drops the oldest first."""
LOOSE_MAX: Final = 64
"""Maximum number of single records of cold blocks kept in memory until they are read."""


class FileStore(IndexedStore):
    """Messages in the block files of one directory. Create it with `open`."""

    def __init__(
        self,
        disk: Disk,
        log: MessageLog,
        limits: Limits,
        noise: Callable[[int], bytes],
        *,
        sealing: Sealing,
        block_bytes: int,
        warm_bytes_max: int,
        sync_always: bool,
    ) -> None:
        super().__init__(log, limits, noise)
        self.recovery = Recovery()
        self._disk = disk
        self._sealing = sealing
        self._block_bytes = block_bytes
        self._warm_bytes_max = warm_bytes_max
        self._sync_always = sync_always
        self._files = BlockFiles(disk)
        self._blocks = SealedBlocks(log, self._files, sealing, noise)
        self._dirty: set[int] = set()
        self._names_changed, self._losses_noted = False, 0
        self._doomed: list[int] = []
        self._working: SyncWork | None = None
        self._failure: Exception | None = None
        self._end = EndMark(disk, log.incarnation)
        self._closed_place = (0, 0)
        self._appender = Appender(log=log, disk=disk, syncs=sync_always)

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        limits: Limits | None = None,
        incarnation: int,
        meta: bytes = b"",
        first_seq: int = 1,
        block_bytes: int = BLOCK_BYTES,
        warm_bytes_max: int = WARM_BYTES_MAX,
        sync_always: bool = True,
        compression: BlockCompression = BlockCompression.NONE,
        key: ServerKey | None = None,
        former_keys: tuple[ServerKey, ...] = (),
        key_salt: bytes | None = None,
        seed: int = 0,
        noise: Callable[[int], bytes],
    ) -> FileStore:
        """Recover the contents of the directory, or start empty. Raises StoreError.

        `noise` returns random bytes. Without `sync_always` the store is lazy: appends are visible
        at once and durable when the server syncs. `key` encrypts; the data may still be sealed
        under one of `former_keys`. All stores of a server should share one `key_salt`.
        """
        keys = open_keys(disk, incarnation, key, former_keys, key_salt, noise)
        current = max(keys.values(), key=lambda k: k.number, default=None)
        sealing = Sealing(compression, current, keys)
        log = MessageLog(
            incarnation=incarnation,
            meta=meta,
            block_bytes=block_bytes,
            durable=True,
            seed=seed,
            first_seq=first_seq,
            form=sealing.open_form,
        )
        store = cls(
            disk,
            log,
            limits or Limits(),
            noise,
            sealing=sealing,
            block_bytes=block_bytes,
            warm_bytes_max=warm_bytes_max,
            sync_always=sync_always,
        )
        store._recover()
        return store

    def _recover(self) -> None:
        log = self._log
        opening = Opening(
            self._disk,
            log,
            log.incarnation,
            self._sealing.keys,
            self._warm_bytes_max,
            self._end.found,
        )
        opening.run()
        self.recovery = opening.recovery
        self._damaged = opening.lost
        log.loss_floor, log.is_loss_unsaid = opening.losses.floor, opening.losses.is_unsaid
        log.losses = log.losses_kept = opening.losses.count
        self._doomed, self._blocks.litter = opening.doomed, opening.litter
        for number, found in opening.files.items():
            self._blocks.forms[number] = Form(found.header.form)
            self._blocks.stored[number] = found.stored
            self._files.names[number] = found.name
        for seq, deadline_ns in opening.deadlines:
            self._note_deadline(seq, deadline_ns)
        self._age_from = log.first_seq
        self._set_place(log.end())
        if opening.torn or self.recovery.unsynced:
            # The REMOVE records for these sequences are not durable yet. Until they are, no mark
            # may cover their place, or recovery would count the sequences as damage.
            self._set_place((opening.mark.block, opening.mark.place))
        self._closed_place = log.end() if self.recovery.clean else (0, 0)
        active, blocks = log.active_number(), self._blocks
        if active in opening.files and opening.newest is not None:
            self._files.open[active] = resumed(
                self._files,
                active,
                opening.newest,
                blocks.binding(active),
                self._sealing,
                blocks.salt(),
            )
        for first, last in opening.torn.ranges():
            log.note_range(REMOVE, first, last, log.last_ts_ns)
        self._appender.reserved = log.last_seq
        if self._doomed:
            self._restate()
        self.set_limits(self._limits)
        unsynced = self.recovery.unsynced
        self._appender.set_durable(unsynced[0] - 1 if unsynced else log.last_seq)
        if not self._sync_always:
            self._sync_now()  # a sequence must be reserved before it is visible

    # -- durability

    @property
    def lost(self) -> tuple[Range, ...]:
        unsynced = self.recovery.unsynced
        return self.recovery.torn + ((unsynced,) if unsynced else ())

    @property
    def durable_seq(self) -> int:
        return self._appender.durable_seq

    @property
    def appender(self) -> Appender:
        """Plans commits, and executes those that only append, on the owner's thread.

        `Appender.commit` does the same as `pending_sync`, `run` and `synced` together.
        """
        return self._appender

    def _set_place(self, place: tuple[int, int]) -> None:
        self._appender.durable_block, self._appender.durable_place = place

    def _open_appender(self) -> None:
        """Open the appender if commits only have to append, until something else is to be done."""
        number = self._log.active_number()
        block = self._files.open.get(number)
        is_more = self._sync_always and (
            self._dirty or self._doomed or self._names_changed or self._blocks.is_stirred
        )
        if block is not None and not is_more and self._blocks.form(number) is Form.PLAIN:
            self._appender.open(number, block)

    def _close_appender(self) -> None:
        self._dirty |= self._appender.unsynced
        self._appender.close()

    @property
    def sync_wanted(self) -> bool:
        if self._working is not None or self._failure is not None:
            return False
        if self._sync_always:
            return self._has_work()
        return self._appender.is_half_used

    def _has_work(self) -> bool:
        return bool(
            self._doomed
            or self._dirty
            or self._blocks.erased
            or self._blocks.swaps
            or self._blocks.litter
            or has_unwritten(self._log)
        )

    def pending_sync(self, *, write_only: bool = False) -> Syncing | None:
        self._check_sound()
        if self._working is not None or (write_only and not has_unwritten(self._log)):
            return None
        plan = self._appender.plan
        self._close_appender()
        if write_only:
            self._losses_noted = self._log.note_loss()
            self._working = self._sync_work(write_only=True)
        elif plan is CommitPlan.APPEND and self._sync_always:
            self._losses_noted = self._log.note_loss()
            self._note_mark()
            self._working = self._sync_work()
        elif self._needs_full(plan):
            self._losses_noted = self._log.note_loss()
            self._working = self._full_sync()
        else:
            self._open_appender()
        return self._working

    def _needs_full(self, plan: CommitPlan) -> bool:
        """Return whether there is work beyond an append; a lazy store syncs, if there is any."""
        if plan is CommitPlan.NOTHING and self._sync_always:
            return False
        self._drop_dead_blocks()
        return self._has_work() or (not self._sync_always and self._appender.is_short)

    def _note_mark(self) -> None:
        at = self._appender
        self._log.note_mark(at.durable_block, at.durable_place, at.durable_seq)

    def _drop_dead_blocks(self) -> None:
        dropped = self._log.drop_dead_blocks()
        self._doomed += dropped
        if dropped and self._damaged:
            self._damaged.remove_range(0, self._log.oldest_seq() - 1)

    def _note_reserved(self) -> int:
        """Return the last sequence that may be visible after this sync; reserve it if lazy."""
        last = self._log.last_seq
        if self._sync_always:
            return last
        wanted = min(last + self._appender.num_reserved(), SEQ_MAX)
        reserved = max(wanted, self._appender.reserved)
        self._log.note_range(RESERVE, last + 1, reserved, self._log.last_ts_ns)
        return reserved

    def _full_sync(self) -> SyncWork:
        if self._blocks.erases_frames():
            self._log.seal_active()  # a block to be rewritten must not receive appends
        reserved = self._note_reserved()
        if has_unwritten(self._log) or self._dirty:
            self._note_mark()
        return self._sync_all(reserved)

    def _sync_all(self, reserved: int) -> SyncWork:
        """Return the sync of everything that the files lack."""
        blocks = self._blocks
        work = self._sync_work()
        work.reserved = reserved
        work.overwrites, work.rewrites = blocks.take_erased()
        work.footers = blocks.footers()
        work.swaps, blocks.swaps = blocks.swaps, []
        work.litter, blocks.litter = blocks.litter, []
        work.dirty, self._dirty = self._dirty, set()
        work.doomed, self._doomed = self._doomed, []
        work.names_changed, self._names_changed = self._names_changed, False
        work.end = self._end
        blocks.forget(work.doomed)
        return work

    def _sync_work(self, *, write_only: bool = False) -> SyncWork:
        pieces, blocks = take_unwritten(self._log), self._blocks
        for piece in pieces:
            blocks.forms.setdefault(piece.number, Form(self._log.form))
        return SyncWork(
            self._files,
            self._sealing,
            blocks.binding(0),
            pieces,
            self._log.last_seq,
            self._log.end(),
            {piece.number: blocks.form(piece.number) for piece in pieces},
            salts={piece.number: blocks.salt() for piece in pieces} if self._sealing.key else {},
            reserved=self._log.last_seq,
            block_bytes=self._block_bytes,
            write_only=write_only,
        )

    def synced(self, work: Work, failure: Exception | None = None) -> None:
        working = self._working
        if working is None or work is not working:
            raise ValueError("this is not the work that was given out")
        self._working = None
        if failure is not None:
            self._failure = failure
            for rewrite in working.swapped:  # reads of cold blocks continue, from the new files
                self._blocks.adopt(rewrite)
            return
        self._log.losses_kept = max(self._log.losses_kept, self._losses_noted)
        if working.write_only:
            self._dirty |= {piece.number for piece in working.pieces}
            self._names_changed |= working.names_changed
            self._open_appender()
            return
        self._blocks.footed(working.footers)
        for rewrite in (*working.rewrites, *working.swaps):
            self._blocks.adopt(rewrite)
        self._appender.reserved = working.reserved
        self._set_place(working.place)
        self._appender.set_durable(working.seq)
        self._blocks.cool_down(self._warm_bytes_max)
        self._open_appender()

    def _sync_now(self) -> None:
        while (work := self.pending_sync()) is not None:
            work.run()
            self.synced(work)

    def _check_sound(self) -> None:
        if self._failure is not None:
            raise StoreError(self._disk.path, "sync", 0, f"an earlier one failed: {self._failure}")

    def _check_writable(self) -> None:
        self._check_sound()

    # -- hooks of IndexedStore

    def _forgotten(self, blocks: list[int]) -> None:
        """The log was truncated: repeat what the dropped blocks recorded about older ones."""
        self._doomed += blocks
        log = self._log
        # Sequences after the last one are assigned again, and are then not durable.
        if self._working is not None:
            self._working.seq = min(self._working.seq, log.last_seq)
            self._working.reserved = min(self._working.reserved, log.last_seq)
        self._close_appender()
        at = self._appender
        at.reserved = min(at.reserved, log.last_seq)
        log.note_range(RESERVE, log.last_seq + 1, log.last_seq, log.last_ts_ns)
        at.set_durable(min(at.durable_seq, log.last_seq))
        self._restate()

    def _restate(self) -> None:
        """Record again, in the newest block, which sequences are removed; omit damaged ones."""
        log = self._log
        oldest = log.oldest_seq()
        log.note_range(FLOOR, oldest, oldest, log.last_ts_ns)
        deleted = SequenceSet(log.deleted_ranges())
        if oldest < log.first_seq:
            deleted.insert_range(oldest, log.first_seq - 1)
        for first, last in self._damaged.ranges():
            deleted.remove_range(first, last)
        for first, last in deleted.ranges():
            log.note_range(REMOVE, first, last, log.last_ts_ns)

    def _overwritten(self, seq: int, block: int, place: int, length: int) -> None:
        self._close_appender()
        self._blocks.outdate(block)
        self._blocks.note_erased(seq, block, place, length)

    # -- rewritten blocks

    def pending_compaction(self) -> Work | None:
        """Return the rewrite of a block that is half dead or not stored as configured; or None.

        One rewrite is out at a time. The store accepts writes in the meantime. The caller reports
        the work with `compacted`; the next sync moves the new file into place.
        """
        if self._failure is not None:
            return None
        return self._blocks.pending(self._working, self._dirty | self._appender.unsynced)

    def compacted(self, work: Work, failure: Exception | None = None) -> None:
        """Report that the work of `pending_compaction` ran. After a failure the old file stays."""
        self._close_appender()
        self._blocks.done(work, failure)

    # -- cold blocks

    def fetch(self, cold: Cold) -> Work:
        facts = block_facts(self._log, cold.block)
        if facts is None:
            raise ValueError(f"there is no block {cold.block}")
        form = self._blocks.form(cold.block)
        alone = cold.seq and form is Form.PLAIN
        return FetchWork(
            self._disk,
            self._files.name(cold.block),
            cold.block,
            facts.layout,
            facts.head,
            form,
            self._blocks.binding(cold.block),
            self._sealing,
            cold.seq,
            self._log.place_of(cold.seq) if alone else None,
        )

    def fetched(self, work: Work) -> None:
        if not isinstance(work, FetchWork):
            raise ValueError("this is no work of fetch")
        facts = block_facts(self._log, work.number)
        # The read may have seen the file before or after the replacement in progress.
        moving = self._working is not None and work.number in self._working.numbers()
        if facts is None or facts.layout != work.layout or moving:
            return
        if work.place is not None:
            loose = self._log.loose
            loose[work.number, work.seq] = (work.layout, work.data)
            while len(loose) > LOOSE_MAX:
                del loose[next(iter(loose))]
        else:
            put_image(self._log, work.number, work.data)
            self._blocks.cooled_up_to = 0

    def close(self) -> None:
        self._close_appender()
        if self._failure is None:
            self._sync_now()
            self._say_goodbye()
            at = self._appender
            self._end.note((at.durable_block, at.durable_place), at.durable_seq)
            at.close()
        for number in list(self._files.open):
            self._files.close(number)
        self._end.close()

    def _say_goodbye(self) -> None:
        """Write a last mark, as everything is durable, and release the reserved sequences."""
        log = self._log
        if log.end() == self._closed_place:
            return
        if not log.active_number():
            self._end.note(log.end(), log.last_seq)
            return
        if self._appender.reserved > log.last_seq:
            log.note_range(RESERVE, log.last_seq + 1, log.last_seq, log.last_ts_ns)
        log.note_mark(*log.end(), log.last_seq)
        work = self._working = self._sync_all(log.last_seq)
        work.closing = True
        work.run()
        self.synced(work)
