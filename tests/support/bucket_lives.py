"""Random lives of a bucket and a fold of it, against what an independent client reads at rest.

A life is a sequence of steps drawn from a seed: writes, deletes, purges, TTLs, messages deleted one
by one, purges by filter and by sequence, changed limits, recreation, backups and server directories
put back, kills of the server and of a process that follows, cuts of the fold's connection, and a
fold that is closed and opened again. At the end the fold must hold what the bucket lists, key by
key, or its status must say why not; of a bucket that drops values it may hold more, and must say
so. The bucket is read with nats-py, message by message, so that no code of folds judges itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import nats

from faults.fold_follower import Follow
from penstock.fold import Fold, FoldState
from penstock.fold.follow.resume import FALLBACK_DOUBT
from penstock.kv.contract import BucketConfig
from penstock.kv.errors import BucketError
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from support.folds import contents
from support.followed_folds import HEARTBEAT, QUICK, Backup, back_up, put_back
from support.patience import PATIENCE_SECONDS, pause_after
from support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from nats.aio.client import Client

    from penstock.fold import FoldStatus
    from penstock.kv.bucket import NatsBucket
    from support.killed_followers import Victims
    from support.servers import ServerUnderTest

KEYS = 12
STEPS = 16
HISTORIES = (1, 5, 64)
BACKENDS = ("append-log", "sqlite", "lmdb", "rocksdb")
LIMITS: tuple[dict[str, int], ...] = (
    {"max_msgs": 9},
    {"max_bytes": 700},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 3},
    {"max_age": 1_000_000_000, "duplicate_window": 1_000_000_000},
)


class Listed(NamedTuple):
    """A value of the bucket, as an independent client reads it."""

    revision: int
    value: bytes


class Life:
    """One bucket on one server, and one fold."""

    def __init__(
        self, server: ServerUnderTest, directory: Path, seed: int, victims: Victims | None = None
    ) -> None:
        self.server = server
        self.directory = directory
        self.chance = random.Random(seed)
        self.victims = victims
        self.name = f"life{seed}"
        self.config = BucketConfig(
            history=HISTORIES[seed // len(BACKENDS) % len(HISTORIES)],
            deny_delete=False,
            allow_msg_ttl=self.chance.random() < 0.3,
            max_bytes=self.chance.choice((None, None, None, 900)),
            discard=self.chance.choice(("old", "old", "new")),
        )
        self.backend = BACKENDS[seed % len(BACKENDS)]
        self.prefix = self.chance.choice(("", "", "a."))
        self.story: list[str] = [f"{seed} {self.backend} {self.prefix!r} {self.config}"]
        self.stack = contextlib.AsyncExitStack()
        self.fold: Fold | None = None
        self.has_copy = False
        self.is_cut = False
        self.backup: Backup | None = None

    async def run(self) -> str:
        """Live, and come to rest; return how the fold ended. AssertionError if it is wrong without
        a word."""
        async with Proxy(self.server.port, self._pass, self._pass) as self.proxy:
            try:
                await self._connect()
                for _ in range(STEPS):
                    await self._step()
                self.is_cut = False
                await self._open_fold()
                return await self._rest()
            finally:
                await self._close_fold()
                await self.stack.aclose()

    def _pass(self, _number: int, data: bytes) -> bytes | None:
        return None if self.is_cut else data

    # -- steps

    async def _step(self) -> None:
        steps: list[Callable[[], Awaitable[None]]] = [self._write] * 7 + [self._toggle_fold] * 3
        steps += [self._purge_keys, self._purge_to, self._delete_message, self._expire]
        steps += [self._recreate, self._copy, self._put_back, self._kill_server, self._cut]
        steps += [self._back_up, self._restore, self._limit]
        if self.victims is not None:
            steps.append(self._kill_follower)
        step = self.chance.choice(steps)
        self.story.append(step.__name__)
        await step()

    async def _write(self) -> None:
        writer = self.bucket.writer()
        for _ in range(self.chance.randrange(1, 15)):
            key, drawn = self._key(), self.chance.random()
            with contextlib.suppress(BucketError):  # a full bucket that discards new values
                if drawn < 0.15:
                    await writer.delete(key)
                elif drawn < 0.2:
                    await writer.purge(key)
                else:
                    await writer.put(key, b"%d" % self.chance.randrange(10**9))

    async def _expire(self) -> None:
        if self.config.allow_msg_ttl:
            subject = f"$KV.{self.name}.{self._key()}"
            with contextlib.suppress(BucketError):
                await self.bucket.requests.publish(subject, b"short", {"Nats-TTL": "1s"})

    async def _purge_keys(self) -> None:
        key = self.chance.choice((self._key(), "a.*"))
        body: dict[str, Any] = {"filter": f"$KV.{self.name}.{key}"}
        if self.chance.random() < 0.3:
            body["keep"] = 1
        await self._call("STREAM.PURGE", body)

    async def _purge_to(self) -> None:
        await self._call("STREAM.PURGE", {"seq": self.chance.randrange(1, await self._last() + 2)})

    async def _delete_message(self) -> None:
        seq = max(1, await self._last() - self.chance.randrange(6))
        await self._call("STREAM.MSG.DELETE", {"seq": seq, "no_erase": self.chance.random() < 0.5})

    async def _limit(self) -> None:
        config = (await self._call("STREAM.INFO"))["config"]
        drawn = self.chance.choices(LIMITS, [2, 2, 2, 2, 1])[0]
        await self._call("STREAM.UPDATE", {**config, **drawn, "discard": "old"})

    async def _recreate(self) -> None:
        await self._call("STREAM.DELETE")
        self.bucket = await self.connection.bucket(self.name, self.config)

    async def _back_up(self) -> None:
        self.backup = await back_up(self.client, f"KV_{self.name}")

    async def _restore(self) -> None:
        if self.backup is not None:
            await put_back(self.client, self.backup)

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

    async def _kill_server(self) -> None:
        await self._relaunch()

    async def _cut(self) -> None:
        self.is_cut = not self.is_cut

    async def _toggle_fold(self) -> None:
        await (self._open_fold() if self.fold is None else self._close_fold())

    async def _kill_follower(self) -> None:
        """A process follows the bucket and is killed after a few commits."""
        assert self.victims is not None
        await self._close_fold()
        url = f"{self.server.url}/{self.name}"
        path = str(self.directory / "fold")
        follow = Follow(url, path, self.backend, scope=self.prefix)
        await self.victims.live_and_die(follow, self.chance.randrange(1, 5))

    # -- at rest

    async def _rest(self) -> str:
        loop = asyncio.get_running_loop()
        began = loop.time()
        there, held, status = dict[str, Listed](), dict[str, Listed](), None
        while loop.time() - began < PATIENCE_SECONDS:
            listed, held, status = await self._listed(), self._held(), self._status()
            if listed is not None:
                there = listed
                if verdict := self._verdict(there, held, status):
                    return verdict
            await asyncio.sleep(pause_after(loop.time() - began))
        raise AssertionError(
            f"live and different: {status}\n{self.story}\n"
            f"extra {held.keys() - there.keys()} missing {there.keys() - held.keys()} "
            f"other {[key for key in held if key in there and held[key] != there[key]]}"
        )

    def _verdict(
        self, there: dict[str, Listed], held: dict[str, Listed], status: FoldStatus
    ) -> str:
        """Return how the fold ended; empty while it differs without a reason."""
        if held == there:
            return "equal"
        if status.state in (FoldState.STALE, FoldState.FAILED) and status.error:
            return status.state.value
        has_all = all(held.get(key) == entry for key, entry in there.items())
        if status.doubt == FALLBACK_DOUBT or (status.doubt and has_all):
            return "doubt"
        return ""

    def _status(self) -> FoldStatus:
        assert self.fold is not None
        return self.fold.status()

    def _held(self) -> dict[str, Listed]:
        assert self.fold is not None
        held = contents(self.fold.store)
        return {key: Listed(one.version.revision or 0, one.value) for key, one in held.items()}

    async def _listed(self) -> dict[str, Listed] | None:
        """Read every message; None while one of them is still to expire."""
        newest: dict[str, Listed | None] = {}
        lead, seq = f"$KV.{self.name}.", 1
        subject = f"$JS.API.STREAM.MSG.GET.KV_{self.name}"
        while True:
            body = json.dumps({"seq": seq, "next_by_subj": ">"}).encode()
            document = json.loads((await self.client.request(subject, body, PATIENCE_SECONDS)).data)
            if "error" in document:
                break
            message = document["message"]
            seq = message["seq"] + 1
            header = base64.b64decode(message.get("hdrs", ""))
            if b"Nats-TTL: 1s" in header:
                return None
            key = message["subject"].removeprefix(lead)
            is_removed = b"KV-Operation:" in header or b"Nats-Marker-Reason:" in header
            value = base64.b64decode(message.get("data", ""))
            newest[key] = None if is_removed else Listed(message["seq"], value)
        return {
            key: one
            for key, one in newest.items()
            if one is not None and key.startswith(self.prefix)
        }

    # -- the surroundings

    def _key(self) -> str:
        return f"{'ab'[self.chance.randrange(2)]}.{self.chance.randrange(KEYS // 2)}"

    async def _last(self) -> int:
        last: int = (await self._call("STREAM.INFO"))["state"]["last_seq"]
        return last

    async def _call(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return (await self.bucket.requests.call(f"{subject}.KV_{self.name}", body)).document

    async def _relaunch(self) -> None:
        await asyncio.to_thread(self.server.restart)
        await self._connect()

    async def _connect(self) -> None:
        await self.stack.aclose()
        connection = NatsConnection(NatsConfig.of(self.server.url))
        self.connection = await self.stack.enter_async_context(connection)
        self.client: Client = await nats.connect(self.server.url, allow_reconnect=False)
        self.stack.push_async_callback(self.client.close)
        self.bucket: NatsBucket = await self.connection.bucket(self.name, self.config)

    async def _open_fold(self) -> None:
        if self.fold is None:
            fold = Fold.open(
                self.name,
                self.directory / "fold",
                config=NatsConfig.of(self.proxy.url),
                scope=self.prefix,
                backend=self.backend,
                batch=QUICK,
                heartbeat=HEARTBEAT,
            )
            self.fold = await fold.__aenter__()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.chance.choice((0.01, 1))):
                    await self.fold.ready()

    async def _close_fold(self) -> None:
        fold, self.fold = self.fold, None
        if fold is not None:
            await fold.close()
