"""Compressed and encrypted stores: nothing readable on disk, and no key, no harm."""

from __future__ import annotations

import itertools

import pytest

from penstock.store.errors import StoreError
from penstock.store.format.compression import BlockCompression
from penstock.store.format.data_keys import KEYS_FILE, KEYS_MAX, ROLE
from penstock.store.format.encryption import (
    KEY_BYTES,
    KEY_RECORD_BYTES,
    NONCE_BYTES,
    DataKey,
    ServerKey,
    open_data_key,
    seal_data_key,
)
from penstock.store.io.slots import SlotFile, state_key
from penstock.testing.damage import flip_bit
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Choice, Lose
from support.files import (
    INCARNATION,
    compact,
    contents,
    files,
    fill,
    opened,
    payload,
    sync,
    warmed,
)

KEY = ServerKey("a phrase")
OTHER = ServerKey("another phrase")
N = 40
EXPECTED = {seq: payload(seq) for seq in range(1, N + 1)}


class Fresh:
    """Noise that never comes twice."""

    def __init__(self) -> None:
        self.count = itertools.count(1)

    def __call__(self, n: int) -> bytes:
        return b"".join(next(self.count).to_bytes(4, "little") for _ in range(n // 4 + 1))[:n]


def everything(disk: SimDisk) -> bytes:
    return b"".join(files(disk, "").values())


def encrypted(n: int = N) -> SimDisk:
    disk = SimDisk()
    store = opened(disk, key=KEY, noise=Fresh())
    fill(store, n)
    sync(store)
    compact(store)
    store.close()
    return disk


def test_neither_payloads_nor_subjects_are_readable_in_any_file() -> None:
    disk = SimDisk()
    store = opened(disk, key=KEY, noise=Fresh())
    for seq in range(1, N + 1):
        store.append(f"secret.subject.{seq}", b"", payload(seq), seq)
        if seq % 7 == 0:
            sync(store)
    for look in (lambda: sync(store), lambda: compact(store), store.close):
        look()
        assert b"message" not in everything(disk)
        assert b"subject" not in everything(disk)
    assert contents(opened(disk, key=KEY)) == EXPECTED


@pytest.mark.parametrize("key", [OTHER, None])
def test_wrong_key_or_none_is_reported_and_changes_nothing(key: ServerKey | None) -> None:
    disk = encrypted()
    before = files(disk, "")
    with pytest.raises(StoreError, match="key"):
        opened(disk, key=key)
    assert files(disk, "") == before
    assert contents(opened(disk, key=KEY)) == EXPECTED


def test_former_key_opens_and_new_one_from_then_on() -> None:
    disk = encrypted()
    blocks = files(disk)
    opened(disk, key=OTHER, former_keys=(KEY,)).close()
    assert files(disk) == blocks, "no block is written again"
    assert contents(opened(disk, key=OTHER)) == EXPECTED
    with pytest.raises(StoreError):
        opened(disk, key=KEY)


def add_key(disk: SimDisk, noise: Fresh) -> None:
    """A second data key behind the first, sealed as that one is."""
    slots, reading = SlotFile.open(
        disk,
        KEYS_FILE,
        state_key(ROLE, INCARNATION),
        value_bytes_max=KEYS_MAX * KEY_RECORD_BYTES,
    )
    first = open_data_key(reading.value, (KEY,), "", INCARNATION)
    made = DataKey(noise(KEY_BYTES), number=first.key.number + 1)
    slots.write(
        reading.value
        + seal_data_key(made, KEY, "", INCARNATION, salt=first.salt, nonce=noise(NONCE_BYTES))
    )
    slots.close()


def test_new_data_key_takes_over_block_by_block() -> None:
    disk = encrypted()
    noise = Fresh()
    add_key(disk, noise)
    store = opened(disk, key=KEY, noise=noise)
    fill(store, 5)
    sync(store)
    assert compact(store) > 3
    assert set(store._blocks.stored.values()) - {(0, 0)} == {(0, 2)}
    store.close()
    assert len(contents(opened(disk, key=KEY))) == N + 5


def test_plain_store_becomes_encrypted_and_compressed() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, N)
    store.close()
    options = {"key": KEY, "compression": BlockCompression.ZSTD}
    store = opened(disk, **options)
    assert contents(store) == EXPECTED
    compact(store)
    fill(store, 1)
    sync(store)
    compact(store)
    assert b"message" not in everything(disk)
    store.close()
    assert len(contents(opened(disk, **options))) == N + 1


def test_compression_makes_sealed_blocks_smaller() -> None:
    sizes = {}
    for compression in BlockCompression:
        disk = SimDisk()
        store = opened(disk, compression=compression, block_bytes=20_000)
        fill(store, 400, payload_bytes=200)
        sync(store)
        compact(store)
        sizes[compression] = sum(map(len, files(disk).values()))
        store.close()
        found = contents(opened(disk, compression=compression, block_bytes=20_000))
        assert found == {seq: payload(seq, 200) for seq in range(1, 401)}
    assert sizes[BlockCompression.ZSTD] * 2 < sizes[BlockCompression.NONE]


def test_encrypted_block_continues_after_power_cut() -> None:
    disk = SimDisk()
    store = opened(disk, key=KEY, noise=Fresh())
    fill(store, 3)
    sync(store)
    fill(store, 2)
    work = store.pending_sync()
    assert work is not None
    work.run()
    for choice in (Lose(), Choice(), 1, 2, 3):
        again = opened(disk.crash(choice), key=KEY)
        assert set(contents(again)) >= {1, 2, 3}
        fill(again, 2)
        sync(again)
        assert not again.recovery.damaged


def test_damage_in_encrypted_block_is_damage_and_not_wrong_key() -> None:
    disk = encrypted()
    flip_bit(disk, "1.blk", 300 * 8)
    store = opened(disk, key=KEY)
    found = contents(store)
    assert found.items() <= EXPECTED.items()
    told = {s for first, last in store.state().damaged for s in range(first, last + 1)}
    assert told == EXPECTED.keys() - found.keys()


def test_erased_message_leaves_disk_whatever_its_block_is_stored_as() -> None:
    for options in ({"key": KEY}, {"compression": BlockCompression.ZSTD}, {}):
        for sealed in (False, True):
            disk = SimDisk()
            store = opened(disk, noise=Fresh(), **options)
            fill(store, 4 if not sealed else N)
            sync(store)
            if sealed:
                compact(store)
            stored = files(disk)["1.blk"]
            assert warmed(store, lambda store=store: store.erase(2)) is not None
            sync(store)
            assert payload(2) not in everything(disk)
            assert files(disk)["1.blk"] != stored
            assert 2 not in contents(opened(disk.crash(Lose()), **options))
