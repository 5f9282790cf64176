"""What a stream may ask of its store, and the values that go with it.

A store holds messages under ascending 64-bit sequences, enforces the limits that need nothing but
the messages themselves, and answers without scanning. It returns what happened; it calls nobody
back, reads no clock and draws no random number. One owner, one thread: only `Work.run` may go to
another. All ranges of sequences are inclusive on both ends, all times are nanoseconds since 1970.

Which limit wins, what an emptied store reports and how sizes count is observable through the
JetStream API, so it follows the reference server; `tests/contract/store` holds every store to it.
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
"""The latest time that a message can have: in the year 2262."""
TTL_NEVER: Final = -1
"""A message's `ttl_ns` that exempts it from the age limit, and from nothing else."""
EXPIRE_BATCH: Final = 2_048
"""Messages one call of `Store.expire` takes out at most, unless the caller says otherwise."""
SLICE_MSGS: Final = 2_048
"""Messages that one slice of a purge or of new limits takes out: a millisecond or two."""
SLICE_LOOKS: Final = 65_536
"""Sequences that such a slice looks at: less than a millisecond."""
SLICE_SUBJECTS: Final = 16_384
"""Subjects that one slice of a table collects: a few milliseconds."""

Range: TypeAlias = tuple[int, int]
"""First and last sequence, both included."""


class Limits(NamedTuple):
    """What a store keeps at most. Anything below 1 is no limit.

    `discard_new` refuses what would go over `msgs_max` or `bytes_max`; without it the oldest
    messages make room. Over `per_subject_max` the subject's oldest message makes room in either
    case, unless `discard_new_per_subject` (which needs `discard_new`) refuses.
    """

    msgs_max: int = UNLIMITED
    bytes_max: int = UNLIMITED
    age_ns_max: int = 0
    per_subject_max: int = UNLIMITED
    discard_new: bool = False
    discard_new_per_subject: bool = False

    @property
    def is_boundless(self) -> bool:
        """Whether no number of messages and bytes is too many."""
        return self.per_subject_max < 1 and self.msgs_max < 1 and self.bytes_max < 1


class Refusal(enum.Enum):
    """Why an append stored nothing. The values are the reference's words for it."""

    MAX_MSGS = "maximum messages exceeded"
    MAX_BYTES = "maximum bytes exceeded"
    MAX_PER_SUBJECT = "maximum messages per subject exceeded"


class Missing(enum.Enum):
    """Why a read found nothing."""

    GONE = "removed, never stored, or not stored yet"
    DAMAGED = "stored, but its bytes are no longer what was written"


class Removed(NamedTuple):
    """What a call took out: how many live messages, their size, and where they were.

    `seqs` is ascending and disjoint; together the ranges cover every message taken out and none
    that is still there. A range may run across sequences that were gone before, so that a purge
    of everything is one range; `msgs` counts messages, not the width of ranges.
    """

    msgs: int
    bytes: int
    seqs: tuple[Range, ...]


NOTHING_REMOVED: Final = Removed(0, 0, ())


class PurgeStep(NamedTuple):
    """Where a purge in slices stands. What is appended after the purge began is above `bound`, so
    it stays."""

    subject: str | None
    """A filter; None: every subject."""
    bound: int
    """Messages below this sequence go; while `keep` is not 0, those to keep are counted below."""
    keep: int = 0
    """How many of the newest are still to be found, before any goes."""
    start: int = 0
    """Below this sequence nothing is left to take."""


class Appended(NamedTuple):
    """The sequence a message got, and what the limits took out for it.

    A message larger than `bytes_max` alone takes everything out and itself too: it is appended,
    has a sequence, and is in `removed`.
    """

    seq: int
    removed: Removed


class SubjectState(NamedTuple):
    """The live messages of one subject: first and last sequence, and how many (at least one)."""

    first: int
    last: int
    msgs: int


class StoreState(NamedTuple):
    """Totals of a store.

    An empty store has `first_seq == last_seq + 1`, a new one 1 and 0 (or as `first_seq` given when
    it was made). Removing never lowers `last_seq` or `last_ts_ns`; only truncating does.
    """

    msgs: int
    bytes: int
    """Sum of the sizes as the reference counts them. In a file: 30 + subject + payload, and
    4 + header more for a message with a header. In memory: 16 + subject + header + payload."""
    first_seq: int
    """The first live message, or `last_seq + 1`."""
    first_ts_ns: int
    """Its time; 0 if there is none."""
    last_seq: int
    """The last sequence given out, whether or not its message is still there."""
    last_ts_ns: int
    """The time of the last append or skip; 0 if there was none."""
    num_subjects: int
    num_deleted: int
    """Sequences from `first_seq` to `last_seq` that hold no live message; 0 in an empty store."""
    deleted: SequenceSet | None
    """Those sequences, if asked for."""
    damaged: tuple[Range, ...]
    """Sequences known to have held messages that can no longer be read, ascending. A damaged
    message is not live: it counts in no total but `num_deleted`."""


class Work(Protocol):
    """Blocking file work, prepared by a store and run by the edge on any thread, once."""

    def run(self) -> None:
        """Does it. Touches nothing the store's owner may touch meanwhile."""


class Syncing(Work, Protocol):
    """The work of a sync."""

    @property
    def short(self) -> bool:
        """It writes a few pages and syncs one file: with a single message waiting for it, running
        it at once costs less than handing it to a thread."""

    @property
    def is_long(self) -> bool:
        """It removes or replaces files, perhaps hundreds."""


class Store(Protocol):
    """Messages by sequence, indexed by subject.

    What was appended can be read once it is visible: up to `visible_seq`. Until then a power cut
    could undo it, and what nobody has seen nobody misses. Calls with `unsynced` see everything;
    they are for whoever plans the next append. Totals (`state`, `subject_states`) and removals
    always mean everything.

    Subjects given to `append` are literal and valid; filters are literal or have wildcards. A row
    of filters means "some of them matches", and the empty row means every subject. Timestamps
    never fall from one append to the next; a store may rely on it in all questions of time.
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
        """Stores a message under the next sequence, or under `seq`, and enforces the limits.

        `seq` must be above `last_seq` (ValueError, nothing changed); sequences left out can never
        be used. With `ttl_ns` above 0 the message is due at `ts_ns + ttl_ns`, or when the age
        limit says so if that is earlier. TTL_NEVER exempts it from the age limit.

        Refusals, first that applies, `full` meaning that the subject holds `per_subject_max`:
        full and `discard_new_per_subject`; as many as `msgs_max` and not full; with this message
        above `bytes_max`, and not full or the subject's oldest smaller than the new one. A refusal
        uses no sequence. Otherwise the subject's oldest go until it is within `per_subject_max`;
        then, without `discard_new`, the store's oldest until within `msgs_max` and `bytes_max`.
        `admitted` says that the caller has asked `refusal` in its own time: nothing is refused.
        """

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        """Why `append` would not store this message now; None if it would."""

    def skip(self, first: int, last: int, ts_ns: int) -> None:
        """Gives out the sequences `first` to `last`; none of them will ever hold a message.

        `first` must be `last_seq + 1` and `last` not below it (ValueError): caller and store
        agree where they are. An empty store then starts at `last + 1`.
        """

    def set_limits(self, limits: Limits) -> Removed:
        """From now on these limits, and takes out what is over them.

        `per_subject_max` is enforced always, `msgs_max` and `bytes_max` unless `discard_new`. Age
        waits for the next `expire`.
        """

    def change_limits(self, limits: Limits) -> None:
        """As `set_limits`, but `trim` takes out what is over them, slice by slice."""

    @property
    def is_over(self) -> bool:
        """Whether `trim` has something to do: limits were changed, or a single append would have
        taken out more than SLICE_MSGS."""

    def trim(self) -> Removed:
        """Take out one slice of what is over the limits: the store's oldest, then each subject's.
        Appends between slices count as earlier than the limits until the former are out."""

    @property
    def has_remains(self) -> bool:
        """Whether memory of what a purge of everything took out waits for `shed`."""

    def shed(self) -> None:
        """Free a slice of that memory."""

    def note_lost(self, last: int) -> None:
        """Messages up to this sequence may have been lost before the store had them."""

    # -- reading

    @property
    def visible_seq(self) -> int:
        """Readers find messages up to this sequence; acknowledge up to it, too.

        Equal to `durable_seq` where everything is synced before it is seen, equal to `last_seq` in
        memory. In a lazy store it is `last_seq` as long as the sequences reserved on disk last,
        which they do if the edge syncs when `sync_wanted` says so.
        """

    def load(self, seq: int, *, unsynced: bool = False) -> MessageRecord | Missing | Cold:
        """The message of a sequence."""

    def load_last(
        self, subject: str, *, at_or_before: int | None = None, unsynced: bool = False
    ) -> MessageRecord | Missing | Cold:
        """The newest message a filter matches, of those up to and including `at_or_before`."""

    def next_match(
        self, filters: tuple[str, ...], start: int, *, unsynced: bool = False
    ) -> MessageRecord | Cold | None:
        """The first message at or after `start` that some filter matches; None if there is none.

        Passes over damaged messages.
        """

    def num_pending(
        self,
        start: int,
        filters: tuple[str, ...],
        *,
        last_per_subject: bool = False,
        unsynced: bool = False,
    ) -> int:
        """How many messages `next_match` would find one after the other from `start` on.

        A message that several filters match counts once. With `last_per_subject` only the last
        message of every subject counts, if it is at or after `start`.
        """

    def seq_at_time(self, ts_ns: int) -> int:
        """The first live sequence whose message is not older; `last_seq + 1` if there is none."""

    def subject_states(self, pattern: str = ">") -> dict[str, SubjectState]:
        """The state of every subject with live messages that the filter matches."""

    def subject_table(self, pattern: str) -> SubjectTable:
        """An empty table for the subjects with live messages that the filter matches."""

    def fill_table(self, table: SubjectTable) -> bool:
        """Collect SLICE_SUBJECTS of them; whether more are left."""

    def last_of_each(
        self, filters: tuple[str, ...], *, at_or_before: int | None = None
    ) -> array[int]:
        """The newest visible sequence of every subject some filter matches, of those up to and
        including `at_or_before`, in order."""

    def first_since(self, filters: tuple[str, ...], start: int) -> int:
        """The lowest sequence, not below `start`, that is the first of a subject some filter
        matches; 0 if there is none."""

    def next_seq(self, filters: tuple[str, ...], start: int) -> int:
        """The first sequence from `start` on that some filter matches, visible or not; 0: none."""

    def subject_of(self, seq: int) -> str | None:
        """The subject of a live message, visible or not, cold or not; None if there is none."""

    def deleted_seqs(self, at_most: int) -> array[int]:
        """The first sequences that `num_deleted` counts, ascending."""

    def state(self, *, deleted: bool = False) -> StoreState:
        """Totals; with `deleted` also which sequences are gone, which costs their ranges."""

    @property
    def last_seq(self) -> int:
        """The `last_seq` of `state`, for who asks often; the same of the next one."""

    @property
    def last_ts_ns(self) -> int: ...

    @property
    def total_bytes(self) -> int:
        """The `bytes` of `state`, for who asks often."""

    @property
    def loss_floor(self) -> int:
        """The highest sequence whose message was removed while it was the newest of its subject.

        A reader that knows the newest of every subject up to here, and reads on, misses nothing.
        After a crash, damage or a truncation it may be too high, never too low; it never falls."""

    @property
    def losses(self) -> int:
        """How many went as the newest of their subject by request, or while an older one stayed."""

    # -- removing

    def remove(self, seq: int) -> Removed | None:
        """Takes one message out; None if there is none of this sequence."""

    def append_packed(self, packed: bytes, ts_ns: int) -> Removed:
        """Stores messages that are packed (`store.packed`), each as `append` does what is admitted
        and has no lifetime of its own; answers what all of them took out."""

    def remove_span(self, first: int, last: int) -> Removed:
        """Takes every message from the first to the last sequence out; some may be gone already."""

    def erase(self, seq: int) -> Removed | Cold | None:
        """As `remove`, and its bytes are overwritten before the next sync returns."""

    def purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> Removed:
        """Takes out all messages, or those a filter matches, or those below `before_seq`.

        `keep` spares the newest of them, in all, not for each subject. It does not go together
        with `before_seq` (ValueError). Without a filter (None; also ">") a `before_seq` beyond
        `last_seq + 1` makes an empty store that goes on at `before_seq`.
        """

    def begin_purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> PurgeStep:
        """The first step of a purge in slices. Takes nothing out."""

    def purge_slice(self, step: PurgeStep) -> tuple[Removed, PurgeStep | None]:
        """Take out SLICE_MSGS messages at most, or everything at once if nothing is to stay; and
        return the step that follows, None if there is none.

        Between two slices everything else may be called. A message that is appended stays, and so
        do those that `keep` spares as of the beginning.
        """

    def truncate(self, seq: int) -> Removed:
        """Takes out everything above `seq` and goes on at `seq + 1`, as if it had never been.

        The only call after which sequences are given out again. `seq` must not be above
        `last_seq` (ValueError). `last_ts_ns` becomes that of the last message left, or 0.
        """

    def expire(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> Removed:
        """Takes out messages that are due at `now_ns`: deadline or age reached, to the nanosecond.

        Of more than `at_most` it takes that many, and `next_deadline_ns` shows there are others.
        """

    def due(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> tuple[int, ...]:
        """The sequences that `expire` would take out now, ascending. Takes nothing out."""

    def next_deadline_ns(self) -> int | None:
        """When `expire` may find something, or earlier; None if nothing ever falls due."""

    # -- the edge's part

    @property
    def lost(self) -> tuple[Range, ...]:
        """Sequences a power cut took before this store was opened, that nobody was told were
        durable, and that stay unused. What was appended together may have lost a part here."""

    @property
    def durable_seq(self) -> int:
        """Everything up to this sequence, and every removal before it was reached, outlives a
        power cut. Never above `last_seq`; equal to it in a store that has no disk."""

    @property
    def sync_wanted(self) -> bool:
        """Whether something waits for `pending_sync` that should not wait for an interval.

        The edge asks at the end of a turn. A store that syncs always wants it whenever something
        is not durable; a lazy one only when its reserved sequences run short.
        """

    def pending_sync(self, *, write_only: bool = False) -> Syncing | None:
        """What must run for everything done so far to be durable; None if nothing is open.

        At most one is out at a time: the answer is None too until `synced` came. The store has no
        clock: of a lazy one the edge asks this once an interval, and when `sync_wanted`; and at the
        end of every turn with `write_only`, for work that writes without syncing. What has been
        written outlives the process (a kill), not a power cut; it is not durable.
        """

    def synced(self, work: Work, failure: Exception | None = None) -> None:
        """The work of `pending_sync` has run. After a failure the store never becomes durable
        again: every call that writes raises StoreError from then on, reading goes on."""

    def fetch(self, cold: Cold) -> Work:
        """What must run to have a block in memory that an answer was missing."""

    def fetched(self, work: Work) -> None:
        """The work of `fetch` has run: the same question now has an answer, until some turn of
        the owner later the block is dropped again."""

    def close(self) -> None:
        """Writes and syncs what is open (so it may block) and lets go of files. The last call."""
