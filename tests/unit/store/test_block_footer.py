"""Footers of full blocks: copied by the owner of the store, built by the sync."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.disk_jobs import SyncWork
from penstock.store.index.block_images import blocks_of
from penstock.testing.sim_disk import SimDisk
from support.files import contents, opened, payload

if TYPE_CHECKING:
    from penstock.store.filestore import FileStore


def full_block() -> tuple[FileStore, SyncWork, SimDisk]:
    """Fill a block without a sync; return its store and the sync that is due."""
    disk = SimDisk()
    store = opened(disk)
    while len(list(blocks_of(store._log))) < 2:
        store.append("a.b", b"", payload(store.state().last_seq), 1_000)
    work = store.pending_sync()
    assert isinstance(work, SyncWork)
    return store, work, disk


def test_sync_builds_footer_of_full_block() -> None:
    store, work, disk = full_block()
    [footer] = work.footers
    assert footer.data == b"", "reading a whole block takes too long for the owner's thread"
    assert work.is_long, "the event loop must not run it"
    work.run()
    store.synced(work)
    assert footer.data
    assert footer.image == b""
    held = contents(store)
    store.close()
    again = opened(disk)
    assert again.recovery.scanned == 1, "only the open block has no footer"
    assert contents(again) == held


def test_sync_that_runs_twice_writes_the_same_footer() -> None:
    store, work, _ = full_block()
    work.run()
    data = work.footers[0].data
    work.run()
    store.synced(work)
    assert work.footers[0].data is data


def test_damaged_block_gets_no_footer() -> None:
    store, work, _ = full_block()
    [footer] = work.footers
    footer.image = footer.image[: footer.facts.head] + bytes(footer.place - footer.facts.head)
    work.run()
    store.synced(work)
    assert footer.is_damaged
    [block] = [facts for facts in blocks_of(store._log) if facts.number == footer.number]
    assert block.damaged
    assert not block.footed
