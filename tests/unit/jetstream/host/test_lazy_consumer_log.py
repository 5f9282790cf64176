"""A consumer has no files for its state before it changes, and loses nothing by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.jetstream.host.asset_files import (
    AccountDirectory,
    ConsumerFiles,
    ConsumerMeta,
    StreamFiles,
    UnreadableAsset,
)
from penstock.jetstream.host.disk_work import DiskWork, Vacancy, run_all
from penstock.jetstream.host.lazy_consumer_log import StateFileCreation
from penstock.store.errors import StoreError
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Lose

if TYPE_CHECKING:
    from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState

META = ConsumerMeta(name="c", config=msgspec.Raw(b"{}"), created_ns=1)
BEGIN = 41
CALLS_MAX = 100


def made(disk: SimDisk) -> tuple[StreamFiles, ConsumerFiles]:
    """A consumer that begins behind a sequence it has chosen."""
    stream = AccountDirectory(disk, make_incarnation=lambda: 7).create_stream("S", b"{}", 1)
    files = stream.begin_consumer("c")
    files.state.reset(0, BEGIN)
    run_all(files.save(META))
    return stream, files


def reopened(disk: SimDisk) -> ConsumerState:
    [found] = AccountDirectory(disk, make_incarnation=lambda: 7).open_streams()
    assert not isinstance(found, UnreadableAsset)
    [consumer] = found[1].open_consumers()
    assert not isinstance(consumer, UnreadableAsset)
    _, files, report = consumer
    assert not report.damage
    return files.state.state


def settle(files: ConsumerFiles) -> None:
    while (work := files.state.pending_sync()) is not None:
        try:
            work.run()
        except StoreError as error:
            files.state.synced(work, error)
            raise
        files.state.synced(work)


def suffixes(disk: SimDisk) -> list[str]:
    return disk.subdir("S").subdir("obs").files()


def test_unused_consumer_has_one_file_and_begins_where_it_chose_to() -> None:
    disk = SimDisk()
    _, files = made(disk)
    settle(files)
    after = disk.crash(Lose())
    assert suffixes(after) == ["c.meta"]
    assert reopened(after).delivered_stream == BEGIN
    files.close()
    assert suffixes(disk) == ["c.meta"]


def test_durable_writes_survive_crash() -> None:
    disk = SimDisk()
    _, files = made(disk)
    files.state.delivered(1, BEGIN + 1, 5)
    assert files.state.durable_seq < files.state.recorded_seq
    settle(files)
    assert files.state.durable_seq == files.state.recorded_seq
    assert reopened(disk.crash(Lose())).delivered_stream == BEGIN + 1


def test_new_configuration_reports_where_unused_consumer_is() -> None:
    disk = SimDisk()
    _, files = made(disk)
    files.state.reset(0, BEGIN + 5)
    run_all(files.save(msgspec.structs.replace(META, created_ns=2)))
    settle(files)
    assert suffixes(disk) == ["c.meta"]
    assert reopened(disk.crash(Lose())).delivered_stream == BEGIN + 5


def test_changes_while_files_are_made_follow_with_the_next_sync() -> None:
    disk = SimDisk()
    _, files = made(disk)
    files.state.delivered(1, BEGIN + 1, 5)
    making = files.state.pending_sync()
    assert isinstance(making, StateFileCreation)
    assert files.state.pending_sync() is None  # one at a time
    files.state.delivered(2, BEGIN + 2, 6)
    files.state.delivered(3, BEGIN + 3, 6)
    awaited = files.state.recorded_seq
    making.run()
    files.state.synced(making)
    assert files.state.recorded_seq == awaited
    assert files.state.durable_seq < awaited
    assert reopened(disk.crash(Lose())).delivered_stream == BEGIN + 1
    settle(files)
    assert files.state.durable_seq == awaited
    after = reopened(disk.crash(Lose()))
    assert after.delivered_stream == BEGIN + 3
    assert len(after.pending) == 3


def test_save_waits_while_files_are_made_and_keeps_state_in_them() -> None:
    disk = SimDisk()
    _, files = made(disk)
    files.state.delivered(1, BEGIN + 1, 5)
    making = files.state.pending_sync()
    assert isinstance(making, StateFileCreation)
    save = files.save(msgspec.structs.replace(META, created_ns=2))
    waits = next(save)
    assert isinstance(waits, Vacancy)
    resumed: list[bool] = []
    waits.gate.when_free(lambda: resumed.append(True))
    making.run()
    files.state.synced(making)
    assert resumed
    work = next(save)
    assert isinstance(work, DiskWork)
    work.run()
    assert next(save, None) is None
    assert reopened(disk.crash(Lose())).delivered_stream == BEGIN + 1


def test_no_files_are_made_while_save_is_out() -> None:
    disk = SimDisk()
    _, files = made(disk)
    save = files.save(msgspec.structs.replace(META, created_ns=2))
    work = next(save)
    assert isinstance(work, DiskWork)
    files.state.delivered(1, BEGIN + 1, 5)
    assert files.state.pending_sync() is None
    work.run()
    assert next(save, None) is None
    settle(files)
    assert files.state.durable_seq == files.state.recorded_seq
    assert reopened(disk.crash(Lose())).delivered_stream == BEGIN + 1


@pytest.mark.parametrize("fault", [DiskFault.ENOSPC, DiskFault.EIO])
def test_whichever_call_fails_while_consumer_is_created_it_does_not_exist(
    fault: DiskFault,
) -> None:
    for nth in range(1, CALLS_MAX):
        disk = SimDisk()
        stream = AccountDirectory(disk, make_incarnation=lambda: 7).create_stream("S", b"{}", 1)
        disk.fail_nth(nth, fault)
        try:
            run_all(stream.begin_consumer("c").save(META))
        except StoreError:
            assert "c.meta" not in suffixes(disk)
            continue
        if not disk.faults_struck:
            assert nth > 3
            return
    pytest.fail("creating a consumer takes no end of calls")


def test_state_that_is_lost_is_reported() -> None:
    disk = SimDisk()
    stream, files = made(disk)
    files.state.delivered(1, BEGIN + 1, 5)
    files.close()
    disk.subdir("S").subdir("obs").unlink("c.state")
    [found] = stream.open_consumers()
    assert isinstance(found, UnreadableAsset)
    assert found.name == "c"


@pytest.mark.parametrize("fault", [DiskFault.ENOSPC, DiskFault.SHORT_WRITE])
def test_whichever_call_fails_while_files_are_made_it_can_be_tried_again(fault: DiskFault) -> None:
    for nth in range(1, CALLS_MAX):
        disk = SimDisk()
        _, files = made(disk)
        files.state.delivered(1, BEGIN + 1, 5)
        disk.fail_nth(nth, fault)
        try:
            settle(files)
            failed = False
        except StoreError:
            failed = True
        disk.heal()
        assert reopened(disk.crash(nth)).delivered_stream in (BEGIN, BEGIN + 1)
        if not failed and not disk.faults_struck:
            assert nth > 3
            return
        settle(files)
        assert reopened(disk.crash(Lose())).delivered_stream == BEGIN + 1
    pytest.fail("making files takes no end of calls")
