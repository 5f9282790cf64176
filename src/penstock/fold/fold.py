"""`Fold`: a local replica of a bucket that follows the bucket and serves reads from its own store.

    async with Fold.open(bucket, "state.db", scope="node.") as fold:
        await fold.ready()
        entry = fold.get("node.eu-1")

A fold owns the store and the watch loop. When a watch ends, the fold pauses and starts a new one
from the store's cursor. It stops for good only if the store belongs to another bucket or scope.
Reads never need the server; `status` reports how far the fold lags. Use a fold from one event loop;
`get`, `get_many`, `range` and `count` may be called from any thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from penstock.bulk.ordered_consumer import HEARTBEATS_MISSED_MAX
from penstock.fold.artifact.store_detect import bytes_at
from penstock.fold.errors import FoldStoreError, WaitTimeout
from penstock.fold.fold_status import FoldState, FoldStatus
from penstock.fold.follow.batch_buffer import BatchConfig
from penstock.fold.follow.keep_rules import Keep, keep_of
from penstock.fold.follow.open_target import backend_of, origin_of, scope_of
from penstock.fold.follow.repair import Repair
from penstock.fold.follow.supervisor import Setup, Supervisor
from penstock.fold.follow.watch_loop import Application
from penstock.fold.store.memory_store import MemorySnapshot
from penstock.kv.contract import HEARTBEAT_SECONDS
from penstock.kv.errors import BucketError
from penstock.kv.kv_types import Scope, VersionToken, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from penstock.fold.artifact.export_requests import Exports
    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.follow.observer import Observer
    from penstock.fold.follow.resync import Resynced
    from penstock.fold.follow.subscribers import Changes
    from penstock.fold.follow.write_outbox import Outbox
    from penstock.fold.ship.copy_sources import ArtifactSource
    from penstock.fold.store.contract import SnapshotReader, SnapshotStore
    from penstock.fold.store.extensions import Extension
    from penstock.kv.contract import KvStore, KvWriter
    from penstock.kv.kv_connection import NatsConfig
    from penstock.kv.kv_types import KvEntry, KvUpdate

T = TypeVar("T")


class Fold:
    """A local replica of a bucket. Create it with `open`; it starts when its context is entered."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._of = Supervisor(setup)

    @classmethod
    def open(
        cls,
        bucket: KvStore | str,
        path: Path | str = "",
        *,
        scope: Scope | str | Sequence[str] = "",
        backend: str | type[SnapshotStore] = "sqlite",
        options: Mapping[str, object] | None = None,
        config: NatsConfig | None = None,
        bootstrap: ArtifactSource | None = None,
        repair: Repair | None = None,
        parse: Callable[[KvUpdate], Any] | None = None,
        apply: Callable[[list[Any]], Awaitable[None] | None] | None = None,
        on_apply_error: Literal["stop", "retry"] = "stop",
        batch: BatchConfig | None = None,
        observers: Sequence[Observer] = (),
        extensions: Sequence[Extension] = (),
        heartbeat: float = HEARTBEAT_SECONDS,
        remote_reads: bool = False,
        keep: Keep | Callable[[KvUpdate], bytes | None] | None = None,
        outbox: Path | str | None = None,
    ) -> Self:
        """Return a fold of a bucket, or of some prefixes of it, in a store at `path`.

        `bucket` is an open bucket, a URL that ends in its name, or its name on the server of
        `config`. `options` are passed to the backend's `open`. A fold that does not exist yet is
        created from the newest artifact of `bootstrap`; repairs use the same source unless `repair`
        is given. `extensions` (digests, indexes, quarantines) are updated in every commit. After
        three missed `heartbeat`s (seconds) the fold starts a new watch. With `remote_reads`, `read`
        queries the bucket until the fold has caught up once. `keep` shortens values before they are
        stored, or omits keys: `Keep(name, function)`, or `KEYS_ONLY`. `outbox` is a file for writes
        that are queued until the server can be reached; see `Fold.outbox`.
        """
        origin = origin_of(bucket, config)
        kind = backend_of(backend)
        repair = Repair.auto(bootstrap) if repair is None else repair
        scratch = None if kind is MemorySnapshot else Path(path).parent
        setup = Setup(
            origin=origin,
            scope=scope_of(scope),
            path=path,
            kind=kind,
            options=options or {},
            bootstrap=bootstrap,
            repair=replace(
                repair,
                reader=repair.reader or origin.reader,
                scratch=repair.scratch or scratch,
            ),
            application=Application(parse, apply, None, on_apply_error),
            batch=BatchConfig() if batch is None else batch,
            observers=tuple(observers),
            extensions=tuple(extensions),
            heartbeat=heartbeat,
            remote_reads=remote_reads,
            keep=keep_of(keep),
            outbox=None if outbox is None else Path(outbox),
        )
        return cls(setup)

    async def __aenter__(self) -> Self:
        await self._of.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Flush, stop the watch and close the store; closing twice is allowed."""
        await self._of.close()

    # -- waiting

    async def ready(self) -> None:
        """Wait until the fold has caught up with its bucket once; raise if it failed or closed."""
        await self._of.ready.wait()
        if self.state is FoldState.FAILED and self._of.error is not None:
            raise self._of.error
        if self.state is FoldState.CLOSED:
            raise FoldStoreError("the fold is closed")

    async def wait_for(
        self,
        revision: int | VersionToken,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the error has the version
    ) -> None:
        """Wait until everything up to a revision, such as the result of a write, is in the store.

        A fold of some prefixes advances past other keys only with bookmarks, which come
        periodically. After `timeout` seconds it raises `WaitTimeout`, a `TimeoutError`. A version
        returned by a write also names its log: the fold of a recreated bucket switches to that log
        first, and `VersionReset` is raised if the bucket has yet another log. A plain number refers
        to the log the fold follows.
        """
        wanted = revision.revision if isinstance(revision, VersionToken) else revision
        if wanted is None:
            raise ValueError("the version is not a revision")
        log = revision.log_identity if isinstance(revision, VersionToken) else ""
        _ = self.store  # raises if the fold is not open
        if self._of.has(wanted, log):
            return
        waiting = asyncio.timeout(timeout)
        try:
            async with waiting:
                await self._of.wait_for(wanted, log)
        except TimeoutError:
            if not waiting.expired():
                raise
            reason = f"the fold is at {self.cursor.rank}, not at {wanted}, after {timeout:g} s"
            raise WaitTimeout(reason, version=VersionToken.of(wanted)) from None

    def changes(self) -> Changes:
        """Return an async iterator of batches committed from now on, until the fold is closed.

        It raises `ChangesLost` if its reader falls too far behind.
        """
        return self._of.subscribers.changes()

    # -- reading

    def get(self, key: str) -> KvEntry | None:
        return self.store.get(key)

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        return self.store.get_many(keys)

    def range(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Iterator[KvEntry]:
        """See `SnapshotReader.range`."""
        return self.store.range(prefix, after=after, limit=limit)

    def count(self, prefix: str = "") -> int:
        return self.store.count(prefix)

    def byte_count(self) -> int:
        """Return the bytes on disk of the store and its sidecar files."""
        return 0 if self._setup.kind is MemorySnapshot else bytes_at(self._setup.path)

    def reader(self) -> SnapshotReader:
        """Return a separate reader; the caller closes it before the fold."""
        return self.store.reader()

    @property
    def store(self) -> SnapshotStore:
        """The store, for reading only; only the fold may change it."""
        if self._of.store is None:
            raise FoldStoreError("the fold is not open: enter its context first")
        return self._of.store

    @property
    def cursor(self) -> WatchCursor:
        """The position up to which everything is in the store."""
        return self.store.cursor

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._setup.origin.name

    @property
    def state(self) -> FoldState:
        return self._of.state

    @property
    def lag(self) -> int:
        """Number of revisions by which the bucket is known to be ahead."""
        return max(0, self._of.newest - self.cursor.rank)

    @property
    def error(self) -> str:
        """Why the last watch ended or the store rejects commits; empty if there is no error."""
        return "" if self._of.error is None else str(self._of.error)

    @property
    def contact_age(self) -> float | None:
        """Seconds since the last message or heartbeat of the server; None if there was none."""
        return self._of.contact_age

    def is_healthy(self, *, max_lag: int | None = None, max_age: float | None = None) -> bool:
        """Return whether the fold is live, at most `max_lag` revisions behind, and in contact with
        the server within the last `max_age` seconds, three heartbeats by default. A live fold whose
        server does not reply stays live for up to a minute. Uses neither server nor disk; may be
        called from any thread."""
        if self.state is not FoldState.LIVE:
            return False
        if max_lag is not None and self.lag > max_lag:
            return False
        if max_age is None:
            max_age = HEARTBEATS_MISSED_MAX * self._setup.heartbeat
        age = self.contact_age
        return age is not None and age <= max_age

    @property
    def rejected(self) -> int:
        """Number of updates for which `parse` raised since the fold was opened."""
        return self._of.around.rejections.count

    def status(self) -> FoldStatus:
        """Return the status of the fold. Counts the entries, which some stores do by scanning."""
        store, cursor = self.store, self.cursor
        newest = max(self._of.newest, cursor.rank)
        return FoldStatus(
            state=self.state,
            cursor=cursor,
            newest=newest,
            lag=newest - cursor.rank,
            entries=store.count(),
            identity=store.meta.identity,
            scope=self._setup.scope.prefixes,
            repairs=self._of.repairs,
            restarts=self._of.restarts,
            rejected=self.rejected,
            error=self.error,
            doubt=store.meta.doubt,
            contact_age=self.contact_age,
        )

    # -- the bucket itself

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: VersionToken | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it bounds the second part alone
    ) -> VersionToken:
        """Write to the bucket, wait until the fold contains the write, and return its version.

        With `expected`, write only if the key has that version (`VersionToken.of(0)`: no value),
        else raise `RevisionMismatch`. `timeout` limits the wait only: `WaitTimeout` carries the
        version of the write, which has succeeded. The write fails if the server is unreachable.
        """
        writer = await self._writer(key)
        if expected is None:
            version = await writer.put(key, value)
        else:
            version = await writer.update(key, value, expected)
        await self.wait_for(version, timeout=timeout)
        return version

    async def delete(
        self,
        key: str,
        *,
        expected: VersionToken | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it bounds the second part alone
    ) -> VersionToken:
        """Delete a key of the bucket, wait until the fold has applied it, and return the version of
        the delete marker."""
        writer = await self._writer(key)
        if expected is None:
            version = await writer.delete(key)
        else:
            version = await writer.delete_if(key, expected)
        await self.wait_for(version, timeout=timeout)
        return version

    async def read(self, key: str) -> KvEntry | None:
        """Read a key from the fold; with `remote_reads`, from the bucket until the first catch-up.

        If the bucket is unreachable, the result comes from the fold if it has a cursor; otherwise
        the error is raised.
        """
        self._check_key(key)
        if not self._setup.remote_reads or self._of.ready.is_set():
            return self.get(key)
        try:
            return await (await self._of.access.reader()).get(key)
        except BucketError:
            if not self.cursor:
                raise
            return self.get(key)

    @property
    def outbox(self) -> Outbox:
        """The queue of writes that are stored on disk and sent when the server is reachable."""
        if self._of.outbox is None:
            raise FoldStoreError("the fold was opened without an outbox, or is not open")
        return self._of.outbox

    async def _writer(self, key: str) -> KvWriter:
        self._check_key(key)
        _ = self.store  # raises if the fold is not open
        return await self._of.access.writer()

    def _check_key(self, key: str) -> None:
        if not self._setup.scope.holds(key):
            raise ValueError(f"{key} is outside the fold's prefixes {self._setup.scope.prefixes}")

    # -- copying

    async def export_to(self, dest: Path | str, *, form: str | None = None) -> Manifest:
        """Export everything received so far as an artifact; see `SnapshotStore.export_to`."""
        return await self.exports.export_to(dest, form=form)

    async def resync(self) -> Resynced:
        """Make the fold equal to the bucket: remove keys it does not list, read all others again.

        Use it after `penstock fold verify` found differences, or for a `STALE` fold whose repair
        was refused. Removed entries are first written to `<path>.aside-<cursor>`, an append log. If
        the bucket cannot be listed or read, the error is raised and the fold continues as before.
        """
        return await self._of.resync()

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Run `work` in the store's thread between two commits, for example to verify a digest."""
        return await self._of.worker.run(work, *args)

    @property
    def exports(self) -> Exports:
        """The export queue, for callers that run their own export rounds."""
        return self._of.exports
