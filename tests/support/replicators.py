"""A replicator that applies entries later, or drops them, as a cluster does."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.jetstream.streams.entry_codec import decode_entry, encode_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.host.replicator import Proposal
    from penstock.jetstream.streams.entries import Entry


class DelayedReplicator:
    """Keep proposed entries as bytes until `apply_next` applies or `drop_all` drops them."""

    def __init__(self, apply: Callable[[Entry, Proposal | None], None]) -> None:
        self._apply = apply
        self._waiting: deque[tuple[bytes, Proposal | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def propose(self, entry: Entry, proposal: Proposal | None = None) -> None:
        self._waiting.append((encode_entry(entry), proposal))

    def apply_next(self) -> None:
        """Apply the oldest entry."""
        data, proposal = self._waiting.popleft()
        self._apply(decode_entry(data), proposal)

    def drop_all(self) -> None:
        """Drop every entry, as when the server stops leading."""
        while self._waiting:
            proposal = self._waiting.popleft()[1]
            if proposal is not None:
                proposal.dropped(None)
