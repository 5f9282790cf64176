"""What a copy of the bucket holds, and whether all copies hold the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.fold import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.fold import SnapshotReader, SnapshotStore


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy at one moment: what it holds, up to which revision, and one number for all of it."""

    name: str
    cursor: int
    digest: str
    values: Mapping[str, bytes]


def copy_of(name: str, store: SnapshotStore | SnapshotReader, cursor: int) -> Copy:
    """Read everything that a fold's store holds."""
    values = {entry.key: entry.value for entry in store.range("")}
    return Copy(name, cursor, digest_of(store), values)


def disagreements(copies: Sequence[Copy], expected: Mapping[str, bytes]) -> list[str]:
    """A line for each copy that is not what was published, or not the same as the first."""
    wrong = []
    for copy in copies:
        changed = [
            key
            for key in copy.values.keys() | expected.keys()
            if copy.values.get(key) != expected.get(key)
        ]
        if changed:
            wrong.append(f"{copy.name}: {len(changed):,} keys are wrong, as {min(changed)}")
        elif (copy.cursor, copy.digest) != (copies[0].cursor, copies[0].digest):
            wrong.append(f"{copy.name}: revisions differ from those of {copies[0].name}")
    return wrong
