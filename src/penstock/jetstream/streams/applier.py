"""Applier: the only code that applies entries to a stream.

It rejects nothing: an entry was allowed when it was planned, and applies the same way later or on
another server. Every call returns what it did, including the replies, because sequences are
assigned here. The server sends the replies after the store's sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.shortcuts import Shortcut
from penstock.api.stream_config import STREAM_SHORTCUTS
from penstock.base.effects import Send
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.entries import (
    ROLLUP_SUBJECT,
    Applied,
    BatchEntry,
    Entry,
    Expire,
    Publish,
    Purge,
    Remove,
    Skip,
    Special,
    Trim,
)
from penstock.jetstream.streams.retention import merged, spans_of, together
from penstock.jetstream.streams.source_progress import parse_note
from penstock.jetstream.streams.stream_parts import build_parts
from penstock.store.contract import NOTHING_REMOVED, Appended, Cold, PurgeStep
from penstock.store.index.message_pack import unpacked
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.streams.batches.fast_batch import FastBatches
    from penstock.jetstream.streams.pubacks import PubAcks
    from penstock.jetstream.streams.schedule import Schedules
    from penstock.jetstream.streams.stream_state import PlanState
    from penstock.store.contract import Removed

PLAIN = Special()


class Applier:
    """Changes the plan state, the store and the schedules of one stream."""

    def __init__(
        self, plan_state: PlanState, acks: PubAcks, schedules: Schedules, fast: FastBatches
    ) -> None:
        self._plan_state = plan_state
        self._acks = acks
        self._schedules = schedules
        self._fast = fast
        self._prefix = acks.prefix
        self.configure()

    def configure(self) -> None:
        """Apply the configuration in the plan state."""
        cfg = self._plan_state.cfg
        self._acked = not cfg.no_ack
        self._republisher = self._plan_state.parts.republisher
        self._only_appends = STREAM_SHORTCUTS.allow(cfg, Shortcut.APPLY)

    def apply(self, entry: Entry) -> Applied:
        """Apply one entry."""
        if isinstance(entry, Publish):
            if entry.special is None and self._only_appends:
                return self._store_plain(entry)
            return self._publish(entry)
        if isinstance(entry, BatchEntry):
            return self._store_batch(entry)
        if isinstance(entry, Purge):
            return self._purge(entry)
        if isinstance(entry, Remove):
            return Applied(removed=self._remove(entry))
        if isinstance(entry, Expire):
            return Applied(removed=self._plan_state.store.expire(entry.ts_ns))
        if isinstance(entry, Trim):
            return Applied(removed=self._plan_state.store.trim())
        if isinstance(entry, Skip):
            return self._skip(entry)
        return Applied(removed=self._update(entry.cfg))

    # -- messages

    def _store_plain(self, entry: Publish) -> Applied:
        """Store a plain message: a fast version of `_publish`."""
        plan_state = self._plan_state
        subject = entry.subject
        appended = plan_state.store.append(
            subject, entry.header, entry.payload, entry.ts_ns, admitted=True
        )
        assert type(appended) is Appended
        seq, removed = appended
        plan_state.last_seq = seq
        plan_state.last_ts_ns = entry.ts_ns
        plan_state.last_msg_id = b""
        if entry.reply and self._acked:
            ack = Send(entry.reply, b"%b%d}" % (self._prefix, seq))
            return Applied((ack,), ((seq, subject),), removed)
        return Applied((), ((seq, subject),), removed)

    def _publish(self, entry: Publish) -> Applied:
        special = entry.special or PLAIN
        applied = (
            self._skip_message(entry, special) if special.skip else self._store(entry, special)
        )
        seq = self._plan_state.last_seq
        if special.fast is not None:
            answers = self._fast.stored(special.fast, entry.reply, seq)
        elif not entry.reply or not self._acked:
            answers = ()
        elif special.value and not special.skip:
            answers = (Send(entry.reply, self._acks.counted(seq, special.value)),)
        else:
            answers = (Send(entry.reply, self._acks.stored(seq)),)
        return applied._replace(effects=applied.effects + answers) if answers else applied

    def _skip_message(self, entry: Publish, special: Special) -> Applied:
        """Assign a sequence and apply the rollup, without storing the message: no consumer is
        interested."""
        plan_state = self._plan_state
        seq = plan_state.last_seq + 1
        plan_state.store.skip(seq, seq, entry.ts_ns)
        self._note(seq, entry.ts_ns, special)
        removed, rest = self._roll_up(entry, special, seq + 1)
        return Applied(removed=removed, rolled_up=removed, rest=rest)

    def _store(self, entry: Publish, special: Special) -> Applied:
        plan_state = self._plan_state
        to = self._republisher.destination(entry.subject) if self._republisher else ""
        previous = plan_state.last_of(entry.subject) if to else 0
        appended = plan_state.store.append(
            entry.subject,
            entry.header,
            entry.payload,
            entry.ts_ns,
            seq=special.origin_seq or None,
            ttl_ns=special.ttl_ns,
            admitted=True,
        )
        assert isinstance(appended, Appended)
        seq, removed = appended
        self._note(seq, entry.ts_ns, special)
        rest: tuple[Purge, ...] = ()
        by_limit, rolled = removed, NOTHING_REMOVED
        if special.rollup or special.purged:
            rolled, rest = self._roll_up(entry, special, seq)
            removed = merged(by_limit, rolled)
        if plan_state.cfg.allow_msg_schedules:
            self._schedules.stored(entry.subject, seq, entry.header, entry.ts_ns)
        if plan_state.cfg.sources:
            note = headers.get(entry.header, publish_headers.STREAM_SOURCE)
            ref = parse_note(note) if note else None
            if ref is not None:
                plan_state.sources[ref.index_name] = ref
        effects: tuple[Send, ...] = ()
        if to and self._republisher is not None:
            effects = (
                self._republisher.copy(
                    to,
                    entry.subject,
                    entry.header,
                    entry.payload,
                    seq=seq,
                    ts_ns=entry.ts_ns,
                    previous_seq=previous,
                ),
            )
        return Applied(
            effects, ((seq, entry.subject),), removed, by_limit, rolled_up=rolled, rest=rest
        )

    def _note(self, seq: int, ts_ns: int, special: Special) -> None:
        plan_state = self._plan_state
        plan_state.last_seq = seq
        plan_state.last_ts_ns = ts_ns
        plan_state.last_msg_id = special.msg_id
        if special.msg_id:
            plan_state.dedupe.add(special.msg_id, seq, ts_ns)

    def _roll_up(
        self, entry: Publish, special: Special, before_seq: int
    ) -> tuple[Removed, tuple[Purge, ...]]:
        """Remove one slice of what the message replaces; return it and the remaining slices."""
        removed, rest, purges = NOTHING_REMOVED, list[Purge](), list[Purge]()
        if special.rollup:
            pattern = entry.subject if special.rollup == ROLLUP_SUBJECT else ""
            purges.append(Purge(entry.ts_ns, pattern, before_seq))
        if special.purged:
            purges.append(Purge(entry.ts_ns, special.purged, self._plan_state.store.last_seq + 1))
        for purge in purges:
            applied = self._purge(purge)
            removed = merged(removed, applied.removed)
            rest += applied.rest
        return removed, tuple(rest)

    def _store_batch(self, entry: BatchEntry) -> Applied:
        effects: list[Send] = []
        stored: list[tuple[int, str]] = []
        items = entry.items
        is_bulk = bool(entry.packed) and self._only_appends
        rest: tuple[Purge, ...] = ()
        removed = NOTHING_REMOVED
        if is_bulk:
            removed = self._store_packed(entry)
        elif entry.packed:
            items = (*_publishes(entry), *items)
        for item in items:
            is_plain = item.special is None and self._only_appends
            applied = self._store_plain(item) if is_plain else self._publish(item)
            effects += applied.effects
            stored += applied.stored
            rest += applied.rest
            if applied.removed.msgs:
                removed = merged(removed, applied.removed)
        if entry.reply and self._acked:
            ack = self._acks.committed(self._plan_state.last_seq, entry.id, entry.count)
            effects.append(Send(entry.reply, ack))
        return Applied(tuple(effects), tuple(stored), removed, is_bulk=is_bulk, rest=rest)

    def _store_packed(self, entry: BatchEntry) -> Removed:
        """Store the packed messages, as `_store_plain` does for each."""
        plan_state = self._plan_state
        removed = plan_state.store.append_packed(entry.packed, entry.ts_ns)
        plan_state.reread_end()
        plan_state.last_msg_id = b""
        return removed

    # -- everything else

    def _purge(self, entry: Purge) -> Applied:
        plan_state, subject = self._plan_state, entry.subject or None
        if entry.bound:
            step = PurgeStep(subject, entry.bound, entry.keep, entry.start)
        else:
            step = plan_state.store.begin_purge(
                subject=subject, before_seq=entry.before_seq or None, keep=entry.keep
            )
        removed, following = plan_state.store.purge_slice(step)
        # A purge up to a sequence after the last one advances the stream's last sequence.
        plan_state.last_seq = plan_state.store.last_seq
        if following is None:
            return Applied(removed=removed)
        rest = Purge(
            entry.ts_ns,
            entry.subject,
            entry.before_seq,
            following.keep,
            following.bound,
            following.start,
        )
        return Applied(removed=removed, rest=(rest,))

    def _remove(self, entry: Remove) -> Removed:
        store = self._plan_state.store
        if not entry.erase:
            return together([store.remove_span(*span) for span in spans_of(entry.seqs)])
        removed = NOTHING_REMOVED
        for seq in entry.seqs:
            erased = store.erase(seq)
            if isinstance(erased, Cold):
                # The block was in memory when this was planned. If it no longer is, remove the
                # message without overwriting it.
                erased = store.remove(seq)
            if erased is not None:
                removed = merged(removed, erased)
        return removed

    def _skip(self, entry: Skip) -> Applied:
        plan_state = self._plan_state
        first, last = entry.seqs
        plan_state.store.skip(first, last, entry.ts_ns)
        plan_state.last_seq = last
        plan_state.last_ts_ns = entry.ts_ns
        return Applied()

    def _update(self, cfg: StreamConfig) -> Removed:
        plan_state, parts = self._plan_state, build_parts(cfg)
        plan_state.configure(cfg, parts)
        plan_state.dedupe.window_ns = cfg.duplicate_window
        self.configure()
        plan_state.store.change_limits(parts.limits)
        return plan_state.store.trim()


def _publishes(entry: BatchEntry) -> tuple[Publish, ...]:
    """Return the packed messages of a batch as single entries."""
    return tuple(Publish(entry.ts_ns, *message) for message in unpacked(entry.packed))
