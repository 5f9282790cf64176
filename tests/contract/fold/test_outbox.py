"""Writes that wait on disk for the server: applied once, superseded or rejected; over kills too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import Fold, FoldMismatch, OutboxFull, StoreIOError, WaitTimeout, WriteResult
from penstock.fold.follow import write_outbox as outbox_module
from penstock.fold.follow.outbox_file import OutboxFile
from penstock.fold.follow.write_outbox import Outbox
from penstock.kv.contract import BucketConfig
from penstock.kv.errors import OperationTimeout
from penstock.kv.kv_connection import NatsConfig
from penstock.kv.kv_types import Op, VersionToken
from support.followed_folds import QUICK, ready
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from penstock.kv.bucket import NatsBucket
    from penstock.kv.bucket_writer import NatsWriter
    from support.kv import Maker
    from support.servers import ServerUnderTest

APPLIED, SUPERSEDED, REJECTED = WriteResult
HISTORY = BucketConfig(history=64)
VICTIM_WRITES = 60


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "PAUSE_SECONDS_FIRST", 0.01)
    monkeypatch.setattr(outbox_module, "PAUSE_SECONDS_MAX", 0.05)


@asynccontextmanager
async def folding(bucket: NatsBucket, path: Path) -> AsyncIterator[Fold]:
    fold = Fold.open(bucket, path / "fold", batch=QUICK, outbox=path / "outbox")
    async with asyncio.timeout(PATIENCE_SECONDS), fold:
        yield await ready(fold)


async def messages(bucket: NatsBucket) -> int:
    watcher = bucket.watcher()
    assert watcher is not None
    return (await watcher.log_info()).last_seq


async def test_outcomes_are_applied_superseded_and_rejected(make: Maker, tmp_path: Path) -> None:
    bucket = await make(BucketConfig(max_value_size=1_000))
    async with folding(bucket, tmp_path) as fold:
        outbox = fold.outbox
        first = await outbox.outcome(await outbox.put("a", b"1"))
        assert first.result is APPLIED
        await fold.wait_for(first.version)
        old = first.version
        await fold.put("a", b"another client")
        late = await outbox.outcome(await outbox.put("a", b"2", expected=old))
        assert (late.result, late.version) == (SUPERSEDED, VersionToken.UNKNOWN)
        refused = await outbox.outcome(await outbox.put("a", bytes(2_000)))
        assert (refused.result, bool(refused.reason)) == (REJECTED, True)
        entry = fold.get("a")
        assert entry is not None
        assert entry.value == b"another client"
        removed = await outbox.outcome(await outbox.delete("a"))
        assert removed.result is APPLIED
        await fold.wait_for(removed.version)
        assert fold.get("a") is None
        again = await outbox.outcome(await outbox.put("a", b"3"))  # behind the marker of a delete
        assert again.result is APPLIED
        assert await outbox.waiting() == []


async def test_writes_wait_on_disk_until_server_is_reachable(
    make: Maker, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = await make(HISTORY)
    cut_off = Fold.open(
        f"nats://127.0.0.1:1/{bucket.name}", tmp_path / "fold", outbox=tmp_path / "outbox"
    )
    async with asyncio.timeout(PATIENCE_SECONDS), cut_off:
        tickets = [await cut_off.outbox.put("a", b"%d" % number) for number in range(3)]
        tickets.append(await cut_off.outbox.delete("b"))
        with pytest.raises(WaitTimeout):
            await cut_off.outbox.outcome(tickets[0], timeout=0.05)
    config = NatsConfig.of(server.url)
    fold = Fold.open(bucket.name, tmp_path / "fold", config=config, outbox=tmp_path / "outbox")
    async with asyncio.timeout(PATIENCE_SECONDS), fold:
        outcomes = [await fold.outbox.outcome(ticket) for ticket in tickets]
        assert [one.result for one in outcomes] == [APPLIED] * 4
        await fold.wait_for(outcomes[-1].version)
        entry = fold.get("a")
        assert entry is not None
        assert entry.value == b"2"
    assert await messages(bucket) == 4


async def test_writes_after_one_that_was_not_applied_are_superseded(
    make: Maker, tmp_path: Path
) -> None:
    bucket = await make()
    await bucket.writer().put("a", b"theirs")
    file = OutboxFile(tmp_path / "outbox", bucket.name)
    for value in (b"1", b"2"):
        file.add("a", Op.PUT, value, None, 0)
    file.close()
    async with folding(bucket, tmp_path) as fold:
        outcomes = [await fold.outbox.outcome(ticket) for ticket in (1, 2)]
        assert [one.result for one in outcomes] == [SUPERSEDED, SUPERSEDED]
    assert await messages(bucket) == 1


class Lossy:
    """A writer whose first answer is lost after the server took the write.

    After the duplicate window the server does not know the message id of the second.
    """

    def __init__(self, writer: NatsWriter, *, is_recognised: bool) -> None:
        self._writer = writer
        self._is_recognised = is_recognised
        self.is_lost = False

    async def write_once(self, *given: Any, message_id: str, **more: Any) -> VersionToken:
        if self.is_lost and not self._is_recognised:
            message_id = "unknown"
        version = await self._writer.write_once(*given, message_id=message_id, **more)
        if not self.is_lost:
            self.is_lost = True
            raise OperationTimeout("no answer")
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


@pytest.mark.parametrize("is_recognised", [True, False])
async def test_write_with_lost_reply_is_applied_once(
    make: Maker, tmp_path: Path, *, is_recognised: bool
) -> None:
    """By its message id within the duplicate window, and by that of the newest record after it."""
    bucket = await make(HISTORY)
    file = OutboxFile(tmp_path / "outbox", bucket.name)
    lossy = Lossy(bucket.writer(), is_recognised=is_recognised)

    async def writer() -> Any:
        return lossy

    outbox = Outbox(file, writer, lambda key: 0)
    outbox.open()
    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await outbox.outcome(await outbox.put("a", b"1"))
    await outbox.close()
    assert lossy.is_lost
    assert (outcome.result, outcome.version) == (APPLIED, VersionToken.of(1))
    assert await messages(bucket) == 1


VICTIM = """
import asyncio, sys
from penstock.fold import Fold, WriteResult
from penstock.kv.kv_connection import NatsConfig

async def main(url, bucket, path, count):
    config = NatsConfig.of(url)
    async with Fold.open(bucket, path + "/fold", config=config, outbox=path + "/outbox") as fold:
        await fold.ready()
        print("ready", flush=True)
        outbox = fold.outbox
        while True:
            waiting = await outbox.waiting()
            last = waiting[-1].id if waiting else max(await known(outbox), 0)
            if last >= count:
                break
            print("queued", await outbox.put("a", b"%d" % (last + 1)), flush=True)
        for ticket in range(1, count + 1):
            outcome = await outbox.outcome(ticket)
            assert outcome.result is WriteResult.APPLIED, (ticket, outcome)
        print("done", flush=True)

async def known(outbox):
    ticket = 0
    while True:
        try:
            await asyncio.to_thread(outbox._file.outcome, ticket + 1)
        except KeyError:
            return ticket
        ticket += 1

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


async def test_kills_neither_lose_nor_repeat_write(
    make: Maker, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = await make(HISTORY)
    lines = await asyncio.to_thread(killed_until_done, server.url, bucket.name, tmp_path)
    assert lines[-1] == "done"
    assert await messages(bucket) == VICTIM_WRITES
    entry = await bucket.reader().get("a")
    assert entry is not None
    assert entry.value == b"%d" % VICTIM_WRITES


def killed_until_done(url: str, bucket: str, path: Path) -> list[str]:
    """Run the victim, killed after more and more lines, until it comes to its end."""
    arguments = [sys.executable, "-c", VICTIM, url, bucket, str(path), str(VICTIM_WRITES)]
    for lived in range(3, 200, 11):
        lines: list[str] = []
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            for line in victim.stdout:
                lines.append(line.strip())
                if len(lines) == lived and lines[-1] != "done":
                    victim.kill()
        if lines and lines[-1] == "done":
            return lines
    return lines


def test_outbox_is_of_one_bucket_and_one_process_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OutboxFile(tmp_path / "outbox", "b")
    with pytest.raises(StoreIOError, match="locked"):
        OutboxFile(tmp_path / "outbox", "b")
    monkeypatch.setattr("penstock.fold.follow.outbox_file.WAITING_MAX", 2)
    for _ in range(2):
        file.add("a", Op.PUT, b"", None, 0)
    with pytest.raises(OutboxFull):
        file.add("a", Op.PUT, b"", None, 0)
    file.close()
    with pytest.raises(FoldMismatch, match="bucket b"):
        OutboxFile(tmp_path / "outbox", "other")


def test_old_outcomes_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.fold.follow.outbox_file.OUTCOMES_MAX", 2)
    file = OutboxFile(tmp_path / "outbox", "b")
    for _ in range(4):
        file.add("a", Op.PUT, b"", 0, 0)
    for number in range(1, 5):
        file.record(number, outbox_module.Outcome(APPLIED, VersionToken.of(number)))
    with pytest.raises(KeyError):
        file.outcome(1)
    for number in (3, 4):
        assert file.outcome(number) is not None
    file.close()
