"""Every store goes through the same random life as the model, and always answers as it does.

Small limits, few subjects and small blocks, so that limits bite, subjects fill up and blocks come
and go. In between the store is synced, closed and opened, or its power is cut; none of it may show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.store import StoreModel
from penstock.store.contract import TTL_NEVER, Appended, Limits
from support.stores import KINDS, Driven, Step, covered

if TYPE_CHECKING:
    from penstock.store.contract import Removed
    from support.stores import Kind

SECOND = 1_000_000_000
GAP_MAX = 5000
EXAMPLES = 40
STEPS = 30

subjects = st.sampled_from(["a", "b", "a.b", "a.c", "a.b.c", "b.c"])
patterns = st.sampled_from(["a", "a.*", "a.>", "*.b", ">", "*", "b.c", "x.y", "*.*.c"])
filters = st.lists(patterns, max_size=3).map(tuple)
headers = st.sampled_from([b"", b"", b"NATS/1.0\r\nK: v\r\n\r\n"])
payloads = st.sampled_from([b"", b"m", b"m" * 40, b"m" * 700])
few = st.sampled_from([-1, -1, 1, 2, 4, 9])


def limited(discard: tuple[bool, bool], **maxima: int) -> Limits:
    return Limits(**maxima, discard_new=discard[0], discard_new_per_subject=discard[1])


limits = st.builds(
    limited,
    discard=st.sampled_from([(False, False), (True, False), (True, True)]),
    msgs_max=few,
    bytes_max=st.sampled_from([-1, -1, 60, 200, 1500]),
    age_ns_max=st.sampled_from([0, 0, 3 * SECOND, 20 * SECOND + 1]),
    per_subject_max=few,
)
ttls = st.sampled_from([0, 0, 0, TTL_NEVER, 1, SECOND, 7 * SECOND + 3])
pauses = st.sampled_from([0, 1, SECOND // 3, 2 * SECOND])
gaps = st.sampled_from([0, 0, 0, 0, 1, 9, GAP_MAX])
places = st.floats(0, 1.1)


class Lives(RuleBasedStateMachine):
    """A store and the model, told and asked alike."""

    kind: Kind
    store: Driven | None = None

    @initialize(limits=limits, first_seq=st.sampled_from([1, 1, 100]))
    def start(self, limits: Limits, first_seq: int) -> None:
        self.store = self.kind.make(limits, first_seq=first_seq)
        as_file = self.store.place.counts_as_file
        self.model = StoreModel(limits, first_seq=first_seq, counts_as_file=as_file)
        self.now = 50 * SECOND

    def at(self, place: float) -> int:
        """A sequence, most often one that was given out, sometimes a bit beyond."""
        low = max(self.model.first_seq - 3, 0)
        return low + int(place * (self.model.last_seq - low + 1))

    def live_at(self, place: float) -> int:
        live = self.model.live() or [0]
        return live[min(int(place * len(live)), len(live) - 1)]

    def removed_alike(self, ours: Removed | None, models: Removed | None) -> None:
        if ours is None or models is None:
            assert ours is models
            return
        assert (ours.msgs, ours.bytes) == (models.msgs, models.bytes)
        assert covered(models) <= covered(ours)
        assert covered(ours).isdisjoint(self.model.kept)

    def both(self, name: str, *args: Any, **named: Any) -> None:
        """A call that answers what was removed."""
        ours = getattr(self.store, name)(*args, **named)
        self.removed_alike(ours, getattr(self.model, name)(*args, **named))

    # -- changing

    @rule(
        subject=subjects,
        header=headers,
        payload=payloads,
        pause=pauses,
        gap=gaps,
        ttl_ns=ttls,
        n=st.integers(1, 5),
    )
    def append(
        self, subject: str, header: bytes, payload: bytes, pause: int, gap: int, ttl_ns: int, n: int
    ) -> None:
        for _ in range(n):
            self.now += pause
            seq = self.model.last_seq + 1 + gap if gap else None
            message = (subject, header, payload, self.now)
            ours = self.store.append(*message, seq=seq, ttl_ns=ttl_ns)
            models = self.model.append(*message, seq=seq, ttl_ns=ttl_ns)
            if not isinstance(models, Appended):
                assert ours is models
                return
            assert ours.seq == models.seq
            self.removed_alike(ours.removed, models.removed)

    @rule(width=st.integers(1, 30), pause=pauses)
    def skip(self, width: int, pause: int) -> None:
        self.now += pause
        first = self.model.last_seq + 1
        for store in (self.store, self.model):
            store.skip(first, first + width - 1, self.now)

    @rule(limits=limits)
    def set_limits(self, limits: Limits) -> None:
        self.both("set_limits", limits)

    @rule(place=places, n=st.integers(1, 4), call=st.sampled_from(["remove", "erase"]))
    def remove(self, place: float, n: int, call: str) -> None:
        for _ in range(n):
            self.both(call, self.live_at(place))

    @rule(place=places)
    def remove_any(self, place: float) -> None:
        self.both("remove", self.at(place))

    @rule(subject=st.none() | patterns, place=places)
    def purge_before(self, subject: str | None, place: float) -> None:
        self.both("purge", subject=subject, before_seq=self.at(place))

    @rule(subject=st.none() | patterns, keep=st.sampled_from([0, 1, 2, 5, 99]))
    def purge(self, subject: str | None, keep: int) -> None:
        self.both("purge", subject=subject, keep=keep)

    @precondition(lambda self: self.model.last_seq > 0)
    @rule(place=places)
    def truncate(self, place: float) -> None:
        self.both("truncate", min(self.at(place), self.model.last_seq))
        self.now = max(self.now, self.model.last_ts_ns)

    @rule(pause=st.sampled_from([0, 1, SECOND, 5 * SECOND, 60 * SECOND]))
    def expire(self, pause: int) -> None:
        self.now += pause
        self.both("expire", self.now)

    @rule()
    def expire_on_time(self) -> None:
        due = self.model.next_deadline_ns()
        if due is not None and due >= self.now:
            self.both("expire", due - 1)
            self.both("expire", due)
            self.now = due

    # -- what must not show

    @rule(step=st.sampled_from([Step.SYNC, Step.REOPEN, Step.POWER_CUT]))
    def step(self, step: Step) -> None:
        self.store.take_step(step)

    # -- asking

    @rule(filters=filters, place=places)
    def ask(self, filters: tuple[str, ...], place: float) -> None:
        start = self.at(place)
        assert self.store.next_match(filters, start) == self.model.next_match(filters, start)
        for last in (False, True):
            ours = self.store.num_pending(start, filters, last_per_subject=last)
            assert ours == self.model.num_pending(start, filters, last_per_subject=last)
        assert self.store.last_of_each(filters) == self.model.last_of_each(filters)

    @rule(pattern=patterns, place=places)
    def ask_subjects(self, pattern: str, place: float) -> None:
        assert self.store.subject_states(pattern) == self.model.subject_states(pattern)
        assert self.store.load_last(pattern) == self.model.load_last(pattern)
        bound = self.at(place)
        ours = self.store.load_last(pattern, at_or_before=bound)
        assert ours == self.model.load_last(pattern, at_or_before=bound)

    @rule(ago=st.integers(0, 30), off=st.sampled_from([-1, 0, 1]))
    def ask_time(self, ago: int, off: int) -> None:
        ts_ns = self.now - ago * SECOND // 3 + off
        assert self.store.seq_at_time(ts_ns) == self.model.seq_at_time(ts_ns)

    @rule(place=places)
    def ask_sequence(self, place: float) -> None:
        assert self.store.load(self.at(place)) == self.model.load(self.at(place))

    @invariant()
    def totals_agree(self) -> None:
        if self.store is not None:
            assert self.store.state(deleted=True) == self.model.state(deleted=True)
            assert self.store.durable_seq <= self.model.last_seq

    @invariant()
    def losses_agree(self) -> None:
        if self.store is not None:
            assert self.store.store.loss_floor == self.model.loss_floor
            # A store on disk reports what is in its files.
            store = getattr(self.store.store, "_log", self.store.store)
            assert store.losses == self.model.losses

    @invariant()
    def messages_agree(self) -> None:
        for seq in self.model.kept if self.store is not None else ():
            assert self.store.load(seq) == self.model.load(seq)

    @invariant()
    def deadlines_agree(self) -> None:
        if self.store is None:
            return
        ours, models = self.store.next_deadline_ns(), self.model.next_deadline_ns()
        if models is None:
            assert ours is None
        else:
            assert ours is not None
            assert models - SECOND < ours <= models


@pytest.mark.parametrize("name", KINDS)
def test_store_lives_as_model_does(name: str) -> None:
    kind = KINDS[name]
    reason = kind.absence()
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    machine = type("Life", (Lives,), {"kind": kind})
    case = machine.TestCase
    case.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
    )
    case("runTest").runTest()
