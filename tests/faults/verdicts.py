"""The judge of a recovered store: what could rightly be there, and what must be.

Given the versions from the last one that was promised to the newest, a recovered store must hold
everything that all of them hold, and nothing that none of them does: calls that were never promised
may have reached the disk in part and in any order. Its totals must add up, what was erased must be
gone from the disk, deadlines must still be known, and it must go on from there and keep that over
the next cut.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from faults.store_lives import opened
from models.store import file_size
from penstock.store.contract import Appended, SubjectState
from penstock.store.errors import StoreError
from penstock.testing.sim_files import Lose
from support.files import warmed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faults.store_lives import Version
    from penstock.store.contract import MessageRecord
    from penstock.store.filestore import FileStore
    from penstock.testing.sim_disk import SimDisk

FAR_NS = 10**18
FILE_BYTES_MAX = 1 << 30


def contents(store: FileStore) -> dict[int, MessageRecord]:
    """Every message the store gives out."""
    found = {}
    start = 0
    while (msg := warmed(store, lambda at=start: store.next_match((), at))) is not None:
        found[msg.seq] = msg
        start = msg.seq + 1
    return found


def judged(
    disk: SimDisk, versions: Sequence[Version], options: dict[str, Any], *, plain: bool
) -> list[str]:
    """What is wrong with the disk a power cut left. `plain`: its bytes can be searched."""
    try:
        store = opened(disk, options)
    except StoreError as error:
        return [f"does not open: {error!r}"]
    wrong = wrong_with(store, versions)
    if not options.get("sync_always", True):
        wrong += _given_out_again(store, versions)
    if plain:
        wrong += _still_there(disk, versions[0])
    return wrong or _goes_on(disk, store, versions, options)


def wrong_with(store: FileStore, versions: Sequence[Version]) -> list[str]:
    """What is wrong with a store that was just opened; nothing may be."""
    found = contents(store)
    wrong = [f"{span} is called damaged" for span in store.recovery.damaged]
    return wrong + _beyond(store, found, versions) + _totals(store, found)


def _beyond(
    store: FileStore, found: dict[int, MessageRecord], versions: Sequence[Version]
) -> list[str]:
    """What is lost although all versions have it, or there although none has."""
    wrong = []
    first = versions[0]
    for seq, kept in first.kept.items():
        if seq not in found and all(at.kept.get(seq) == kept for at in versions):
            wrong.append(f"{seq} was promised and is lost")
    for seq, record in found.items():
        if all(seq not in at.kept or at.kept[seq].record != record for at in versions):
            wrong.append(f"{seq} was never there, or not like this, or was gone for good")
    lowest = min(at.last_seq for at in versions)
    if store.state().last_seq < lowest:
        wrong.append(f"the last sequence is {store.state().last_seq}, {lowest} was promised")
    return wrong


def _given_out_again(store: FileStore, versions: Sequence[Version]) -> list[str]:
    """A lazy store shows messages before they are safe, but never two under one sequence."""
    given = [version.last_seq for version in versions]
    seen = max(version.visible_seq for version in versions)
    if given != sorted(given) or store.state().last_seq >= seen:
        return []  # a truncation gives sequences out again, and says so
    return [f"{store.state().last_seq + 1} will be given out again; {seen} was seen"]


def _totals(store: FileStore, found: dict[int, MessageRecord]) -> list[str]:
    state = store.state()
    size = sum(file_size(one.subject, one.header, one.payload) for one in found.values())
    told = (state.msgs, state.bytes, state.first_seq)
    held = (len(found), size, min(found, default=state.last_seq + 1))
    wrong = [] if told == held else [f"totals say {told}, held is {held}"]
    counts = Counter(one.subject for one in found.values())
    states = {
        subject: SubjectState(
            min(seq for seq, one in found.items() if one.subject == subject),
            max(seq for seq, one in found.items() if one.subject == subject),
            count,
        )
        for subject, count in counts.items()
    }
    return wrong if store.subject_states() == states else [*wrong, "subjects do not add up"]


def _still_there(disk: SimDisk, promised: Version) -> list[str]:
    names = [name for name in disk.files() if name.endswith(".blk")]
    blocks = [disk.read_small(name, FILE_BYTES_MAX) for name in names]
    return [
        f"{secret[:8]!r} was erased and is in a file"
        for secret in promised.erased
        if any(secret in block for block in blocks)
    ]


def _goes_on(
    disk: SimDisk, store: FileStore, versions: Sequence[Version], options: dict[str, Any]
) -> list[str]:
    """One more message, synced, and the power goes again."""
    before = contents(store)
    answer = store.append("more", b"", b"more", FAR_NS)
    assert isinstance(answer, Appended)
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)
    again = opened(disk.crash(Lose()), options)
    after = contents(again)
    if after.keys() != before.keys() | {answer.seq} or any(after[s] != before[s] for s in before):
        return [f"went on from {sorted(before)} and the next cut left {sorted(after)}"]
    if again.recovery.damaged:
        return [f"went on, and the next cut left {again.recovery.damaged} damaged"]
    return _deadlines(again, after, versions)


def _deadlines(
    store: FileStore, found: dict[int, MessageRecord], versions: Sequence[Version]
) -> list[str]:
    deadline = {
        kept.record: kept.deadline_ns for version in versions for kept in version.kept.values()
    }
    due = {seq for seq, record in found.items() if deadline.get(record) is not None}
    store.expire(FAR_NS, at_most=len(found) + 1)
    left = contents(store).keys()
    return [] if left == found.keys() - due else [f"{sorted(due)} were due, {sorted(left)} stay"]
