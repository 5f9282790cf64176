"""Damage at rest to any file of a journal: it opens, loses only what was touched, and says so.

A journal that was closed has a mark after its last entry, so nothing in it may be taken for a torn
end: every entry that is lost must be reported, and belong to a turn in the harmed bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from faults.journal_life import opened
from penstock.store.errors import StoreError
from penstock.store.format.data_keys import KEYS_FILE
from penstock.store.format.encryption import ServerKey
from penstock.store.journal.journal_anchor import ANCHOR_FILE
from penstock.store.journal.journal_types import JournalEntry, MissingEntries
from penstock.testing import damage
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import PAGE, Choice

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from penstock.store.journal.journal import Journal

LONG_ROUNDS = 7
FLIP_EVERY_BITS = 203
TURNS = 14
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "encrypted": {"key": ServerKey("secret")}}


@dataclass(frozen=True)
class AtRest:
    """A closed journal, its entries, and where each turn lies."""

    disk: SimDisk
    options: dict[str, Any]
    entries: dict[tuple[int, int], bytes]
    places: dict[tuple[int, int], tuple[str, int, int]]
    """File, start and end of the turn of an entry."""

    @classmethod
    def make(cls, options: dict[str, Any]) -> AtRest:
        disk = SimDisk()
        journal = opened(disk, options)
        entries: dict[tuple[int, int], bytes] = {}
        places: dict[tuple[int, int], tuple[str, int, int]] = {}
        for turn in range(1, TURNS + 1):
            keys = [(group, turn) for group in (1, 2, 3)]
            for group, index in keys:
                data = b"<%d.%d>" % (group, index) * (300 if turn % 4 == 0 else 20)
                journal.append_entry(group, index, data)
                entries[group, index] = data
            journal.put_state(1, b"state %d" % turn)
            work = journal.pending_sync(turn)
            assert work is not None
            work.run()
            journal.synced(work)
            done = work.turns[-1]
            end = done.place + len(done.stored)
            places |= dict.fromkeys(keys, (done.segment.file.name, done.place, end))
        assert journal.segments_used > 2
        journal.close(TURNS)
        return cls(disk, options, entries, places)

    def harmed(self, harm: Callable[..., None], *args: Any) -> SimDisk:
        copy = self.disk.crash(Choice())
        harm(copy, *args)
        return copy

    def touched(self, name: str, start: int, stop: int) -> set[tuple[int, int]]:
        """The entries whose turns these bytes are part of."""
        return {
            key
            for key, (file, first, end) in self.places.items()
            if file == name and first < stop and start < end
        }

    def segments(self) -> list[str]:
        return [name for name in self.disk.files() if name.endswith(".seg")]


@pytest.fixture(scope="module", params=KINDS)
def at_rest(request: pytest.FixtureRequest) -> AtRest:
    return AtRest.make(KINDS[request.param])


def found_in(journal: Journal) -> dict[tuple[int, int], bytes]:
    return {(one.group, one.entry.index): one.entry.data for one in journal.replay()}


def verdict(rest: AtRest, disk: SimDisk, touched: set[tuple[int, int]]) -> list[str]:
    """What is wrong with a journal of which these entries were touched."""
    try:
        journal = opened(disk, rest.options)
    except StoreError as error:
        return [f"does not open: {error!r}"]
    found = found_in(journal)
    lost = rest.entries.keys() - found.keys()
    wrong = [f"{key} is wrong" for key, data in found.items() if rest.entries.get(key) != data]
    wrong += [f"{key} was not touched and is lost" for key in sorted(lost - touched)]
    wrong += [f"{key} is replayed, not read" for key in found if not is_read(journal, *key)]
    if lost and journal.recovery.is_clean:
        wrong.append(f"{sorted(lost)} are lost, and nothing is reported")
    wrong += [one for key in sorted(lost) if (one := not_refused(journal, *key))]
    if journal.state(1) != b"state %d" % TURNS and journal.recovery.is_clean:
        wrong.append("an older state, and nothing is reported")
    return wrong


def is_read(journal: Journal, group: int, index: int) -> bool:
    """Whether an entry can also be read by itself."""
    return [one.index for one in journal.entries(group, index, index + 1, 1)] == [index]


def not_refused(journal: Journal, group: int, index: int) -> str:
    """What is wrong with the answer to a read of a lost entry."""
    try:
        read: list[JournalEntry] = journal.entries(group, index, index + 1, 1 << 20)
    except MissingEntries as refusal:
        return "" if refusal.index == index else f"{index} is refused as {refusal.index}"
    return f"{group}: {index} is lost, and read as {read}" if read else ""


def test_flipped_bit_costs_at_most_the_turn_it_is_in(
    at_rest: AtRest, rounds: int, tried: Counter[str]
) -> None:
    for name in [*at_rest.segments(), ANCHOR_FILE]:
        size = at_rest.disk.contents(name).size
        for bit in range(0, size * 8, max(1, FLIP_EVERY_BITS // rounds)):
            harmed = at_rest.harmed(damage.flip_bit, name, bit)
            page = bit // 8 // PAGE * PAGE
            wrong = verdict(at_rest, harmed, at_rest.touched(name, page, page + PAGE))
            assert wrong == [], f"{name}, bit {bit}"
            tried["bits flipped in journals"] += 1


def test_page_that_is_zeroed_stale_or_elsewhere_costs_its_turns(
    at_rest: AtRest, tried: Counter[str]
) -> None:
    for name in at_rest.segments():
        pages = at_rest.disk.contents(name).size // PAGE
        for page in range(pages):
            touched = at_rest.touched(name, page * PAGE, (page + 1) * PAGE)
            for harm in (damage.zero_page, damage.stale_page):
                harmed = at_rest.harmed(harm, name, page)
                assert verdict(at_rest, harmed, touched) == [], f"{name}, page {page}"
            for to_name in at_rest.segments():
                for to_page in range(at_rest.disk.contents(to_name).size // PAGE):
                    at = to_page * PAGE
                    both = touched | at_rest.touched(to_name, at, at + PAGE)
                    what = (damage.misdirect_page, name, page, to_name, to_page)
                    assert verdict(at_rest, at_rest.harmed(*what), both) == [], what
                    tried["pages of journals damaged"] += 1


def test_segment_that_is_lost_or_cut_is_reported(at_rest: AtRest) -> None:
    for name in at_rest.segments():
        size = at_rest.disk.contents(name).size
        everything = at_rest.touched(name, 0, size)
        harmed = at_rest.harmed(damage.lose, name)
        assert verdict(at_rest, harmed, everything) == [], name
        assert not opened(harmed, at_rest.options).recovery.is_clean, name
        for at in range(0, size, PAGE // 2):
            lost = at_rest.touched(name, at // PAGE * PAGE, size)
            assert verdict(at_rest, at_rest.harmed(damage.cut, name, at), lost) == [], (name, at)


def test_files_under_each_others_names_lose_nothing(at_rest: AtRest) -> None:
    one, other, *_ = at_rest.segments()
    assert verdict(at_rest, at_rest.harmed(damage.swap, one, other), set()) == []


def test_lost_anchor_is_reported_and_costs_nothing(at_rest: AtRest) -> None:
    harmed = at_rest.harmed(damage.lose, ANCHOR_FILE)
    assert verdict(at_rest, harmed.crash(Choice()), set()) == []
    assert opened(harmed, at_rest.options).recovery.is_anchor_damaged


def test_missing_key_file_is_refused() -> None:
    rest = AtRest.make(KINDS["encrypted"])
    harmed = rest.harmed(damage.lose, KEYS_FILE)
    before = {name: harmed.read_small(name, 1 << 30) for name in harmed.files()}
    with pytest.raises(StoreError, match="keys is missing"):
        opened(harmed, rest.options)
    assert before == {name: harmed.read_small(name, 1 << 30) for name in harmed.files()}


def test_file_that_may_be_the_missing_segment_is_left_alone(at_rest: AtRest) -> None:
    """Header and every head unreadable: the file is not known to be free, so it is not reused."""
    name = at_rest.segments()[1]
    harmed = at_rest.disk.crash(Choice())
    for page in range(harmed.contents(name).size // PAGE):
        damage.flip_bit(harmed, name, page * PAGE * 8 + 8 * 37)
    journal = opened(harmed, at_rest.options)
    assert journal.recovery.kept_files == [name]
    work = journal.pending_upkeep()
    if work is not None:
        work.run()
    assert name in harmed.files()


def test_damage_that_is_reported_is_reported_again_after_going_on(at_rest: AtRest) -> None:
    name = at_rest.segments()[0]
    harmed = at_rest.harmed(damage.zero_page, name, 1)
    journal = opened(harmed, at_rest.options)
    first = journal.recovery
    journal.append_entry(9, 1, b"more")
    journal.close(TURNS)
    again = opened(harmed, at_rest.options)
    assert again.recovery.damage == first.damage
    assert again.recovery.gaps == first.gaps
    assert again.entries(9, 1, 2, 99)[0].data == b"more"
