"""Proposes the entries of one stream, and passes on what each did when it is applied.

With one replica an entry is applied before `propose` returns. Invariant: what an entry did is
reported once, from its result: to its proposal if it has one, else to the host (replies, stored
messages, removals). A store that fails while an entry is applied is reported the same way, so no
caller handles it. `StreamHost` calls `propose`; the replicator calls `apply`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api import refusals
from penstock.base.effects import Send
from penstock.jetstream.host.replicator import LocalReplicator
from penstock.jetstream.streams.entries import ROLLUP_SUBJECT, BatchEntry, Publish
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.store.contract import NOTHING_REMOVED
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from penstock.jetstream.host.replicator import Proposal, Replicator
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import Applied, Entry


class Proposals:
    """The entries of one host on their way to its stream."""

    __slots__ = ("_host", "_replicator", "_stream")

    def __init__(self, host: StreamHost) -> None:
        self._host = host
        self._stream = host.stream
        self._replicator: Replicator[Entry] = LocalReplicator(self.apply)

    def propose(self, entry: Entry, proposal: Proposal | None = None) -> None:
        """Have an entry applied, now or later; the proposal gets the outcome."""
        self._replicator.propose(entry, proposal)

    def apply(self, entry: Entry, proposal: Proposal | None) -> None:
        """Apply an entry that is decided, and report its result."""
        try:
            applied = self._stream.apply(entry)
        except StoreError as error:
            self._failed(entry, proposal, error)
            return
        if proposal is not None:  # it also reports what the entry removed
            proposal.applied(applied)
            return
        host = self._host
        if type(entry) is Publish and entry.special is not None and entry.special.rollup:
            applied = self._report_rollup(entry, applied)
        if applied.rest:  # the reply follows the last slice
            host.chores.roll_up(applied.rest, applied.effects)
            applied = applied._replace(effects=())
        host.report_applied(applied)

    def _report_rollup(self, entry: Publish, applied: Applied) -> Applied:
        """Report the removals of a rollup, which consumers see as purged; return the rest."""
        host = self._host
        subject = entry.subject if entry.special.rollup == ROLLUP_SUBJECT else None  # type: ignore[union-attr]
        if applied.by_limit.msgs:
            host.report_removed(applied.by_limit)
        is_single = applied.rolled_up.msgs == 1 and not applied.rest
        host.report_purged(subject, applied.rolled_up, entry.ts_ns, is_single=is_single)
        return applied._replace(removed=NOTHING_REMOVED)

    def _failed(self, entry: Entry, proposal: Proposal | None, error: StoreError) -> None:
        """Report that the store failed to the proposal or the publisher."""
        self._host.broken(error)
        if proposal is not None:
            proposal.dropped(error)
        elif isinstance(entry, Publish | BatchEntry) and entry.reply:
            refusal = PubAcks(self._host.name).refused(refusals.STREAM_STORE_FAILED(err=str(error)))
            self._host.send((Send(entry.reply, refusal),))
