"""What a client may rely on, checked by an observer.

The witness sees what is stored and removed, every delivery, every acknowledgement and every
restart, and keeps plain sets. It knows nothing of floors, queues or clocks; where the consumer has
such things, it says what they must agree with.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from models.subjects import matches


@dataclass
class Known:
    """What is known of messages by what was delivered and acknowledged."""

    last_new: int = 0
    """The highest sequence delivered for the first time."""
    out: dict[int, int] = field(default_factory=dict)
    """Delivered and not acked -> how often."""
    acked: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)


@dataclass
class Witness:
    """The whole of it. A cut takes the consumer back to what was synced, but not the stream."""

    filters: tuple[str, ...]
    live: dict[int, str] = field(default_factory=dict)
    known: Known = field(default_factory=Known)
    synced: Known = field(default_factory=Known)

    # -- what happened

    def delivered(self, seq: int, count: int) -> None:
        known = self.known
        assert seq in self.wanted(), "delivered what was removed or not asked for"
        assert seq not in known.acked, "delivered again what was acknowledged"
        assert seq not in known.given_up, "delivered again what was given up"
        if seq in known.out:
            assert count == known.out[seq] + 1, "counted wrong"
        else:
            assert seq > known.last_new, "out of order"
            skipped = [s for s in self.wanted() if known.last_new < s < seq]
            assert not skipped, f"passed over {skipped}"
            assert count == 1, "counted wrong"
            known.last_new = seq
        known.out[seq] = count

    def acked(self, seq: int) -> None:
        if seq in self.known.out or seq in self.known.given_up:
            self.known.out.pop(seq, None)
            self.known.given_up.discard(seq)
            self.known.acked.add(seq)

    def acked_through(self, seq: int) -> None:
        for each in [s for s in self.known.out if s <= seq]:
            self.acked(each)

    def gave_up(self, seq: int, allowed: int) -> None:
        if seq in self.live:
            assert self.known.out.pop(seq) == allowed, "given up too early"
            self.known.given_up.add(seq)

    def removed(self, seq: int) -> None:
        del self.live[seq]
        self.known.out.pop(seq, None)
        self.known.given_up.discard(seq)

    def sync(self) -> None:
        self.synced = deepcopy(self.known)

    def cut(self) -> None:
        self.known = deepcopy(self.synced)
        for seq in [s for s in self.known.out if s not in self.live]:
            del self.known.out[seq]

    # -- what follows from it

    def wanted(self) -> set[int]:
        return {
            s for s, subject in self.live.items() if any(matches(subject, f) for f in self.filters)
        }

    def num_undelivered(self) -> int:
        return sum(1 for seq in self.wanted() if seq > self.known.last_new)

    def unacked(self) -> set[int]:
        return self.wanted() - self.known.acked - self.known.given_up
