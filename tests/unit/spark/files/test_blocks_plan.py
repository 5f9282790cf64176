"""Stores planned for tasks: found by name, cut to size, and refused if they change afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.spark.files.blocks_options import BlocksOptions
from penstock.spark.files.blocks_plan import StoreChanged, find_stores, keyring, tasks_of
from penstock.spark.files.blocks_task import DamagedBlock, damage_of, read_store
from penstock.spark.options import OptionError
from penstock.store.io.disk import RealDisk
from support.files import fill, opened

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 60


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """`A/S/msgs` with some small blocks."""
    messages = tmp_path / "A" / "S" / "msgs"
    messages.mkdir(parents=True)
    files = opened(RealDisk.at(messages))
    fill(files, MESSAGES)
    files.close()
    return messages


def options(path: Path, **given: object) -> BlocksOptions:
    return BlocksOptions(path=str(path), **given)  # type: ignore[arg-type]


def seqs(store: Path, bytes_max: int = 1, **given: object) -> list[int]:
    (found,) = find_stores(options(store, **given))
    return [
        row[1]
        for task in tasks_of(found, bytes_max)
        for batch in read_store(task, "", fail_on_damage=True)
        for row in batch.rows()
    ]


def test_store_is_found_from_any_directory_above_it(store: Path) -> None:
    for path in (store, store.parent, store.parents[1], store.parents[2]):
        assert seqs(path) == list(range(1, MESSAGES + 1))


def test_streams_and_accounts_are_distinguished(store: Path) -> None:
    top = store.parents[2]
    assert seqs(top, stream="S", account="A")
    with pytest.raises(OptionError, match="no store of stream T"):
        find_stores(options(top, stream="T"))
    with pytest.raises(OptionError, match="of account B"):
        find_stores(options(top, account="B"))


def test_tasks_have_one_block_at_least_and_neighbours_up_to_their_size(store: Path) -> None:
    (found,) = find_stores(options(store))
    blocks = len(found.plan.blocks)
    assert blocks > 4
    assert [len(task.blocks) for task in tasks_of(found, 1)] == [1] * blocks
    assert len(tasks_of(found, 1 << 30)) == 1
    size = (store / found.plan.blocks[0].name).stat().st_size
    assert max(len(task.blocks) for task in tasks_of(found, 2 * size)) == 2


def test_locked_store_is_refused(store: Path) -> None:
    held = RealDisk.at(store.parents[2])
    held.lock()
    try:
        with pytest.raises(StoreChanged, match="held by a running server"):
            find_stores(options(store))
    finally:
        held.close()


@pytest.mark.parametrize("change", ["appended", "removed"])
def test_store_that_changed_since_it_was_planned_is_refused(store: Path, change: str) -> None:
    (found,) = find_stores(options(store))
    task = tasks_of(found, 1 << 30)[0]
    last = store / task.blocks[-1][0].name
    if change == "appended":
        files = opened(RealDisk.at(store))
        fill(files, 1)
        files.close()
    else:
        last.unlink()
    with pytest.raises(StoreChanged, match="changed since"):
        list(read_store(task, "", fail_on_damage=True))


def test_damage_is_reported_with_its_sequences_and_bytes(store: Path) -> None:
    block = store / "2.blk"
    data = bytearray(block.read_bytes())
    data[len(data) // 4] ^= 1
    block.write_bytes(data)
    (found,) = find_stores(options(store))
    (task,) = tasks_of(found, 1 << 30)
    with pytest.raises(DamagedBlock, match=r"2\.blk has lost messages"):
        list(read_store(task, "", fail_on_damage=True))
    left = sum(batch.count for batch in read_store(task, "", fail_on_damage=False))
    rows = list(damage_of(task, ""))
    lost = [row for row in rows if row[2] is not None and row[3] is not None]
    assert sum(row[3] - row[2] + 1 for row in lost if row[2] and row[3]) == MESSAGES - left > 0
    assert any(row[4] is not None for row in rows)


def test_key_file_that_is_not_there_is_reported_by_its_option(store: Path) -> None:
    with pytest.raises(OptionError, match="option keyFile"):
        keyring(str(store), 9, str(store / "missing"))
