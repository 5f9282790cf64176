"""The change feed of a parcel service: every parcel is booked, moves on, and may be deleted.

The feed is the same in every run, so it is known what a copy must hold at the end. Many parcels are
under way at the same time, so that changes of many keys are mixed as they are in real feeds.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.kv.bucket_writer import NatsWriter

BUCKET = "parcels"
HISTORY = 8  # more than a parcel has changes: the archive gets every one of them
REGIONS = ("north", "south", "east", "west")
STATES = ("booked", "collected", "sorted", "on the road", "delivered")
FORGOTTEN_SHARE = 0.3
UNDER_WAY_MAX = 400
WINDOW = 256
SEED = 7


@dataclass(frozen=True, slots=True)
class Change:
    """A new value of a key; None deletes it."""

    key: str
    value: bytes | None


@dataclass(slots=True)
class _Parcel:
    key: str
    grams: int
    state: int = 0

    def value(self) -> bytes:
        fields = {"state": STATES[self.state], "grams": self.grams}
        return json.dumps(fields, separators=(",", ":")).encode()


def make_feed(parcels: int) -> list[Change]:
    """All that happens to so many parcels; the last ones are still under way at the end."""
    return list(_changes(parcels, random.Random(SEED)))


def _changes(parcels: int, chance: random.Random) -> Iterator[Change]:
    under_way: list[_Parcel] = []
    booked = 0
    while booked < parcels:
        if len(under_way) < UNDER_WAY_MAX and chance.random() < 1 / len(STATES):
            key = f"parcel.{chance.choice(REGIONS)}.{booked}"
            parcel = _Parcel(key, chance.randrange(50, 20_000))
            under_way.append(parcel)
            booked += 1
        elif under_way:
            at = chance.randrange(len(under_way))
            parcel = under_way[at]
            parcel.state += 1
        else:
            continue
        yield Change(parcel.key, parcel.value())
        if STATES[parcel.state] == "delivered":
            under_way.remove(parcel)
            if chance.random() < FORGOTTEN_SHARE:
                yield Change(parcel.key, None)


def outcome(changes: Sequence[Change]) -> dict[str, bytes]:
    """What is there when all of it has happened."""
    held: dict[str, bytes] = {}
    for change in changes:
        if change.value is None:
            held.pop(change.key, None)
        else:
            held[change.key] = change.value
    return held


async def publish(
    writer: NatsWriter, changes: Sequence[Change], report: Callable[[int], None], pause: float = 0.0
) -> None:
    """Make all changes, many at a time, those of a key in order; `report` counts them.

    `pause`: seconds between two windows of changes.
    """
    for window in _windows(changes):
        await asyncio.gather(*(_make(writer, change) for change in window))
        report(len(window))
        await asyncio.sleep(pause)


def _windows(changes: Sequence[Change]) -> Iterator[list[Change]]:
    window: dict[str, Change] = {}
    for change in changes:
        if change.key in window or len(window) == WINDOW:
            yield list(window.values())
            window = {}
        window[change.key] = change
    if window:
        yield list(window.values())


async def _make(writer: NatsWriter, change: Change) -> None:
    if change.value is None:
        await writer.delete(change.key)
    else:
        await writer.put(change.key, change.value)
