"""The compiled subscription list answers as a plain loop over all subscriptions does.

Both twins, with the match cache and without, go through the same random life; subjects come from
a tiny alphabet, so that patterns overlap, nodes are shared and pruned, and cached answers are hit
after the subscriptions behind them have changed.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from models.subjects import ALPHABET, LITERALS, TOKENS_MAX
from models.sublist import Entry, ListModel
from penstock.subjects.tokens import is_valid_subject
from penstock.subjects.trie import InvalidSubject, SubList, Subscription

tokens = st.sampled_from((*ALPHABET, "*", "*", ">"))
any_subject = st.lists(tokens, min_size=1, max_size=TOKENS_MAX).map(".".join)
patterns = any_subject.filter(is_valid_subject)
queues = st.none() | st.none() | st.sampled_from(("q", "r"))
# What may be published, or asked for: also what is no good subject at all.
asked = st.sampled_from((*LITERALS[:40], "a.*", "*", ">", "a.>", "", ".", "a.", ".a", "a..b"))
# Few enough to be asked again and again, which is what fills the cache.
OFTEN_ASKED = (*LITERALS[:12], "a.a.a", "a.b.c")


class SubListLife(RuleBasedStateMachine):
    """Two lists and the model, changed and asked alike."""

    inserted: Bundle[tuple[Entry, list[Subscription]]] = Bundle("inserted")

    def __init__(self) -> None:
        super().__init__()
        self.lists = [SubList(seed=1, cache=True), SubList(seed=2**64 - 1, cache=False)]
        self.model = ListModel()
        self.asked = 0

    # -- changing

    @rule(target=inserted, subject=patterns, queue=queues)
    def insert(self, subject: str, queue: str | None) -> tuple[Entry, list[Subscription]]:
        entry = Entry(subject, queue)
        self.model.insert(entry)
        made = [Subscription(subject, queue, entry) for _ in self.lists]
        for sublist, subscription in zip(self.lists, made, strict=True):
            sublist.insert(subscription)
        return entry, made

    @rule(pair=consumes(inserted))
    def remove(self, pair: tuple[Entry, list[Subscription]]) -> None:
        self.model.remove(pair[0])
        for sublist, subscription in zip(self.lists, pair[1], strict=True):
            sublist.remove(subscription)

    @rule(subject=any_subject.filter(lambda text: not is_valid_subject(text)))
    def refuse(self, subject: str) -> None:
        for sublist in self.lists:
            try:
                sublist.insert(Subscription(subject))
            except InvalidSubject:
                continue
            raise AssertionError(f"{subject!r} was taken")

    # -- asking

    @rule(subject=asked)
    def match(self, subject: str) -> None:
        self.agree_on(subject)

    @rule(subject=asked)
    def has_interest(self, subject: str) -> None:
        wanted = bool(self.model.plain(subject) or self.model.queues(subject))
        assert [one.has_interest(subject) for one in self.lists] == [wanted, wanted]

    @rule(pattern=patterns)
    def reverse_match(self, pattern: str) -> None:
        for sublist in self.lists:
            found = sublist.reverse_match(pattern)
            assert {one.value for one in found} == self.model.overlapping(pattern)
            assert len(found) == len(set(found))

    @rule()
    def all_are_there(self) -> None:
        for sublist in self.lists:
            found = [one.value for one in sublist.all()]
            assert set(found) == set(self.model.entries)
            assert len(found) == len(self.model.entries)

    # -- exact interest

    @rule(subject=st.sampled_from(LITERALS[:12]), queue=queues)
    def watch(self, subject: str, queue: str | None) -> None:
        wanted = self.model.watch(subject, queue)
        assert [one.watch(subject, queue) for one in self.lists] == [wanted, wanted]

    @precondition(lambda self: self.model.watched)
    @rule(data=st.data())
    def unwatch(self, data: st.DataObject) -> None:
        subject, queue = data.draw(st.sampled_from(sorted(self.model.watched, key=repr)))
        self.model.unwatch(subject, queue)
        for sublist in self.lists:
            sublist.unwatch(subject, queue)

    @rule()
    def drain_interest_changes(self) -> None:
        wanted, self.model.changes = self.model.changes, []
        for sublist in self.lists:
            assert sublist.drain_interest_changes() == wanted

    # -- what always holds

    @invariant()
    def often_asked_subjects_are_answered_right(self) -> None:
        for subject in OFTEN_ASKED:
            self.agree_on(subject)

    @invariant()
    def counters_tell_what_happened(self) -> None:
        for sublist, cached in zip(self.lists, (True, False), strict=True):
            stats = sublist.stats()
            assert len(sublist) == stats.num_subscriptions == len(self.model.entries)
            assert (stats.num_inserts, stats.num_removes) == (
                self.model.inserts,
                self.model.removes,
            )
            assert stats.num_matches == self.asked
            assert 0 <= stats.cache_hit_rate < 1
            assert cached or (stats.num_cache, stats.cache_hit_rate) == (0, 0)
            assert stats.avg_fanout <= stats.max_fanout <= len(self.model.entries)

    def agree_on(self, subject: str) -> None:
        plain, groups = self.model.plain(subject), self.model.queues(subject)
        self.asked += 1
        for sublist in self.lists:
            found = sublist.match(subject)
            assert {one.value for one in found.plain} == plain
            assert len(found.plain) == len(plain)
            named = {members[0].queue: {one.value for one in members} for members in found.queues}
            assert named == groups
            assert [len(members) for members in found.queues] == [
                len(groups[str(members[0].queue)]) for members in found.queues
            ]


TestSubListLife = SubListLife.TestCase
TestSubListLife.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
