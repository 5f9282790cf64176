"""Random lives of a bucket and a fold of it, against what the bucket itself holds at rest.

A life is a sequence of steps drawn from a seed: writes, deletes, TTLs, purges by filter and by
sequence, deleted messages, recreation, server directories put back, restarts and
kills of the server, and a fold that comes and goes. At the end the fold must hold what the bucket
lists, key by key, or its status must say why not; of a bucket that drops values it may hold
more, and must say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from typing import TYPE_CHECKING, Any

from penstock.fold import Fold, FoldState
from penstock.fold.follow.resume import FALLBACK_DOUBT
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from support.folds import contents
from support.following import HEARTBEAT, QUICK, live
from support.patience import PATIENCE_SECONDS, pause_after

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.kv.bucket import NatsBucket
    from support.servers import ServerUnderTest

KEYS = 12
STEPS = 14
HISTORIES = (1, 5, 64)
SETTLED_STATES = (FoldState.STALE, FoldState.FAILED)
BACKENDS = ("append-log", "sqlite", "lmdb", "rocksdb")


class Life:
    """One bucket on one server, and one fold."""

    def __init__(self, server: ServerUnderTest, directory: Path, seed: int) -> None:
        self.server = server
        self.directory = directory
        self.chance = random.Random(seed)
        self.name = f"life{seed}"
        self.config = BucketConfig(
            history=self.chance.choice(HISTORIES),
            deny_delete=False,
            allow_msg_ttl=self.chance.random() < 0.3,
            max_bytes=self.chance.choice((None, None, None, 900)),
            discard="old",
        )
        self.backend = BACKENDS[seed % len(BACKENDS)]
        self.story: list[str] = [f"{seed} {self.backend} {self.config}"]
        self.stack = contextlib.AsyncExitStack()
        self.fold: Fold | None = None
        self.has_copy = False

    async def run(self) -> None:
        """Live, and come to rest; AssertionError if the fold is wrong without a word."""
        try:
            await self._connect()
            for _ in range(STEPS):
                await self._step()
            await self._open_fold()
            await self._rest()
        finally:
            await self._close_fold()
            await self.stack.aclose()

    # -- steps

    async def _step(self) -> None:
        steps = [self._write] * 6 + [self._toggle_fold] * 3
        steps += [self._purge_key, self._purge_to, self._delete_message, self._expire]
        steps += [self._recreate, self._copy, self._put_back, self._restart]
        step = self.chance.choice(steps)
        self.story.append(step.__name__)
        await step()

    async def _write(self) -> None:
        writer = self.bucket.writer()
        for _ in range(self.chance.randrange(1, 15)):
            if self.chance.random() < 0.2:
                await writer.delete(self._key())
            else:
                await writer.put(self._key(), b"%d" % self.chance.randrange(10**9))

    async def _expire(self) -> None:
        if self.config.allow_msg_ttl:
            subject = f"$KV.{self.name}.{self._key()}"
            await self.bucket.requests.publish(subject, b"short", {"Nats-TTL": "1s"})

    async def _purge_key(self) -> None:
        await self._call("STREAM.PURGE", {"filter": f"$KV.{self.name}.{self._key()}"})

    async def _purge_to(self) -> None:
        last = (await self._call("STREAM.INFO"))["state"]["last_seq"]
        await self._call("STREAM.PURGE", {"seq": self.chance.randrange(1, last + 2)})

    async def _delete_message(self) -> None:
        last = (await self._call("STREAM.INFO"))["state"]["last_seq"]
        seq = max(1, last - self.chance.randrange(6))
        await self._call("STREAM.MSG.DELETE", {"seq": seq})

    async def _recreate(self) -> None:
        await self._call("STREAM.DELETE")
        self.bucket = await self.connection.bucket(self.name, self.config)

    async def _copy(self) -> None:
        await asyncio.to_thread(self.server.stop)
        shutil.rmtree(self.directory / "copy", ignore_errors=True)
        shutil.copytree(self.server.workdir / "store", self.directory / "copy")
        self.has_copy = True
        await self._relaunch()

    async def _put_back(self) -> None:
        if not self.has_copy:
            return
        await asyncio.to_thread(self.server.stop)
        shutil.rmtree(self.server.workdir / "store")
        shutil.copytree(self.directory / "copy", self.server.workdir / "store")
        await self._relaunch()

    async def _restart(self) -> None:
        await self._relaunch()

    async def _toggle_fold(self) -> None:
        await (self._open_fold() if self.fold is None else self._close_fold())

    # -- the rest

    async def _rest(self) -> None:
        assert self.fold is not None
        loop = asyncio.get_running_loop()
        began, there, held = loop.time(), {}, {}
        while loop.time() - began < PATIENCE_SECONDS:
            there, held = await self._there(), contents(self.fold.store)
            status = self.fold.status()
            if held == there or (status.state in SETTLED_STATES and status.error):
                return
            has_all = all(held.get(key) == entry for key, entry in there.items())
            if status.doubt == FALLBACK_DOUBT or (status.doubt and has_all):
                return
            await asyncio.sleep(pause_after(loop.time() - began))
        raise AssertionError(
            f"live and different: {self.fold.status()}\n{self.story}\n"
            f"extra {held.keys() - there.keys()} missing {there.keys() - held.keys()}"
        )

    async def _there(self) -> dict[str, Any]:
        return await live(self.bucket)

    def _key(self) -> str:
        return f"{'ab'[self.chance.randrange(2)]}.{self.chance.randrange(KEYS // 2)}"

    async def _call(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return (await self.bucket.requests.call(f"{subject}.KV_{self.name}", body)).document

    async def _relaunch(self) -> None:
        await asyncio.to_thread(self.server.restart)
        await self._connect()

    async def _connect(self) -> None:
        await self.stack.aclose()
        connection = NatsConnection(NatsConfig.of(self.server.url))
        self.connection = await self.stack.enter_async_context(connection)
        self.bucket: NatsBucket = await self.connection.bucket(self.name, self.config)

    async def _open_fold(self) -> None:
        if self.fold is None:
            fold = Fold.open(
                self.name,
                self.directory / "fold",
                config=NatsConfig.of(self.server.url),
                backend=self.backend,
                batch=QUICK,
                heartbeat=HEARTBEAT,
            )
            self.fold = await fold.__aenter__()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.chance.choice((0.01, 2))):
                    await self.fold.ready()

    async def _close_fold(self) -> None:
        fold, self.fold = self.fold, None
        if fold is not None:
            await fold.close()
