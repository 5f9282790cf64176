"""Keys in order, however many: in memory, or in runs on disk."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.fold.follow.key_list import KeyList

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("keys_in_memory_max", [1, 7, 1_000_000])
def test_keys_come_in_order_and_once_however_they_were_added(
    keys_in_memory_max: int, tmp_path: Path
) -> None:
    chance = Random(1)
    keys = [f"k.{number}.ü" for number in range(50)]
    with KeyList(tmp_path, keys_in_memory_max=keys_in_memory_max) as listing:
        for _ in range(3):
            chance.shuffle(keys)
            listing.add(keys[:25])
            listing.add(keys[25:])
        assert list(listing) == sorted(keys)
        assert list(listing) == sorted(keys)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_listed_of_nothing() -> None:
    with KeyList() as listing:
        listing.add([])
        assert list(listing) == []
