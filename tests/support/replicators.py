"""A replicator that applies entries later, or drops them, as a cluster does."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.jetstream.streams.entry_codec import decode_entry, encode_entry

if TYPE_CHECKING:
    from penstock.jetstream.host.replicator import Replica
    from penstock.jetstream.streams.entries import Entry


class DelayedReplicator:
    """Keep proposed entries as bytes until `apply_next` applies or `step_down` drops them."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiting: deque[tuple[bytes, object]] = deque()
        self.decided: list[bytes] = []
        """The bytes of every applied entry."""

    def __len__(self) -> int:
        return len(self._waiting)

    def propose(self, entry: Entry, token: object) -> None:
        self._waiting.append((encode_entry(entry), token))

    def entries(self) -> list[Entry]:
        """Return what waits."""
        return [decode_entry(data) for data, _ in self._waiting]

    def apply_next(self, now_ns: int = 0) -> None:
        """Apply the oldest entry."""
        data, token = self._waiting.popleft()
        self.decided.append(data)
        self._replica.applied(decode_entry(data), token, now_ns)

    def apply_all(self, now_ns: int = 0) -> None:
        """Apply what waits, and what is proposed meanwhile."""
        while self._waiting:
            self.apply_next(now_ns)

    def step_down(self, now_ns: int = 0) -> None:
        """Drop every entry: the server stops leading."""
        self._waiting.clear()
        self._replica.role_changed(now_ns, leading=False)

    def lead(self, now_ns: int = 0) -> None:
        """Let the server lead again."""
        self._replica.role_changed(now_ns, leading=True)
