"""Blocks read apart from each other hold what the store itself would show, and nothing else."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest

from penstock.store.errors import StoreError
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import ServerKey
from penstock.store.tools.store_reader import (
    SEQ_MAX,
    data_keys,
    missing_ranges,
    plan_read,
    read_block,
)
from penstock.testing.damage import flip_bit
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Lose
from support.files import INCARNATION, compact, contents, fill, opened, sync, warmed

KEY = ServerKey("a secret of the server")
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"compression": BlockCompression.ZSTD},
    "encrypted": {"key": KEY},
    "both": {"compression": BlockCompression.ZSTD, "key": KEY},
}


def read_apart(
    disk: SimDisk, key: ServerKey | None = None, first: int = 0, last: int = SEQ_MAX
) -> dict[int, bytes]:
    """Payloads by sequence; every block with nothing but its plan, and in small pieces."""
    keys = data_keys(disk, INCARNATION, key)
    plan = plan_read(disk, INCARNATION, keys, first=first, last=last)
    found: dict[int, bytes] = {}
    for block in pickle.loads(pickle.dumps(plan.blocks)):
        for columns in read_block(disk, block, keys, rows_max=3, bytes_max=1 << 20):
            seqs = memoryview(columns.seqs).cast("q")
            offsets = memoryview(columns.payload_offsets).cast("i")
            for row in range(columns.rows):
                payload = columns.payloads[offsets[row] : offsets[row + 1]]
                assert found.setdefault(seqs[row], payload) == payload
    return found


@pytest.fixture(params=FORMS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return FORMS[request.param]


@pytest.mark.parametrize("seed", range(4))
def test_blocks_read_apart_are_what_store_shows(seed: int, options: dict[str, Any]) -> None:
    chance = random.Random(seed)
    disk = SimDisk()
    store = opened(disk, **options)
    for _ in range(12):
        fill(store, chance.randrange(1, 12))
        last = store.state().last_seq
        step = chance.randrange(6)
        if step == 0:
            store.remove(chance.randrange(1, last + 1))
        elif step == 1:
            doomed = chance.randrange(1, last + 1)
            warmed(store, lambda at=doomed, here=store: here.erase(at))
        elif step == 2:
            store.purge(subject=f"s.{chance.randrange(3)}")
        elif step == 3:
            store.truncate(chance.randrange(max(1, last - 5), last + 1))
        elif step == 4:
            store.skip(last + 1, last + chance.randrange(1, 30), 1)
        sync(store)
        compact(store)
        if chance.random() < 0.3:
            store.close()
            store = opened(disk, **options)
    expected = contents(store)
    assert read_apart(disk.crash(Lose()), options.get("key")) == expected


def test_range_of_sequences_reads_only_blocks_that_hold_some(options: dict[str, Any]) -> None:
    disk = SimDisk()
    store = opened(disk, **options)
    fill(store, 60)
    store.close()
    keys = data_keys(disk, INCARNATION, options.get("key"))
    whole = plan_read(disk, INCARNATION, keys)
    part = plan_read(disk, INCARNATION, keys, first=20, last=24)
    assert 0 < len(part.blocks) < len(whole.blocks)
    assert sorted(read_apart(disk, options.get("key"), 20, 24)) == [20, 21, 22, 23, 24]


def test_torn_tail_costs_only_what_was_torn() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, 10)
    sync(store)
    name = max(disk.files(), key=lambda file: (file.endswith(".blk"), file))
    file = disk.open(name)
    disk.pwrite(file, b"PR\x01\x00half a record", disk.size(file))
    assert sorted(read_apart(disk)) == list(range(1, 11))


def test_damaged_record_is_missing_and_its_sequence_is_reported(options: dict[str, Any]) -> None:
    disk = SimDisk()
    store = opened(disk, **options)
    fill(store, 60)
    store.close()
    flip_bit(disk, "2.blk", 1200)
    keys = data_keys(disk, INCARNATION, options.get("key"))
    plan = plan_read(disk, INCARNATION, keys)
    found = read_apart(disk, options.get("key"))
    lost = set(range(1, 61)) - set(found)
    assert lost
    told = list(plan.damaged)
    for block in plan.blocks:
        its = range(block.first_seq, block.first_seq + block.sequences)
        told += missing_ranges(block, [seq for seq in found if seq in its])
    assert {seq for first, last in told for seq in range(first, last + 1)} == lost


def test_encrypted_store_is_not_read_without_its_key() -> None:
    disk = SimDisk()
    store = opened(disk, key=KEY)
    fill(store, 5)
    store.close()
    with pytest.raises(StoreError, match="no key was given"):
        data_keys(disk, INCARNATION, None)
    with pytest.raises(StoreError):
        data_keys(disk, INCARNATION, ServerKey("another"))
