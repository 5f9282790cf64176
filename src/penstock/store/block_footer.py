"""The footer of a full plain block: built from copies, on any thread.

Building it reads every record of the block, which takes tens of milliseconds, so the owner of the
store only copies (`BlockFooter`) and the sync builds (`build`). Invariant: `data` does not change
once it is built, so a sync that is run again after a full disk writes the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.store.block_file import Form, Trailer, footer_of, index_hash, index_of

if TYPE_CHECKING:
    from penstock.store.format.block_frames import Binding
    from penstock.store.index.block_images import BlockFacts


@dataclass(slots=True)
class BlockFooter:
    """The copies that a footer is built from, and the footer."""

    facts: BlockFacts
    binding: Binding
    mark: tuple[int, int]
    live: bytes = field(repr=False)
    image: bytes = field(repr=False)
    data: bytes = field(default=b"", repr=False)
    """The footer; empty until it is built."""
    is_damaged: bool = False
    """A record of the block failed its check: the block gets no footer."""

    @property
    def number(self) -> int:
        return self.facts.number

    @property
    def place(self) -> int:
        """The position of the footer in the file."""
        return self.facts.used

    def build(self) -> bool:
        """Build the footer, once; return whether there is one."""
        if not self.data and not self.is_damaged:
            facts, binding = self.facts, self.binding
            index = index_of(self.image, facts.head, facts.first_seq, self.live, binding)
            if index is None:
                self.is_damaged = True
            else:
                trailer = trailer_of(facts, index, self.mark, Form.PLAIN, binding)
                self.data = footer_of(index, trailer, binding)
            self.image = b""
        return not self.is_damaged


def trailer_of(
    facts: BlockFacts, index: bytes, mark: tuple[int, int], form: Form, binding: Binding
) -> Trailer:
    """Return the trailer that ends the file of a block with this index."""
    return Trailer(
        used=facts.used,
        first_seq=facts.first_seq,
        last_seq=facts.last_seq,
        last_ts_ns=facts.last_ts_ns,
        dead_bytes=facts.dead_bytes,
        records=facts.records,
        index_bytes=len(index),
        index_hash=index_hash(index, binding),
        lineage=facts.lineage,
        previous=facts.previous,
        mark_place=mark[1],
        mark_block=mark[0],
        head=facts.head,
        form=form,
    )
