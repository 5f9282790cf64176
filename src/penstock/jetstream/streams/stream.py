"""One stream: plans messages and requests into entries, and applies entries to its store.

`plan` reads and decides; `apply` changes state and rejects nothing. Between the two an entry may be
stored or sent to other servers. The caller passes the time, calls `tick` at `next_deadline_ns`, and
applies entries in the order they were planned. A stream does not know its consumers: it reports
what it stored and removed, and calls `has_interest` for a subject.

Only plain messages are handled here, because they must be cheap. Everything else has its own
module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.shortcuts import Shortcut
from penstock.api.stream_config import STREAM_SHORTCUTS, Storage, StreamState
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
    NotApplied,
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
    from penstock.jetstream.streams.batches.staged_batches import StagedBatches
    from penstock.jetstream.streams.source_progress import Progress, SourceRef
    from penstock.store.contract import Store

MAX_PAYLOAD_DEFAULT: Final = 1_048_576


def always_interested(subject: str) -> bool:
    """Default `has_interest`: every subject has interest. For streams without interest
    retention."""
    return True


class Stream:
    """One stream and its store. The caller passes a complete and checked configuration."""

    def __init__(
        self,
        cfg: StreamConfig,
        store: Store,
        *,
        created_ns: int,
        domain: str = "",
        has_interest: Callable[[str], bool] = always_interested,
        may_store: Callable[[int], ApiError | None] | None = None,
        max_payload: int = MAX_PAYLOAD_DEFAULT,
        batch_limits: BatchLimits | None = None,
        in_flight: InFlight | None = None,
    ) -> None:
        """`has_interest` returns whether a consumer wants a subject; it is called for interest
        retention only. `may_store` returns an error if the account or the server has no room for
        this many bytes. All streams of one server share `in_flight`."""
        self.created_ns: Final = created_ns
        self.store: Final = store
        dedupe = DuplicateWindow(cfg.duplicate_window)
        self._applied = PlanState(cfg, store, dedupe, has_interest, may_store, max_payload)
        self._plan_state = self._view(self._applied)
        self._acks = PubAcks(cfg.name, domain)
        self._schedules = Schedules()
        self._planner = Planner(self._plan_state, self._acks)
        limits, shared = batch_limits or BatchLimits(), in_flight or InFlight()
        self._atomic = AtomicBatches(self._plan_state, self._planner, limits, shared)
        self._fast = FastBatches(self._plan_state, self._planner, self._acks, limits, shared)
        self._applier = Applier(self._applied, self._acks, self._schedules, self._fast)
        self._timing = StreamExpiry(self._plan_state, self._planner, self._schedules)
        self._recovery: Iterator[Cold] | None = None
        # Report a first sequence even without messages: the stream was purged, or configured to
        # start at 1.
        self._begun = cfg.first_seq == 1
        self._configure()

    def _view(self, applied: PlanState) -> PlanState:
        """Return the state to plan over: the applied one, since entries are applied at once."""
        return applied

    @property
    def cfg(self) -> StreamConfig:
        """The configuration in effect."""
        return self._plan_state.cfg

    @property
    def last_seq(self) -> int:
        """The last assigned sequence."""
        return self._applied.last_seq

    @property
    def planned_seq(self) -> int:
        """The last sequence that a planned message has or will have."""
        return self._plan_state.last_seq

    @property
    def last_ts_ns(self) -> int:
        """The timestamp of the last message."""
        return self._applied.last_ts_ns

    @property
    def ids(self) -> DuplicateWindow:
        """The recent message ids; the fast lane records the ids of its messages here."""
        return self._plan_state.dedupe

    @property
    def staged_batches(self) -> StagedBatches:
        """The staged atomic batches; the fast lane adds messages of batches here."""
        return self._atomic.staged_batches

    @property
    def is_timeless(self) -> bool:
        """Return whether no deadline is pending and no plain message can create one."""
        return self._is_timeless and not self._plan_state.dedupe

    def _configure(self) -> None:
        cfg = self._plan_state.cfg
        forbidden = STREAM_SHORTCUTS.forbidden(cfg)
        self._is_timeless = Shortcut.TIMELESS not in forbidden
        self._needs_checks = Shortcut.PLAN in forbidden
        self._payload_max = cfg.max_msg_size if cfg.max_msg_size > 0 else 2**63

    # -- messages

    def plan(self, msg: Inbound, now_ns: int) -> Planned:
        """Return the plan of a published message. Changes only batches in flight."""
        subject, reply, header, payload = msg
        if header or self._needs_checks or reply[-4:] == SUFFIX:
            return self._plan_special(msg, now_ns)
        if len(payload) > self._payload_max or self._plan_state.is_used_up(1):
            return self._planner.plan(subject, reply, header, payload, now_ns)
        plan_state = self._plan_state
        if plan_state.may_store is not None:
            refused = plan_state.may_store(plan_state.size_of(subject, header, payload))
            if refused is not None:
                return self._planner.answer(refused, reply)
        last_ts_ns = plan_state.last_ts_ns
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

    def drop_planned(self, planned: Publish) -> tuple[Send, ...]:
        """Drop a planned message; return the replies to its publisher if it is of a fast batch."""
        mark = planned.special.fast if planned.special is not None else None
        return self._fast.skipped(mark) if mark is not None else ()

    def plan_copy(self, msg: Inbound, seq: int, source: Progress, now_ns: int) -> Planned:
        """Return the plan of a message from a source; `seq` is its sequence at the origin."""
        header = copied_header(msg.header, source.note(seq, msg.subject))
        subject = source.subject(msg.subject)
        return self._planner.plan(subject, "", header, msg.payload, now_ns, is_internal=True)

    def plan_mirrored(self, msg: Inbound, seq: int, ts_ns: int, origin: Progress) -> Planned:
        """Return the plan of a message from a mirror's origin; it keeps its sequence and time."""
        subject = origin.subject(msg.subject)
        header = mirrored_header(msg.header)
        return self._planner.plan_mirrored(subject, header, msg.payload, seq, ts_ns)

    def source_ref(self, index_name: str) -> SourceRef | None:
        """Return the newest message copied from a source, by the source's index name."""
        return self._plan_state.sources.get(index_name)

    @property
    def known_sources(self) -> dict[str, SourceRef]:
        """The newest message copied from each source, configured or not."""
        return self._plan_state.sources

    def set_source_positions(self, refs: dict[str, SourceRef], seq: int) -> None:
        """Set the source positions known when `seq` was the last sequence. Call before
        `recover`."""
        self._applied.sources.update(refs)
        self._applied.recalled_seq = seq

    def copied(self, ref: SourceRef) -> None:
        """Record that a lane has stored messages of a source, up to this one."""
        self._applied.sources[ref.index_name] = ref

    def lane_appended(self) -> None:
        """Reread the store's end: a lane stored plain messages without `apply`."""
        self._applied.reread_end()

    # -- requests

    def plan_purge(self, request: PurgeRequest, now_ns: int) -> Purge | ApiError:
        """Return a purge, or an error if the stream does not allow it."""
        cfg = self._plan_state.cfg
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
    ) -> Remove | NotLoaded | NotApplied | ApiError:
        """Return the deletion of one message, or an error if the stream does not allow it or lacks
        the message."""
        cfg = self._plan_state.cfg
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
        """Return the reference's error text, which differs between its two stores."""
        if self.cfg.storage is Storage.FILE and seq > self._plan_state.last_seq:
            return refusals.STREAM_MSG_DELETE_FAILED(err="stream store EOF")
        if self.cfg.storage is Storage.FILE and seq < self.store.state().first_seq:
            return refusals.STREAM_MSG_DELETE_FAILED(err="no message found")
        return refusals.SEQUENCE_NOT_FOUND(seq=seq)

    def plan_update(self, cfg: StreamConfig, now_ns: int) -> Update:
        """Return the change to a new configuration, complete and checked against the current one.

        Raises if it cannot take effect; the caller must not store it then.
        """
        build_parts(cfg)
        return Update(now_ns, cfg)

    # -- changes

    def apply(self, entry: Entry) -> Applied:
        """Apply an entry. Entries are applied in the order they were planned."""
        applied = self._applier.apply(entry)
        if type(entry) is Update:
            self._reconfigure()
        elif type(entry) is Purge:
            self._begun |= entry.is_of_all
        return applied

    def _reconfigure(self) -> None:
        cfg = self._plan_state.cfg
        self._planner.configure()
        self._configure()
        self._recovery = source_steps(self._applied)
        self._atomic.reconfigured()
        if not cfg.allow_batched:
            self._fast.clear()

    # -- time

    def tick(self, now_ns: int) -> Due:
        """Return what is due: the caller applies the entries in order and performs the effects."""
        effects = self._atomic.expire(now_ns)
        self._fast.expire(now_ns)
        due = self._timing.tick(now_ns)
        return due._replace(effects=effects + due.effects) if effects else due

    def next_deadline_ns(self) -> int | None:
        """Return when to call `tick` next, at the latest; None if nothing is pending."""
        deadlines = (
            self._timing.next_deadline_ns(),
            self._atomic.next_deadline_ns(),
            self._fast.next_deadline_ns(),
        )
        return min((at for at in deadlines if at is not None), default=None)

    def recover(self, now_ns: int) -> Cold | None:
        """Read the in-memory state from the store. Call it before anything else, and after an
        update that adds sources; repeat until it returns None. Each other result is a block to load
        first."""
        if self._recovery is None:
            self._recovery = recovery_steps(self._applied, self._schedules, now_ns)
        return next(self._recovery, None)

    def close(self) -> None:
        """Drop batches in flight. The caller closes the store."""
        self._atomic.clear()
        self._fast.clear()

    # -- info

    def state(self, *, consumers: int = 0) -> StreamState:
        """Return the totals for the API."""
        state = self.store.state()
        # A stream that never had a message reports no first sequence, unless one was configured.
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
