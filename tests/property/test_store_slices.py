"""A purge or new limits in slices end as they do at once, whatever happens between two slices.

In between messages are appended, read and removed, the store is synced, closed and opened, or its
power is cut. Slices are tiny, so that there are many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.store import StoreModel
from penstock.store import indexed_store
from penstock.store.contract import Limits
from support.stores import KINDS, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.stores import Driven, Kind

SUBJECTS = ["a", "b", "a.b", "a.c", "a.b.c", "b.c"]
PURGED = [
    "memory",
    "file, small blocks",
    "file, cold",
    "file, power cut",
    "file, lazy, reopened",
    "file, compacted, power cut",
    "file, compressed",
]
LIMITED = ["memory", "file, small blocks", "file, cold", "file, compacted"]
subjects = st.sampled_from(SUBJECTS)
patterns = st.none() | st.sampled_from(["a", "a.*", "a.>", ">", "b.c", "x.y"])
between = st.lists(
    st.one_of(
        st.tuples(st.just("append"), subjects),
        st.tuples(st.just("remove"), st.integers(1, 40)),
        st.tuples(st.just("step"), st.sampled_from([Step.SYNC, Step.REOPEN, Step.POWER_CUT])),
        st.tuples(st.just("read"), subjects),
        st.just(("nothing", "")),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def _tiny_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_store, "SLICE_MSGS", 3)
        patch.setattr(indexed_store, "SLICE_LOOKS", 7)
        yield


class Pair:
    """A store and the model, which receives what the store has done."""

    def __init__(self, kind: Kind, stored: list[str]) -> None:
        self.store: Driven = kind.make(Limits())
        self.model = StoreModel(Limits(), counts_as_file=self.store.place.counts_as_file)
        for subject in stored:
            self.append(subject)

    def append(self, subject: str) -> None:
        for each in (self.store, self.model):
            each.append(subject, b"", b"m" * 9, 50)

    def meddle(self, acts: Iterator[tuple[str, object]]) -> None:
        """Something happens between two slices."""
        what, how = next(acts, ("nothing", ""))
        if what == "append":
            self.append(str(how))
        elif what == "remove":
            self.store.remove(how)
            self.model.remove(int(str(how)))
        elif what == "step":
            assert isinstance(how, Step)
            self.store.take_step(how)
        elif what == "read":
            found = self.store.load_last(str(how))
            assert found in (self.model.load_last(str(how)), found)

    def check(self) -> None:
        assert self.store.state(deleted=True)[:-1] == self.model.state(deleted=True)[:-1]
        assert self.store.subject_states(">") == self.model.subject_states(">")


@pytest.mark.parametrize("name", PURGED)
@given(
    stored=st.lists(subjects, max_size=40),
    subject=patterns,
    keep=st.sampled_from([0, 0, 1, 2, 5, 99]),
    before=st.none() | st.integers(1, 45),
    acts=between,
)
@settings(max_examples=30)
def test_purge_in_slices_ends_as_one_at_once(
    name: str,
    stored: list[str],
    subject: str | None,
    keep: int,
    before: int | None,
    acts: list[tuple[str, object]],
) -> None:
    pair = Pair(KINDS[name], stored)
    before = None if keep or (before or 0) > len(stored) else before
    twin = StoreModel(Limits())
    for each in stored:
        twin.append(each, b"", b"m" * 9, 50)
    victims = set(twin.live())
    twin.purge(subject=subject, before_seq=before, keep=keep)
    victims -= set(twin.live())
    doing = iter(acts)
    step = pair.store.begin_purge(subject=subject, before_seq=before, keep=keep)
    while step is not None:
        removed, step = pair.store.purge_slice(step)
        covered = {seq for first, last in removed.seqs for seq in range(first, last + 1)}
        for seq in covered & set(pair.model.live()):
            pair.model.remove(seq)
        pair.check()
        pair.meddle(doing)
    for seq in victims & set(pair.model.live()):
        raise AssertionError(f"{seq} was left")
    pair.check()


@pytest.mark.parametrize("name", LIMITED)
@given(
    stored=st.lists(subjects, max_size=40),
    limits=st.builds(
        Limits,
        msgs_max=st.sampled_from([-1, 1, 4, 9]),
        bytes_max=st.sampled_from([-1, 60, 300]),
        per_subject_max=st.sampled_from([-1, 1, 2, 4]),
        age_ns_max=st.just(0),
        discard_new=st.just(False),
        discard_new_per_subject=st.just(False),
    ),
    acts=between,
)
@settings(max_examples=30)
def test_new_limits_in_slices_leave_what_limits_at_one_moment_would(
    name: str, stored: list[str], limits: Limits, acts: list[tuple[str, object]]
) -> None:
    pair = Pair(KINDS[name], stored)
    doing = (act for act in acts if act[0] in ("append", "read", "nothing"))
    pair.store.change_limits(limits)
    is_front = True
    while pair.store.is_over:
        pair.store.trim()
        if is_front and not pair.store.store._is_front_first:
            is_front = False  # from now on appends count as later than the limits
            pair.model.set_limits(limits)
        pair.meddle(doing)
    if is_front:
        pair.model.set_limits(limits)
    pair.check()


@pytest.mark.parametrize("name", LIMITED)
def test_one_large_message_takes_the_oldest_out_in_slices(name: str) -> None:
    pair = Pair(KINDS[name], ["a"] * 20)
    pair.store.set_limits(Limits(bytes_max=1200))
    pair.model.set_limits(Limits(bytes_max=1200))
    pair.model.append("b", b"", b"m" * 900, 50)
    appended = pair.store.append("b", b"", b"m" * 900, 50)
    assert appended.removed.msgs == 3
    assert pair.store.is_over
    while pair.store.is_over:
        assert 0 < pair.store.trim().msgs <= 3
    pair.check()
