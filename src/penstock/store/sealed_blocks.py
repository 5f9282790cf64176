"""The sealed blocks of a store: their footers, their erasures and their rewrites.

A block is rewritten when half of it is dead, or when it is not stored as configured (form,
compression, key). A rewrite has three steps: the work, created from copies, runs on any thread and
leaves a complete new file next to the old one; the next sync moves it into place; only then the log
learns the new record positions. An erasure in the meantime discards the rewrite, and the erasure
itself is never lost. One work of `pending` is out at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.store.block_file import Form
from penstock.store.block_footer import BlockFooter
from penstock.store.disk_jobs import RewriteWork
from penstock.store.format.block_frames import Binding
from penstock.store.index.block_images import (
    block_facts,
    blocks_of,
    drop_image,
    erase_image,
    image_part,
    live_map,
    move_records,
    set_damaged,
    set_footed,
    unfooted,
    warm_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.store.block_file import Sealing
    from penstock.store.disk_jobs import BlockFiles, SyncWork
    from penstock.store.index.block_images import BlockFacts
    from penstock.store.index.message_log import MessageLog

DEAD_PARTS: Final = 2
"""A block is rewritten when more than one part in this many of it is dead."""


class SealedBlocks:
    """How the blocks of a log are stored, and the changes in progress."""

    def __init__(
        self,
        log: MessageLog,
        files: BlockFiles,
        sealing: Sealing,
        noise: Callable[[int], bytes],
    ) -> None:
        self.forms: dict[int, Form] = {}
        self.stored: dict[int, tuple[int, int]] = {}
        """Compression and key number of sealed bodies."""
        self.erased: dict[int, list[tuple[int, int, int]]] = {}
        """Sequence, place and length of records overwritten in images but not yet in files."""
        self.swaps: list[RewriteWork] = []
        self.litter: list[str] = []
        self.cooled_up_to = 0
        """The next block number when images were last dropped; 0: some may have to be dropped."""
        self._rewriting: RewriteWork | None = None
        self._footed_up_to = 0
        self._log = log
        self._files = files
        self._sealing = sealing
        self._noise = noise

    def binding(self, number: int) -> Binding:
        return Binding(self._log.incarnation, number)

    def salt(self) -> int:
        return int.from_bytes(self._noise(8), "little")

    def form(self, number: int) -> Form:
        return self.forms.get(number, Form(self._log.form))

    def forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self.forms.pop(number, None)
            self.stored.pop(number, None)
            self.erased.pop(number, None)

    @property
    def is_stirred(self) -> bool:
        """Whether a sync has more to do than append."""
        return bool(
            self.erased or self.swaps or self.litter or self._footed_up_to != self._log.next_number
        )

    # -- footers

    def pinned(self) -> set[int]:
        """Return the blocks whose images must stay in memory."""
        waiting = {number for number in unfooted(self._log) if self.form(number) is Form.PLAIN}
        return waiting | set(self.erased)

    def cool_down(self, warm_bytes_max: int) -> None:
        """Drop the oldest images beyond `warm_bytes_max`, except pinned ones."""
        if self.cooled_up_to == self._log.next_number:
            return
        self.cooled_up_to = self._log.next_number
        warm, pinned = warm_blocks(self._log), self.pinned()
        excess = sum(size for _, size in warm) - warm_bytes_max
        for number, size in warm:
            if excess <= 0:
                return
            if number not in pinned:
                drop_image(self._log, number)
                excess -= size

    def footers(self) -> list[BlockFooter]:
        """Return footers to build for plain blocks that lack one; frames get theirs when
        rewritten. Copies the blocks: the caller passes the footers to a sync, then to `footed`."""
        wanted: list[BlockFooter] = []
        if self._footed_up_to == self._log.next_number:
            return wanted  # since then no block was filled or changed
        self._footed_up_to = self._log.next_number
        mark = (self._log.mark_block, self._log.mark_place)
        for number in unfooted(self._log):
            facts = block_facts(self._log, number)
            if facts is None or self.form(number) is not Form.PLAIN:
                continue
            live, image = live_map(self._log, number), image_part(self._log, number, 0, facts.used)
            wanted.append(BlockFooter(facts, self.binding(number), mark, live, image))
            set_footed(self._log, number, True)
        return wanted

    def footed(self, footers: Iterable[BlockFooter]) -> None:
        """Report that a sync has run with these footers."""
        for footer in footers:
            if footer.is_damaged:
                set_damaged(self._log, footer.number)
                set_footed(self._log, footer.number, False)

    # -- erasures

    def note_erased(self, seq: int, number: int, place: int, length: int) -> None:
        self.erased.setdefault(number, []).append((seq, place, length))
        self._footed_up_to = 0
        set_footed(self._log, number, False)  # the old footer still contains the subject
        for work in [work for work in self.swaps if work.number == number]:
            self.swaps.remove(work)
            self.litter.append(work.new_name)

    def erases_frames(self) -> bool:
        """Return whether an erased record lies in a block that cannot be overwritten in place."""
        return any(self.form(number) is not Form.PLAIN for number in self.erased)

    def take_erased(self) -> tuple[list[tuple[int, int, bytes]], list[RewriteWork]]:
        """Return the overwrites, and the rewrites of blocks that cannot be overwritten in place."""
        overwrites, rewrites = [], []
        for number, erased in self.erased.items():
            facts = block_facts(self._log, number)
            if facts is None:
                continue
            if self.form(number) is not Form.PLAIN:
                rewrites.append(self._rewrite(facts))
                rewrites[-1].erases = True
                continue
            for _, place, length in erased:
                overwrites.append((number, place, image_part(self._log, number, place, length)))
        self.erased = {}
        return overwrites, rewrites

    # -- rewriting

    def pending(self, working: SyncWork | None, dirty: set[int]) -> RewriteWork | None:
        if self._rewriting is not None:
            return None
        waiting = {work.number for work in self.swaps} | set(self.erased) | dirty
        if working is not None:
            waiting |= working.numbers()
        for facts in blocks_of(self._log):
            if facts.number not in waiting and self._wants_rewrite(facts):
                self._rewriting = self._rewrite(facts)
                return self._rewriting
        return None

    def _wants_rewrite(self, facts: BlockFacts) -> bool:
        if not facts.sealed or facts.damaged or not facts.written:
            return False
        form = self.form(facts.number)
        if form is not self._sealing.sealed_form or not facts.footed:
            return True
        if form is Form.SEALED and self.stored.get(facts.number) != self._sealing.mark:
            return True
        return facts.dead_bytes * DEAD_PARTS > facts.used - facts.head

    def _rewrite(self, facts: BlockFacts) -> RewriteWork:
        number = facts.number
        return RewriteWork(
            self._files.disk,
            self._files.name(number),
            facts,
            self.form(number),
            self.binding(number),
            self._sealing,
            live_map(self._log, number),
            self._log.oldest_seq(),
            self._log.loss_floor,
            self._log.losses,
            self.salt(),
            (self._log.mark_block, self._log.mark_place),
            image_part(self._log, number, 0, facts.used) if facts.warm else b"",
        )

    def done(self, work: object, failure: Exception | None) -> None:
        """Report that the work of `pending` ran."""
        rewrite = self._rewriting
        if rewrite is None or work is not rewrite:
            raise ValueError("this is not the work that was given out")
        self._rewriting = None
        facts = block_facts(self._log, rewrite.number)
        if rewrite.damaged:
            set_damaged(self._log, rewrite.number)
        fits = facts is not None and facts.layout == rewrite.facts.layout
        if failure is None and rewrite.result and fits and not rewrite.stale:
            self.swaps.append(rewrite)
        else:
            self.litter.append(rewrite.new_name)

    def outdate(self, number: int) -> None:
        """Mark the rewrite of a block as stale, because the block changed."""
        if self._rewriting is not None and self._rewriting.number == number:
            self._rewriting.stale = True

    def adopt(self, rewrite: RewriteWork) -> None:
        """Use the new file of a block, which is in place: update the record positions."""
        made, number = rewrite.result, rewrite.number
        self.cooled_up_to = 0
        if made is None:
            set_damaged(self._log, number)
            return
        self.forms[number] = self._sealing.sealed_form
        self.stored[number] = self._sealing.mark
        move_records(self._log, number, made.places, made.image, rewrite.head, made.records)
        first, moved = rewrite.facts.first_seq, []
        for seq, _, length in self.erased.pop(number, []):
            # Erased while the rewrite ran: if the new file has the record, its place differs.
            place = int.from_bytes(made.places[4 * (seq - first) :][:4], "little")
            if place:
                erase_image(self._log, number, place, seq, self._noise(length)[:length])
                moved.append((seq, place, length))
        if moved:
            self.erased[number] = moved
            self._footed_up_to = 0
            set_footed(self._log, number, False)
