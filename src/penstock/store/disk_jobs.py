"""Blocking file work of a store: syncing, fetching and rewriting a block. Runs on any thread.

A work holds copies and names, never the log, so it writes what the store decided when it created
the work, whatever the owner does in the meantime. One sync is out at a time, so only that sync
uses the open block files. The order inside a sync makes it safe: data before names, removals only
after the records that explain them are durable, a new file replaces an old one only when complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.store.append_commit import SMALL_WRITE_BYTES, OpenBlock, preallocate
from penstock.store.block_file import (
    ERASED_SUFFIX,
    NEW_SUFFIX,
    Form,
    block_name,
    file_of,
    header_at,
    index_of,
    read_image,
    renewed_header,
)
from penstock.store.block_footer import trailer_of
from penstock.store.errors import NotFound
from penstock.store.format.block_frames import FrameWriter
from penstock.store.format.block_header import read_block_header
from penstock.store.index.block_compactor import rewrite_image

if TYPE_CHECKING:
    from penstock.store.block_file import Image, Sealing, Trailer
    from penstock.store.block_footer import BlockFooter
    from penstock.store.format.block_frames import Binding
    from penstock.store.format.end_marker import EndMark
    from penstock.store.index.block_compactor import Rewritten
    from penstock.store.index.block_images import BlockFacts, Unwritten
    from penstock.store.io.disk import Disk

LONG_WRITE_BYTES: Final = 1_048_576
"""The server runs a sync that writes more on a thread, however fast syncs are."""


@dataclass(slots=True)
class BlockFiles:
    """The files of a store: the open ones, and names that differ from the standard name."""

    disk: Disk
    open: dict[int, OpenBlock] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def name(self, number: int) -> str:
        return self.names.get(number, block_name(number))

    def close(self, number: int) -> None:
        block = self.open.pop(number, None)
        if block is not None:
            self.disk.close_file(block.file)

    def remove(self, number: int) -> bool:
        """Remove the file of a block; return whether there was one."""
        self.close(number)
        try:
            self.disk.unlink(self.names.pop(number, block_name(number)))
        except NotFound:  # the block was dropped before it was ever written
            return False
        return True


@dataclass(slots=True)
class SyncWork:
    """Writes, syncs and removals of one group commit; of an append alone, it has only a piece."""

    files: BlockFiles
    sealing: Sealing
    binding: Binding
    pieces: list[Unwritten]
    seq: int
    place: tuple[int, int]
    forms: dict[int, Form]
    salts: dict[int, int] = field(default_factory=dict)
    reserved: int = 0
    footers: list[BlockFooter] = field(default_factory=list)
    overwrites: list[tuple[int, int, bytes]] = field(default_factory=list)
    rewrites: list[RewriteWork] = field(default_factory=list)
    swaps: list[RewriteWork] = field(default_factory=list)
    dirty: set[int] = field(default_factory=set)
    doomed: list[int] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)
    block_bytes: int = 0
    write_only: bool = False
    names_changed: bool = False
    closing: bool = False
    end: EndMark | None = None
    swapped: list[RewriteWork] = field(default_factory=list)
    """Rewrites whose new files are in place, even if a later step failed."""
    framed: dict[int, tuple[int, bytes]] = field(default_factory=dict, repr=False)
    """The frames created from the pieces of encrypted blocks."""

    @property
    def is_long(self) -> bool:
        written = sum(len(piece.data) for piece in self.pieces)
        return written > LONG_WRITE_BYTES or bool(
            self.footers or self.doomed or self.litter or self.rewrites or self.swaps
        )

    def numbers(self) -> set[int]:
        """Return the blocks whose files this sync changes."""
        works = (*self.rewrites, *self.swaps)
        return {piece.number for piece in self.pieces} | {work.number for work in works}

    def run(self) -> None:
        """Run the whole sync. After DiskFull the caller may run it again, any number of times."""
        disk = self.files.disk
        touched = {number: self._block(number) for number in self.dirty}
        for piece in self.pieces:
            touched[piece.number] = block = self._block(piece.number)
            self._write(block, piece)
        if self.write_only:
            return
        for block in touched.values():
            if self.closing:  # remove the preallocated zeros
                disk.truncate(block.file, block.written)
            disk.fdatasync(block.file)
        if self.names_changed:
            disk.sync_dir()
        footers = [footer for footer in self.footers if footer.build()]
        self._end_full(footers)
        self._erase(footers)
        self._swap()
        for footer in footers:
            self.files.close(footer.number)
        self._remove_dead()
        if self.end is not None and (footers or self.swapped):
            self.end.note(self.place, self.seq)

    def _end_full(self, footers: list[BlockFooter]) -> None:
        """Write the footers of full blocks. A footer omits messages that records of later blocks
        removed, or that later messages displaced: all of those are durable before it."""
        erased = {number for number, _, _ in self.overwrites}
        footed = {}
        for footer in footers:
            if footer.number not in erased:
                footed[footer.number] = self._block(footer.number)
                self._foot(footed[footer.number], footer)
        for block in footed.values():
            self.files.disk.fdatasync(block.file)

    def _foot(self, block: OpenBlock, footer: BlockFooter) -> None:
        self.files.disk.pwrite(block.file, footer.data, footer.place)
        block.written = footer.place + len(footer.data)
        self.files.disk.truncate(block.file, block.written)

    def _erase(self, footers: list[BlockFooter]) -> None:
        """Overwrite erased records, then write the footers of their blocks. An interrupted
        overwrite may leave an unreadable record, so its removal is durable before this."""
        touched = {}
        for number, place, data in self.overwrites:
            touched[number] = self._block(number)
            self.files.disk.pwrite(touched[number].file, data, place)
        for footer in footers:
            if footer.number in touched:
                self._foot(touched[footer.number], footer)
        for block in touched.values():
            self.files.disk.fdatasync(block.file)

    def _block(self, number: int) -> OpenBlock:
        block = self.files.open.get(number)
        if block is None:
            disk, name = self.files.disk, self.files.name(number)
            try:
                block = OpenBlock(disk.open(name))
                block.written = block.allocated = disk.size(block.file)
            except NotFound:
                block = OpenBlock(disk.open(name, create=True))
                self.names_changed = True
            self.files.open[number] = block
        return block

    def _write(self, block: OpenBlock, piece: Unwritten) -> None:
        disk = self.files.disk
        if self.forms[piece.number] is not Form.FRAMES:
            end = piece.offset + len(piece.data)
            if len(piece.data) <= SMALL_WRITE_BYTES and end > block.allocated:
                preallocate(disk, block, end, self.block_bytes)
            disk.pwrite(block.file, piece.data, piece.offset)
            block.written = end
            return
        at, frames = self.framed.get(piece.number, (0, b""))
        if not frames:
            at, frames = self._framed(block, piece)
            self.framed[piece.number] = (at, frames)  # a second run must write the same bytes
        disk.pwrite(block.file, frames, at)
        block.written = at + len(frames)

    def _framed(self, block: OpenBlock, piece: Unwritten) -> tuple[int, bytes]:
        """Return the position of a piece in the file, and its frames."""
        head = 0
        if block.frames is None:
            head = int.from_bytes(piece.data[8:12], "little") if piece.offset == 0 else 0
            self.files.disk.pwrite(block.file, piece.data[:head], 0)
            block.frames = FrameWriter(
                self.binding._replace(block=piece.number),
                self.salts[piece.number],
                key=self.sealing.key,
                position=head,
                offset=head,
            )
        at = block.frames.position
        return at, block.frames.frames(piece.data[head:])

    def _swap(self) -> None:
        for rewrite in self.rewrites:
            if rewrite.result is None:
                rewrite.run()
        swapped = {id(work) for work in self.swapped}
        works = [work for work in (*self.rewrites, *self.swaps) if id(work) not in swapped]
        done = [work for work in works if work.result is not None]
        for rewrite in done:
            self.files.close(rewrite.number)
            self.files.disk.rename(rewrite.new_name, self.files.name(rewrite.number))
            self.swapped.append(rewrite)
        if done:
            self.files.disk.sync_dir()

    def _remove_dead(self) -> None:
        """Remove dead blocks and leftover files, after the records that explain it are durable.

        Syncs the directory: a file that came back would bring erased messages back.
        """
        gone = [self.files.remove(number) for number in self.doomed]
        for name in self.litter:
            try:
                self.files.disk.unlink(name)
            except NotFound:
                continue
            gone.append(True)
        if any(gone):
            self.files.disk.sync_dir()


@dataclass(slots=True)
class FetchWork:
    """Reads a cold block; or, given a place, a single record of a block in a plain file."""

    disk: Disk
    name: str
    number: int
    layout: int
    head: int
    form: Form
    binding: Binding
    sealing: Sealing
    seq: int = 0
    place: tuple[int, int] | None = None
    data: bytes = field(default=b"", repr=False)
    short: bool = False

    def run(self) -> None:
        if self.place is not None:
            offset, length = self.place
            file = self.disk.open(self.name, writable=False)
            try:
                # Bytes missing from a truncated file fail the record check, as in an image.
                self.data = self.disk.pread(file, length, offset).ljust(length, b"\0")
            finally:
                self.disk.close_file(file)
            return
        header = header_at(self.head, self.form, self.binding)
        self.data = read_image(self.disk, self.name, header, self.binding, self.sealing.keys).data


@dataclass(slots=True)
class RewriteWork:
    """Rewrites a block into a new file: without dead records, in the configured form.

    `result` is None until the work ran, and stays None if a record failed its check.
    """

    disk: Disk
    name: str
    facts: BlockFacts
    form: Form
    binding: Binding
    sealing: Sealing
    live: bytes = field(repr=False)
    oldest_seq: int
    loss_floor: int
    losses: int
    salt: int
    mark: tuple[int, int]
    image: bytes = field(default=b"", repr=False)
    result: Rewritten | None = field(default=None, repr=False)
    damaged: bool = False
    stale: bool = False
    """The block changed while the rewrite ran."""
    erases: bool = False
    """Whether a sync runs this rewrite, for a record that cannot be overwritten in place."""
    short: bool = False

    @property
    def number(self) -> int:
        return self.facts.number

    @property
    def new_name(self) -> str:
        return block_name(self.number) + (ERASED_SUFFIX if self.erases else NEW_SUFFIX)

    @property
    def head(self) -> int:
        """Header length of the new image; the same as in the old one."""
        return self.facts.head

    def run(self) -> None:
        facts = self.facts
        if not self.image:
            header = header_at(facts.head, self.form, self.binding)
            found = read_image(self.disk, self.name, header, self.binding, self.sealing.keys)
            self.image = found.data[: facts.used]
        made = self._rewritten()
        self.image = b""
        index = made and index_of(made.image, self.head, facts.first_seq, self.live, self.binding)
        if made is None or index is None:
            self.damaged = True
            return
        self._put(
            file_of(
                made.image, index, self._trailer(made, index), self.sealing, self.salt, self.binding
            )
        )
        self.result = made

    def _rewritten(self) -> Rewritten | None:
        facts, old = self.facts, read_block_header(self.image)
        if old is None:
            return None
        return rewrite_image(
            self.image,
            facts.head,
            renewed_header(old, self.binding, self.sealing.sealed_form),
            incarnation=self.binding.incarnation,
            number=self.number,
            first_seq=facts.first_seq,
            last_seq=facts.last_seq,
            last_ts_ns=facts.last_ts_ns,
            oldest_seq=self.oldest_seq,
            loss_floor=self.loss_floor,
            losses=self.losses,
            live=self.live,
        )

    def _trailer(self, made: Rewritten, index: bytes) -> Trailer:
        return trailer_of(
            self.facts._replace(used=len(made.image), records=made.records, dead_bytes=0),
            index,
            self.mark,
            self.sealing.sealed_form,
            self.binding,
        )

    def _put(self, data: bytes) -> None:
        file = self.disk.open(self.new_name, create=True)
        try:
            self.disk.truncate(file, 0)
            self.disk.pwrite(file, data, 0)
            self.disk.fdatasync(file)
        finally:
            self.disk.close_file(file)


def resumed(
    files: BlockFiles, number: int, image: Image, binding: Binding, sealing: Sealing, salt: int
) -> OpenBlock:
    """Open the newest block for appending at its end."""
    disk = files.disk
    block = OpenBlock(disk.open(files.name(number)))
    block.written = block.allocated = disk.size(block.file)
    if image.position:
        block.frames = FrameWriter(
            binding,
            salt,
            key=sealing.key,
            position=image.position,
            number=image.frames,
            offset=len(image.data),
        )
    return block
