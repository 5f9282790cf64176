"""The store interface that streams use, and its value types.

A store holds messages under ascending 64-bit sequences and enforces the limits that depend only on
those messages. Queries use its indexes and never scan messages. A store returns results, never
calls back, and uses no clock and no randomness. One owner calls it from one thread; only `Work.run`
may run on another. Sequence ranges include both ends; times are nanoseconds since 1970.

Which limit wins, what an emptied store reports and how sizes count is observable through the
JetStream API, so it follows the reference server. `tests/contract/store` checks every store.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from penstock.store.index.message_log import Cold, MessageRecord

if TYPE_CHECKING:
    from array import array

    from penstock.store.index.seq_set import SequenceSet
    from penstock.store.index.subject_table import SubjectTable

__all__ = [
    "EXPIRE_BATCH",
    "NOTHING_REMOVED",
    "SLICE_LOOKS",
    "SLICE_MSGS",
    "SLICE_SUBJECTS",
    "TIME_NS_MAX",
    "TTL_NEVER",
    "UNLIMITED",
    "Appended",
    "Cold",
    "Limits",
    "MessageRecord",
    "Missing",
    "PurgeStep",
    "Range",
    "Refusal",
    "Removed",
    "Store",
    "StoreState",
    "SubjectState",
    "Syncing",
    "Work",
]

UNLIMITED: Final = -1
TIME_NS_MAX: Final = 2**63 - 1
"""The latest timestamp a message can have: in the year 2262."""
TTL_NEVER: Final = -1
"""A `ttl_ns` that exempts a message from the age limit only; all other limits apply."""
EXPIRE_BATCH: Final = 2_048
"""Default maximum of messages that one call of `Store.expire` removes."""
SLICE_MSGS: Final = 2_048
"""Messages that one slice of a purge or limit change removes: takes one or two milliseconds."""
SLICE_LOOKS: Final = 65_536
"""Sequences that one such slice examines: takes less than a millisecond."""
SLICE_SUBJECTS: Final = 16_384
"""Subjects that one slice of a subject table collects: takes a few milliseconds."""

Range: TypeAlias = tuple[int, int]
"""First and last sequence, both inclusive."""


class Limits(NamedTuple):
    """The limits of a store. A value below 1 means no limit.

    With `discard_new`, `append` refuses a message that would exceed `msgs_max` or `bytes_max`;
    without it, the store removes its oldest messages. Over `per_subject_max` the store removes
    the subject's oldest message in both cases, unless `discard_new_per_subject` (which needs
    `discard_new`) refuses the new one.
    """

    msgs_max: int = UNLIMITED
    bytes_max: int = UNLIMITED
    age_ns_max: int = 0
    per_subject_max: int = UNLIMITED
    discard_new: bool = False
    discard_new_per_subject: bool = False

    @property
    def is_boundless(self) -> bool:
        """Whether there is no limit on the number of messages or bytes."""
        return self.per_subject_max < 1 and self.msgs_max < 1 and self.bytes_max < 1


class Refusal(enum.Enum):
    """Why `append` stored nothing. The values are the reference server's error texts."""

    MAX_MSGS = "maximum messages exceeded"
    MAX_BYTES = "maximum bytes exceeded"
    MAX_PER_SUBJECT = "maximum messages per subject exceeded"


class Missing(enum.Enum):
    """Why a read found no message."""

    ABSENT = "removed, never stored, or not stored yet"
    DAMAGED = "stored, but its bytes are no longer what was written"


class Removed(NamedTuple):
    """The messages that a call removed: number of live messages, their total size, their ranges.

    The ranges in `seqs` are ascending and disjoint. Together they cover every removed message and
    no live one. A range may include sequences that were already empty, so that a purge of
    everything is one range; `msgs` counts messages, not the width of the ranges.
    """

    msgs: int
    bytes: int
    seqs: tuple[Range, ...]


NOTHING_REMOVED: Final = Removed(0, 0, ())


class PurgeStep(NamedTuple):
    """The position of a purge in slices. Messages appended after the purge began have sequences
    at or above `bound`, so they stay."""

    subject: str | None
    """A filter; None means every subject."""
    bound: int
    """Messages below this sequence are removed; while `keep` is not 0, the messages to keep are
    counted downwards from here."""
    keep: int = 0
    """How many of the newest messages to keep are still to be found; removal starts at 0."""
    start: int = 0
    """No message below this sequence is left to remove."""


class Appended(NamedTuple):
    """The sequence of an appended message, and the messages that the limits removed for it.

    A message that alone exceeds `bytes_max` removes every message including itself: it is
    appended, has a sequence, and is counted in `removed`.
    """

    seq: int
    removed: Removed


class SubjectState(NamedTuple):
    """The live messages of one subject: first and last sequence, and their number (at least 1)."""

    first: int
    last: int
    msgs: int


class StoreState(NamedTuple):
    """Totals of a store.

    An empty store has `first_seq == last_seq + 1`. A new store has 1 and 0, or starts at the
    `first_seq` it was created with. Removals never lower `last_seq` or `last_ts_ns`; only
    `truncate` does.
    """

    msgs: int
    bytes: int
    """Sum of the sizes as the reference server counts them. In a file: 30 + subject + payload,
    plus 4 + header for a message with a header. In memory: 16 + subject + header + payload."""
    first_seq: int
    """The sequence of the first live message, or `last_seq + 1`."""
    first_ts_ns: int
    """The timestamp of the first live message; 0 if there is none."""
    last_seq: int
    """The last sequence assigned, whether or not its message is still live."""
    last_ts_ns: int
    """The timestamp of the last append or skip; 0 if there was none."""
    num_subjects: int
    num_deleted: int
    """Sequences from `first_seq` to `last_seq` that hold no live message; 0 in an empty store."""
    deleted: SequenceSet | None
    """Those sequences, if requested."""
    damaged: tuple[Range, ...]
    """Sequences known to have held messages that can no longer be read, ascending. A damaged
    message is not live: only `num_deleted` counts it."""


class Work(Protocol):
    """Blocking file work. The store prepares it; the server runs it once, on any thread."""

    def run(self) -> None:
        """Run the work. Uses no state that the store's owner may change in the meantime."""


class Syncing(Work, Protocol):
    """The work of a sync."""

    @property
    def is_long(self) -> bool:
        """Whether the work is long: it writes much, or removes or replaces files, perhaps
        hundreds."""


class Store(Protocol):
    """Messages by sequence, indexed by subject.

    Readers see an appended message once it is visible: up to `visible_seq`. Before that a power
    cut could undo the append. Calls with `unsynced` see every message; they serve the code that
    plans the next append. Totals (`state`, `subject_states`) and removals always include messages
    that are not visible yet.

    Subjects given to `append` are literal and valid; filters are literal or have wildcards. A
    message matches a tuple of filters if any filter matches; () matches every subject. Timestamps
    never decrease from one append to the next; queries by time rely on it.
    """

    # -- writing

    def append(
        self,
        subject: str,
        header: bytes,
        payload: bytes,
        ts_ns: int,
        *,
        seq: int | None = None,
        ttl_ns: int = 0,
        admitted: bool = False,
    ) -> Appended | Refusal:
        """Store a message under the next sequence, or under `seq`, and enforce the limits.

        `seq` must be above `last_seq` (ValueError, nothing changed); sequences left out can never
        be used. With `ttl_ns` above 0 the message is due at `ts_ns + ttl_ns`, or at the age limit
        if that is earlier. TTL_NEVER exempts it from the age limit.

        The first refusal that applies wins; `full` means the subject holds `per_subject_max`:
        full and `discard_new_per_subject`; the store holds `msgs_max` and not full; with this
        message above `bytes_max`, and not full or the subject's oldest is smaller than the new
        one. A refusal uses no sequence. Otherwise the subject's oldest messages are removed until
        it is within `per_subject_max`; then, without `discard_new`, the store's oldest until it
        is within `msgs_max` and `bytes_max`. With `admitted` the caller has already checked
        `refusal`: `append` refuses nothing.
        """

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        """Return why `append` would refuse this message now; None if it would store it."""

    def skip(self, first: int, last: int, ts_ns: int) -> None:
        """Assign the sequences `first` to `last` without messages; they stay empty forever.

        `first` must be `last_seq + 1` and `last` not below it (ValueError), so that caller and
        store agree on the position. An empty store then starts at `last + 1`.
        """

    def set_limits(self, limits: Limits) -> Removed:
        """Set the limits and remove the messages that exceed them.

        `per_subject_max` is always enforced, `msgs_max` and `bytes_max` unless `discard_new`. The
        next `expire` enforces the age limit.
        """

    def change_limits(self, limits: Limits) -> None:
        """Set the limits as `set_limits` does, but leave the removal to `trim`, in slices."""

    @property
    def is_over(self) -> bool:
        """Whether `trim` has work: the limits changed, or a single append would have removed
        more than SLICE_MSGS messages."""

    def trim(self) -> Removed:
        """Remove one slice of the messages over the limits: the store's oldest, then each
        subject's. While the store's oldest still exceed new limits, an append between slices
        removes nothing; `trim` counts the appended message like the others."""

    @property
    def has_remains(self) -> bool:
        """Whether memory of messages that a full purge removed still waits for `shed`."""

    def shed(self) -> None:
        """Free one slice of that memory."""

    def note_lost(self, last: int) -> None:
        """Record that messages up to this sequence may have been lost before they were stored."""

    # -- reading

    @property
    def visible_seq(self) -> int:
        """The last sequence that readers see and that the server may acknowledge.

        Equal to `durable_seq` in a store that syncs always, and to `last_seq` in memory. In a
        lazy store it is `last_seq` while the sequences reserved on disk suffice, which holds if
        the server syncs whenever `sync_wanted` is true.
        """

    def load(self, seq: int, *, unsynced: bool = False) -> MessageRecord | Missing | Cold:
        """Return the message of a sequence."""

    def load_last(
        self, subject: str, *, at_or_before: int | None = None, unsynced: bool = False
    ) -> MessageRecord | Missing | Cold:
        """Return the newest message that matches a filter, up to and including `at_or_before`."""

    def next_match(
        self, filters: tuple[str, ...], start: int, *, unsynced: bool = False
    ) -> MessageRecord | Cold | None:
        """Return the first message at or after `start` that matches any filter; None if none does.

        Skips damaged messages.
        """

    def num_pending(
        self,
        start: int,
        filters: tuple[str, ...],
        *,
        last_per_subject: bool = False,
        unsynced: bool = False,
    ) -> int:
        """Return how many messages successive calls of `next_match` would find from `start` on.

        A message that several filters match counts once. With `last_per_subject` only the last
        message of every subject counts, if it is at or after `start`.
        """

    def seq_at_time(self, ts_ns: int) -> int:
        """Return the first live sequence whose timestamp is at or after `ts_ns`; `last_seq + 1`
        if there is none."""

    def subject_states(self, pattern: str = ">") -> dict[str, SubjectState]:
        """Return the state of every subject that has live messages and matches the filter."""

    def subject_table(self, pattern: str) -> SubjectTable:
        """Return an empty table for the subjects that have live messages and match the filter."""

    def fill_table(self, table: SubjectTable) -> bool:
        """Collect up to SLICE_SUBJECTS subjects; return whether more are left."""

    def last_of_each(
        self, filters: tuple[str, ...], *, at_or_before: int | None = None
    ) -> array[int]:
        """Return the newest visible sequence of every subject that matches any filter, up to and
        including `at_or_before`, ascending."""

    def first_since(self, filters: tuple[str, ...], start: int) -> int:
        """Return the lowest sequence, not below `start`, that is the first of a subject that
        matches any filter; 0 if there is none."""

    def next_seq(self, filters: tuple[str, ...], start: int) -> int:
        """Return the first sequence from `start` on that matches any filter, visible or not; 0 if
        there is none."""

    def subject_of(self, seq: int) -> str | None:
        """Return the subject of a live message, visible or not, cold or not; None if missing."""

    def deleted_seqs(self, at_most: int) -> array[int]:
        """Return the first sequences that `num_deleted` counts, at most `at_most`, ascending."""

    def state(self, *, deleted: bool = False) -> StoreState:
        """Return the totals; with `deleted` also the set of deleted sequences, at a cost
        proportional to the number of its ranges."""

    @property
    def last_seq(self) -> int:
        """The `last_seq` of `state`, at less cost; the same holds for `last_ts_ns`."""

    @property
    def last_ts_ns(self) -> int: ...

    @property
    def total_bytes(self) -> int:
        """The `bytes` of `state`, at less cost."""

    @property
    def loss_floor(self) -> int:
        """The highest sequence whose message was removed while it was the newest of its subject.

        A reader that knows the newest of every subject up to here, and reads on, misses nothing.
        After a crash, damage or a truncation the value may be too high, never too low; it never
        falls."""

    @property
    def losses(self) -> int:
        """How many messages were removed as the newest of their subject, either by request or
        while an older message of the subject stayed."""

    # -- removing

    def remove(self, seq: int) -> Removed | None:
        """Remove one message; return None if no live message has this sequence."""

    def append_packed(self, packed: bytes, ts_ns: int) -> Removed:
        """Append packed messages (`store.index.message_pack`), each like `append` with `admitted`
        and without a TTL; return everything that the limits removed."""

    def remove_span(self, first: int, last: int) -> Removed:
        """Remove every live message from `first` to `last`; some may be removed already."""

    def erase(self, seq: int) -> Removed | Cold | None:
        """Remove a message like `remove`, and overwrite its bytes before the next sync returns."""

    def purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> Removed:
        """Remove all messages, or those that match a filter, or those below `before_seq`.

        `keep` spares the newest of them, in total, not for each subject. It cannot be combined
        with `before_seq` (ValueError). Without a filter (None; also ">") a `before_seq` above
        `last_seq + 1` leaves an empty store that continues at `before_seq`.
        """

    def begin_purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> PurgeStep:
        """Return the first step of a purge in slices. Removes nothing."""

    def purge_slice(self, step: PurgeStep) -> tuple[Removed, PurgeStep | None]:
        """Remove at most SLICE_MSGS messages, or everything at once if no message is to stay;
        return the next step, None if the purge is complete.

        The caller may call everything else between two slices. Messages appended in between stay,
        and so do those that `keep` spared when the purge began.
        """

    def truncate(self, seq: int) -> Removed:
        """Remove everything above `seq`; the next sequence is `seq + 1`.

        This is the only call after which sequences are assigned again. `seq` must not be above
        `last_seq` (ValueError). `last_ts_ns` becomes that of the last message left, or 0.
        """

    def expire(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> Removed:
        """Remove messages due at `now_ns`: TTL deadline or age limit reached, to the nanosecond.

        Removes at most `at_most`; `next_deadline_ns` then shows that more are due.
        """

    def due(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> tuple[int, ...]:
        """Return the sequences that `expire` would remove now, ascending. Removes nothing."""

    def next_deadline_ns(self) -> int | None:
        """Return a time at or before the next message falls due; None if none ever does."""

    # -- durability, driven by the server

    @property
    def lost(self) -> tuple[Range, ...]:
        """Sequences that a power cut lost before this store was opened. The store never reported
        them as durable, and they stay unused. A batch appended together may have lost a part."""

    @property
    def durable_seq(self) -> int:
        """Everything up to this sequence, and every removal before it was reached, survives a
        power cut. Never above `last_seq`; equal to it in a store without a disk."""

    @property
    def sync_wanted(self) -> bool:
        """Whether `pending_sync` has work that should not wait for the sync interval.

        The server checks this at the end of a turn. A store that syncs always returns true
        whenever something is not durable; a lazy store only when its reserved sequences run short.
        """

    def pending_sync(self, *, write_only: bool = False) -> Syncing | None:
        """Return the work that makes everything done so far durable; None if nothing is open.

        At most one work is out at a time: the result is None until the caller reports the last
        one with `synced`. The store has no clock. For a lazy store the server calls this once per
        interval and when `sync_wanted` is true, and at the end of every turn with `write_only` for
        work that writes without syncing. Written data survives a kill of the process, but not a
        power cut; it is not durable.
        """

    def synced(self, work: Work, failure: Exception | None = None) -> None:
        """Report that the work of `pending_sync` ran. After a failure the store never becomes
        durable again: every call that writes raises StoreError, and reading continues."""

    def fetch(self, cold: Cold) -> Work:
        """Return the work that loads the cold block which a read returned."""

    def fetched(self, work: Work) -> None:
        """Report that the work of `fetch` ran: the same read now succeeds, until the store drops
        the block from memory in some later turn of the owner."""

    def close(self) -> None:
        """Write and sync what is open (this may block) and close the files. The last call."""
