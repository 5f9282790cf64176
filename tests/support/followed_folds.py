"""What live tests of folds share: waiting for a fold, and comparing it with its bucket."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.fold import BatchConfig, Fold
from support.folds import contents
from support.patience import PATIENCE_SECONDS, pause_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from penstock.kv.kv_types import KvEntry

HEARTBEAT = 0.2
#: A short window, so that a test is not spent waiting for batches to fill.
QUICK = BatchConfig(window=0.001, hydrate_window=0.005)


async def fill(bucket: NatsBucket, count: int, first: int = 1, prefix: str = "k") -> int:
    """Put so many keys; the last revision."""
    revision = 0
    for number in range(first, first + count):
        version = await bucket.writer().put(f"{prefix}{number}", b"%d" % number)
        revision = version.revision or 0
    return revision


async def live(bucket: NatsBucket) -> dict[str, KvEntry]:
    """What the bucket holds."""
    return {entry.key: entry async for entry in bucket.reader().scan()}


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Wait for a condition; fail if it does not come about."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - conditions of other threads ring no bell
            await asyncio.sleep(pause_after(loop.time() - began))


def fold_threads() -> int:
    """Threads of this process that change stores."""
    return sum(one.name.startswith("penstock fold") for one in threading.enumerate())


async def ready(fold: Fold) -> Fold:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await fold.ready()
    return fold


async def folded_up_to(fold: Fold, revision: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await fold.wait_for(revision)


async def assert_same(fold: Fold, bucket: NatsBucket) -> None:
    """The fold becomes what the bucket is."""
    watcher = bucket.watcher()
    assert watcher is not None
    info = await watcher.log_info()
    await folded_up_to(fold, info.last_seq)
    assert contents(fold.store) == await live(bucket)


async def recreate(bucket: NatsBucket, jetstream: JetStreamContext) -> None:
    config = dict(bucket.stream_config)
    await jetstream.delete_stream(config["name"])
    await jetstream.add_stream(
        name=config["name"], subjects=config["subjects"], max_msgs_per_subject=1
    )


class Backup(NamedTuple):
    """A stream as it was."""

    config: dict[str, Any]
    state: dict[str, Any]
    data: bytes


async def back_up(client: Client, stream: str) -> Backup:
    inbox = client.new_inbox()
    chunks = await client.subscribe(inbox)
    body = json.dumps({"deliver_subject": inbox, "no_consumers": True}).encode()
    answer = json.loads(
        (await client.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", body, PATIENCE_SECONDS)).data
    )
    data = b""
    while (message := await chunks.next_msg(timeout=PATIENCE_SECONDS)).data:
        data += message.data
        if message.reply:
            await message.respond(b"")
    return Backup(answer["config"], answer["state"], data)


async def put_back(client: Client, backup: Backup) -> None:
    """The stream as it was, in place of what it became."""
    name = backup.config["name"]
    await client.request(f"$JS.API.STREAM.DELETE.{name}", b"", PATIENCE_SECONDS)
    body = json.dumps({"config": backup.config, "state": backup.state}).encode()
    answer = json.loads(
        (await client.request(f"$JS.API.STREAM.RESTORE.{name}", body, PATIENCE_SECONDS)).data
    )
    for chunk in (backup.data, b""):
        await client.request(answer["deliver_subject"], chunk, timeout=PATIENCE_SECONDS)
