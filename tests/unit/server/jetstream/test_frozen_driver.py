"""A sync that fails while its stream is being deleted: the end of the deletion decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nats
import pytest

from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.server.jetstream.stream_driver import CommitGroup
from penstock.server.server_app import Server
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from penstock.server.jetstream.account_runtime import AccountRuntime

pytestmark = pytest.mark.sockets

MISSING = StoreError("msgs", "sync_dir", 2, "No such file or directory")


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[AccountRuntime]:
    async with Server(jetstream=True, store_dir=str(tmp_path)) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.close()
        runtime = server.service.jetstream
        assert runtime is not None
        yield runtime.accounts["$G"]


def fail_a_sync_during_a_deletion(account: AccountRuntime) -> None:
    """Leave a publish whose ack waits for a sync that has failed."""
    [driver] = account.drivers
    driver.host.publish(Inbound("s", "ack", b"", b"hello"), account.runtime.now_ns())
    commits = driver.host.commit()
    driver.freeze(frozen=True)
    driver._syncing = True
    driver._synced(commits, CommitGroup([]), MISSING)


async def test_deletion_acknowledges_what_its_sync_lost(
    account: AccountRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    perform = account.performer.perform

    def watched(effects: list[object]) -> None:
        sent.extend(effect.subject for effect in effects if isinstance(effect, Send))
        perform(effects)  # type: ignore[arg-type]

    monkeypatch.setattr(account.performer, "perform", watched)
    [driver] = account.drivers
    fail_a_sync_during_a_deletion(account)
    assert driver.host.failure is None
    account.retire(driver.host)
    account.assets.drop(driver.host)
    assert sent == ["ack"]


async def test_stream_fails_if_its_deletion_fails(account: AccountRuntime) -> None:
    [driver] = account.drivers
    fail_a_sync_during_a_deletion(account)
    driver.freeze(frozen=False)
    assert driver.host.failure is MISSING
