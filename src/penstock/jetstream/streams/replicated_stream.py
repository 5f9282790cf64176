"""A stream whose entries are applied later than they are planned.

It plans over the applied state with the entries in flight on top (`proposed_state`). A plan that
cannot be made yet is `NotApplied`. The caller reports every entry it proposes with `proposed`, in
order; `apply` takes an own entry off with `is_own`; `drop_proposed` forgets all that are in flight.
Invariant: planning over entries in flight gives the plan that planning after them would give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jetstream.streams.entries import NOT_APPLIED, NotApplied
from penstock.jetstream.streams.proposed_state import AwaitsApply, ProposedState
from penstock.jetstream.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.message import Inbound
    from penstock.jetstream.streams.entries import Applied, Entry, NotLoaded, Planned, Remove
    from penstock.jetstream.streams.source_progress import Progress
    from penstock.jetstream.streams.stream_state import PlanState


class ReplicatedStream(Stream):
    """One stream of a group that decides its entries together."""

    def _view(self, applied: PlanState) -> PlanState:
        self._proposed = ProposedState(applied)
        return self._proposed

    def proposed(self, entry: Entry) -> None:
        """Plan over this entry from now on."""
        self._proposed.proposed(entry)

    def apply(self, entry: Entry, *, is_own: bool = False) -> Applied:
        """Apply an entry; `is_own` if it was reported to `proposed`."""
        applied = super().apply(entry)
        if is_own:
            self._proposed.applied()
        return applied

    def drop_proposed(self) -> None:
        """Forget the entries in flight, and the batches that are not complete."""
        self._proposed.clear()
        self.close()

    # -- plans

    def plan(self, msg: Inbound, now_ns: int) -> Planned:
        try:
            self._proposed.require_plannable()
            return super().plan(msg, now_ns)
        except AwaitsApply:
            return NOT_APPLIED

    def plan_copy(self, msg: Inbound, seq: int, source: Progress, now_ns: int) -> Planned:
        try:
            self._proposed.require_plannable()
            return super().plan_copy(msg, seq, source, now_ns)
        except AwaitsApply:
            return NOT_APPLIED

    def plan_mirrored(self, msg: Inbound, seq: int, ts_ns: int, origin: Progress) -> Planned:
        try:
            self._proposed.require_plannable()
            return super().plan_mirrored(msg, seq, ts_ns, origin)
        except AwaitsApply:
            return NOT_APPLIED

    def plan_remove(
        self, seq: int, now_ns: int, *, erase: bool = True
    ) -> Remove | NotLoaded | NotApplied | ApiError:
        try:
            self._proposed.require_applied()
            return super().plan_remove(seq, now_ns, erase=erase)
        except AwaitsApply:
            return NOT_APPLIED
