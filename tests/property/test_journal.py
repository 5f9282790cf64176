"""A journal under random operations and restarts holds what the naive model does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from models.journal import JournalModel
from penstock.records.journal_codec import PAGE_BYTES
from penstock.store.format.encryption import ServerKey
from penstock.store.journal.journal import Journal
from penstock.store.journal.journal_types import ERASE_NS, JournalFull
from penstock.testing.sim_disk import SimDisk

KEY = ServerKey("secret")
GROUPS = 3
SIZES = (0, 9, 500, 4100, 9000)

GROUP = st.integers(1, GROUPS)
OPERATIONS = st.one_of(
    st.tuples(st.just("entry"), GROUP, st.sampled_from(SIZES), st.integers(16, 255)),
    st.tuples(st.just("entry"), GROUP, st.sampled_from(SIZES), st.integers(16, 255)),
    st.tuples(st.just("state"), GROUP, st.integers(0, 99)),
    st.tuples(st.just("cut"), GROUP, st.integers(0, 5)),
    st.tuples(st.just("forget"), GROUP),
    st.tuples(st.just("checkpoint"), GROUP, st.integers(0, 4)),
    st.tuples(st.just("erase"), GROUP),
    st.tuples(st.just("sync"), st.booleans()),
    st.tuples(st.just("upkeep")),
    st.tuples(st.just("wait")),
    st.tuples(st.just("reopen"), st.booleans()),
)


class Beside:
    """A journal, and its model."""

    def __init__(self, key: ServerKey | None) -> None:
        self.disk, self.key = SimDisk(), key
        self.model = JournalModel()
        self.floors: dict[int, int] = {}
        self.now_ns = 1
        self.journal = self.opened()

    def opened(self) -> Journal:
        return Journal.open(
            self.disk,
            incarnation=3,
            now_ns=self.now_ns,
            noise=lambda n: b"\x03" * n,
            key=self.key,
            segment_bytes=6 * PAGE_BYTES,
            segments_max=5,
        )

    def entry(self, group: int, size: int, kind: int) -> None:
        index = max(self.journal.span(group)[1], self.floors.get(group, 0) + 1)
        data = b"%d.%d" % (group, index) + bytes(size)
        try:
            self.journal.append_entry(group, index, data, kind=kind, term=size)
        except JournalFull:
            assert self.journal.segments_used >= 5
            return
        self.model.apply("entry", group, index, size, kind, data)

    def state(self, group: int, number: int) -> None:
        try:
            self.journal.put_state(group, b"%d" % number)
        except JournalFull:
            return
        self.model.apply("state", group, b"%d" % number)

    def cut(self, group: int, back: int) -> None:
        first, stop = self.journal.span(group)
        if first < stop:
            index = max(first, stop - back)
            self.journal.cut(group, index)
            self.model.apply("cut", group, index)

    def forget(self, group: int) -> None:
        self.journal.forget(group)
        self.model.apply("forget", group)
        self.floors.pop(group, None)

    def checkpoint(self, group: int, keep: int) -> None:
        first, stop = self.journal.span(group)
        index = stop - 1 - keep
        if index >= first:
            self.journal.checkpointed(group, index)
            self.floors[group] = max(index, self.floors.get(group, 0))

    def erase(self, group: int) -> None:
        self.journal.erase(group, self.now_ns)

    def sync(self, write_only: bool) -> None:
        work = self.journal.pending_sync(self.now_ns, write_only=write_only)
        if work is not None:
            work.run()
            self.journal.synced(work)

    def upkeep(self) -> None:
        work = self.journal.pending_upkeep()
        if work is not None:
            work.run()
            self.journal.kept_up(work)

    def wait(self) -> None:
        self.now_ns += ERASE_NS // 3
        for group in self.journal.holding_back(self.now_ns):
            self.checkpoint(group, 0)

    def reopen(self, clean: bool) -> None:
        """A process that is killed loses what it had not written, so that is written before."""
        if clean:
            self.journal.close(self.now_ns)
        else:
            self.sync(write_only=True)
        self.journal = self.opened()
        assert self.journal.recovery.is_clean
        self.check_replay()

    def expected(self, group: int) -> dict[int, Any]:
        floor = self.floors.get(group, 0)
        return {at: one for at, one in self.model.entries(group).items() if at > floor}

    def check(self) -> None:
        for group in range(1, GROUPS + 1):
            found = {
                one.index: (one.term, one.kind, one.data)
                for one in self.journal.entries(
                    group, self.floors.get(group, 0) + 1, 1 << 60, 1 << 30
                )
            }
            assert found == self.expected(group)
            assert self.journal.state(group) == self.model.state(group)

    def check_replay(self) -> None:
        found: dict[int, dict[int, Any]] = {}
        for group, entry in ((one.group, one.entry) for one in self.journal.replay()):
            if entry.index > self.floors.get(group, 0):
                found.setdefault(group, {})[entry.index] = (entry.term, entry.kind, entry.data)
        assert found == {
            group: entries for group in range(1, GROUPS + 1) if (entries := self.expected(group))
        }


@given(st.lists(OPERATIONS, max_size=60), st.sampled_from([None, KEY]))
def test_journal_holds_what_the_model_does(
    operations: list[tuple[Any, ...]], key: ServerKey | None
) -> None:
    beside = Beside(key)
    for name, *args in operations:
        getattr(beside, name)(*args)
        beside.check()
    beside.reopen(clean=False)
    beside.check()
