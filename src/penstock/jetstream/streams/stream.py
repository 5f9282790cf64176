"""One stream: messages and requests in, entries out; entries in, changes and answers out.

`plan` reads and decides, `apply` changes and cannot refuse; between the two an entry may be
written down or sent to others. Time is an argument, and what must happen later is asked for by
`next_deadline_ns` and made by `tick`. A stream knows no consumers: it tells what it stored and
what it lost, and asks whether anybody wants a subject.

Only the ordinary message is handled here, because it must be cheap: everything else has its own
module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.stream_config import Discard, Retention, Storage, StreamState
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.applier import Applier
from penstock.jetstream.streams.batches.atomic_batch import AtomicBatches, BatchLimits
from penstock.jetstream.streams.batches.fast_batch import SUFFIX, FastBatches
from penstock.jetstream.streams.batches.staged_batches import InFlight
from penstock.jetstream.streams.dedupe import DuplicateWindow
from penstock.jetstream.streams.entries import (
    Applied,
    Due,
    Entry,
    NotLoaded,
    Planned,
    Publish,
    Purge,
    Remove,
    Update,
)
from penstock.jetstream.streams.expiry import StreamExpiry
from penstock.jetstream.streams.planner import Planner
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.jetstream.streams.schedule import Schedules
from penstock.jetstream.streams.source_progress import copied_header, mirrored_header
from penstock.jetstream.streams.stream_parts import build_parts
from penstock.jetstream.streams.stream_recovery import recovery_steps, source_steps
from penstock.jetstream.streams.stream_state import PlanState
from penstock.store.contract import Cold, Missing
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.api.refusals import ApiError
    from penstock.api.request_bodies import PurgeRequest
    from penstock.api.stream_config import StreamConfig
    from penstock.base.effects import Send
    from penstock.base.message import Inbound
    from penstock.jetstream.streams.batches.staged_batches import Gatherings
    from penstock.jetstream.streams.source_progress import Progress, SourceRef
    from penstock.store.contract import Store

MAX_PAYLOAD_DEFAULT: Final = 1_048_576


def nobody_is_asked(subject: str) -> bool:
    """Interest in a subject, for a stream whose retention does not ask for it."""
    return True


class Stream:
    """One stream and its store. The configuration is complete and checked before it comes here."""

    def __init__(
        self,
        cfg: StreamConfig,
        store: Store,
        *,
        created_ns: int,
        domain: str = "",
        has_interest: Callable[[str], bool] = nobody_is_asked,
        may_store: Callable[[int], ApiError | None] | None = None,
        max_payload: int = MAX_PAYLOAD_DEFAULT,
        batch_limits: BatchLimits | None = None,
        in_flight: InFlight | None = None,
    ) -> None:
        """`has_interest` says whether some consumer wants a subject; it is asked for interest
        retention only. `may_store` says why account or server have no room for so many bytes.
        Streams of one server share `in_flight`."""
        self.created_ns: Final = created_ns
        self.store: Final = store
        dedupe = DuplicateWindow(cfg.duplicate_window)
        self._ledger = PlanState(cfg, store, dedupe, has_interest, may_store, max_payload)
        self._acks = PubAcks(cfg.name, domain)
        self._schedules = Schedules()
        self._planner = Planner(self._ledger, self._acks)
        limits, shared = batch_limits or BatchLimits(), in_flight or InFlight()
        self._atomic = AtomicBatches(self._ledger, self._planner, limits, shared)
        self._fast = FastBatches(self._ledger, self._planner, self._acks, limits, shared)
        self._applier = Applier(self._ledger, self._acks, self._schedules, self._fast)
        self._timing = StreamExpiry(self._ledger, self._planner, self._schedules)
        self._recovery: Iterator[Cold] | None = None
        # Shows its first sequence although it has no message: it was purged, or was given the 1.
        self._begun = cfg.first_seq == 1
        self._configure()

    @property
    def cfg(self) -> StreamConfig:
        """The configuration in force."""
        return self._ledger.cfg

    @property
    def last_seq(self) -> int:
        """The last sequence given out."""
        return self._ledger.last_seq

    @property
    def last_ts_ns(self) -> int:
        """The time of the last message."""
        return self._ledger.last_ts_ns

    @property
    def ids(self) -> DuplicateWindow:
        """The ids it has seen lately: a lane that stores messages notes theirs here."""
        return self._ledger.dedupe

    @property
    def gatherings(self) -> Gatherings:
        """Its batches under way: a lane that meets messages of theirs puts them here."""
        return self._atomic.gatherings

    @property
    def is_timeless(self) -> bool:
        """Whether nothing in it waits for any time, and nothing will that is ordinary."""
        return self._is_timeless and not self._ledger.dedupe

    def _configure(self) -> None:
        cfg = self._ledger.cfg
        self._is_timeless = not (
            cfg.max_age
            or cfg.allow_msg_ttl
            or cfg.allow_msg_schedules
            or cfg.allow_atomic
            or cfg.allow_batched
        )
        self._is_plain = not (
            cfg.sealed
            or cfg.allow_msg_counter
            or cfg.subject_transform
            or cfg.retention is Retention.INTEREST
            or cfg.discard is Discard.NEW
        )
        self._payload_max = cfg.max_msg_size if cfg.max_msg_size > 0 else 2**63

    # -- messages

    def plan(self, msg: Inbound, now_ns: int) -> Planned:
        """What a published message leads to. Changes nothing but batches under way."""
        subject, reply, header, payload = msg
        if header or not self._is_plain or reply[-4:] == SUFFIX:
            return self._plan_special(msg, now_ns)
        if len(payload) > self._payload_max or self._ledger.is_used_up(1):
            return self._planner.plan(subject, reply, header, payload, now_ns)
        ledger = self._ledger
        if ledger.may_store is not None:
            refused = ledger.may_store(ledger.size_of(subject, header, payload))
            if refused is not None:
                return self._planner.answer(refused, reply)
        last_ts_ns = ledger.last_ts_ns
        ts_ns = now_ns if now_ns > last_ts_ns else last_ts_ns
        return Publish(ts_ns, subject, b"", payload, reply)

    def _plan_special(self, msg: Inbound, now_ns: int) -> Planned:
        subject, reply, header, payload = msg
        if header:
            header = headers.without_status(header)
            if header is not msg.header:
                msg = msg._replace(header=header)
        if reply[-4:] == SUFFIX:
            return self._fast.plan(msg, now_ns)
        if publish_headers.SPECIAL_PREFIX in header:
            batch_id = headers.get(header, publish_headers.BATCH_ID)
            if batch_id:
                return self._atomic.plan(batch_id, msg, now_ns)
        return self._planner.plan(subject, reply, header, payload, now_ns)

    def stored_subject(self, subject: str) -> str:
        """Return the subject that a message published on this one is stored under."""
        return self._planner.stored_subject(subject)

    def pass_over(self, planned: Publish) -> tuple[Send, ...]:
        """Forget a planned message; returns what its publisher hears if it is of a fast batch."""
        mark = planned.special.fast if planned.special is not None else None
        return self._fast.passed_over(mark) if mark is not None else ()

    def plan_copy(self, msg: Inbound, seq: int, source: Progress, now_ns: int) -> Planned:
        """What a message of a source leads to; it has this sequence at its origin."""
        header = copied_header(msg.header, source.note(seq, msg.subject))
        subject = source.subject(msg.subject)
        return self._planner.plan(subject, "", header, msg.payload, now_ns, is_internal=True)

    def plan_mirrored(self, msg: Inbound, seq: int, ts_ns: int, origin: Progress) -> Planned:
        """What a message of the origin leads to: it keeps its sequence and its time here."""
        subject = origin.subject(msg.subject)
        header = mirrored_header(msg.header)
        return self._planner.plan_mirrored(subject, header, msg.payload, seq, ts_ns)

    def source_ref(self, index_name: str) -> SourceRef | None:
        """The newest message copied from a source, by the source's index name."""
        return self._ledger.sources.get(index_name)

    @property
    def known_sources(self) -> dict[str, SourceRef]:
        """The newest message copied from each source, whether configured now or not."""
        return self._ledger.sources

    def recall_sources(self, refs: dict[str, SourceRef], seq: int) -> None:
        """Before `recover`: how far sources had come when this was the last sequence."""
        self._ledger.sources.update(refs)
        self._ledger.recalled_seq = seq

    def copied(self, ref: SourceRef) -> None:
        """A lane has stored messages of a source, up to this one."""
        self._ledger.sources[ref.index_name] = ref

    def passed_by_lane(self) -> None:
        """Messages were stored that `apply` did not see: ordinary ones."""
        self._ledger.look_again()

    # -- requests

    def plan_purge(self, request: PurgeRequest, now_ns: int) -> Purge | ApiError:
        """A purge, if the stream allows it."""
        cfg = self._ledger.cfg
        if request.seq and request.keep:
            return refusals.BAD_REQUEST
        if cfg.sealed:
            return refusals.STREAM_SEALED
        if cfg.deny_purge:
            return refusals.STREAM_PURGE_FAILED(err="stream purge not permitted")
        if request.seq > SEQ_MAX:
            return refusals.STREAM_PURGE_FAILED(err=f"sequence is larger than {SEQ_MAX}")
        return Purge(now_ns, request.filter, request.seq, request.keep)

    def plan_remove(
        self, seq: int, now_ns: int, *, erase: bool = True
    ) -> Remove | NotLoaded | ApiError:
        """The deletion of one message, if the stream allows it and has it."""
        cfg = self._ledger.cfg
        if cfg.sealed:
            return refusals.STREAM_SEALED
        if cfg.deny_delete:
            return refusals.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")
        found = self.store.load(seq, unsynced=True)
        if isinstance(found, Cold):
            return NotLoaded(found)
        if isinstance(found, Missing):
            return self._nothing_to_remove(seq)
        return Remove(now_ns, (seq,), erase)

    def _nothing_to_remove(self, seq: int) -> ApiError:
        """In the words of the reference, whose two stores do not agree."""
        if self.cfg.storage is Storage.FILE and seq > self._ledger.last_seq:
            return refusals.STREAM_MSG_DELETE_FAILED(err="stream store EOF")
        if self.cfg.storage is Storage.FILE and seq < self.store.state().first_seq:
            return refusals.STREAM_MSG_DELETE_FAILED(err="no message found")
        return refusals.SEQUENCE_NOT_FOUND(seq=seq)

    def plan_update(self, cfg: StreamConfig, now_ns: int) -> Update:
        """Another configuration, complete and checked against the present one.

        Raises if it cannot be put into force: it must not be written down then.
        """
        build_parts(cfg)
        return Update(now_ns, cfg)

    # -- changes

    def apply(self, entry: Entry) -> Applied:
        """Carries out an entry. Entries are applied in the order they were planned."""
        applied = self._applier.apply(entry)
        if type(entry) is Update:
            self._reconfigure()
        elif type(entry) is Purge:
            self._begun |= entry.is_of_all
        return applied

    def _reconfigure(self) -> None:
        cfg = self._ledger.cfg
        self._planner.configure()
        self._configure()
        self._recovery = source_steps(self._ledger)
        self._atomic.reconfigured()
        if not cfg.allow_batched:
            self._fast.clear()

    # -- time

    def tick(self, now_ns: int) -> Due:
        """What is due at this time: apply the entries, in this order, and perform the effects."""
        effects = self._atomic.expire(now_ns)
        self._fast.expire(now_ns)
        due = self._timing.tick(now_ns)
        return due._replace(effects=effects + due.effects) if effects else due

    def next_deadline_ns(self) -> int | None:
        """When to call `tick` next, at the latest; None if nothing will ever be due."""
        deadlines = (
            self._timing.next_deadline_ns(),
            self._atomic.next_deadline_ns(),
            self._fast.next_deadline_ns(),
        )
        return min((at for at in deadlines if at is not None), default=None)

    def recover(self, now_ns: int) -> Cold | None:
        """Reads from the store what a stream keeps in memory. Call before anything else, and
        after an update that adds sources, again and again: each time it answers the block it
        needs, at last None."""
        if self._recovery is None:
            self._recovery = recovery_steps(self._ledger, self._schedules, now_ns)
        return next(self._recovery, None)

    def close(self) -> None:
        """Batches under way are forgotten. The store is the caller's."""
        self._atomic.clear()
        self._fast.clear()

    # -- what it holds

    def state(self, *, consumers: int = 0) -> StreamState:
        """Totals for the API."""
        state = self.store.state()
        # A stream that never had a message reports no first sequence, unless it was given one.
        is_new = state.last_seq == 0 and not self._begun
        return StreamState(
            messages=state.msgs,
            bytes=state.bytes,
            first_seq=0 if is_new else state.first_seq,
            first_ts=state.first_ts_ns,
            last_seq=state.last_seq,
            last_ts=state.last_ts_ns,
            num_subjects=state.num_subjects,
            num_deleted=state.num_deleted,
            consumer_count=consumers,
        )
