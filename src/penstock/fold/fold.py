"""`Fold`: a local copy of a bucket that keeps itself up to date, and answers from its own store.

    async with Fold.open(bucket, "state.db", scope="node.") as fold:
        await fold.ready()
        entry = fold.get("node.eu-1")

It owns the store, the loop and the restarts: whatever ends a watch is followed by a pause and a new
one from the store's cursor. Reading never needs the server; `status` says how old the answers may
be. Only a fold that is of something else than it was opened for ends for good. Of one event loop;
`get`, `get_many`, `range` and `count` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from msgspec import Struct

from penstock.fold.batching import BatchConfig
from penstock.fold.committing import Committer
from penstock.fold.errors import ArtifactInvalid, FoldMismatch, StoreError, StorePoisoned
from penstock.fold.exports import Exports
from penstock.fold.finding import bytes_at
from penstock.fold.following import Followers
from penstock.fold.loop import Application, FoldLoop, Listener, Surroundings
from penstock.fold.memory import MemorySnapshot
from penstock.fold.origins import backend_of, open_store, origin_of, scope_of
from penstock.fold.repairing import Repair
from penstock.fold.worker import Worker
from penstock.kv.contract import HEARTBEAT_SECONDS
from penstock.kv.errors import BucketNotFound, FoldError, RepairRefused
from penstock.kv.types import Scope, VersionToken, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from penstock.fold.contract import SnapshotReader, SnapshotStore
    from penstock.fold.decisions import Plan
    from penstock.fold.extending import Extension
    from penstock.fold.following import Changes
    from penstock.fold.gaps import Anchor
    from penstock.fold.manifest import Manifest
    from penstock.fold.observing import Observer
    from penstock.fold.origins import Origin
    from penstock.fold.sources import ArtifactSource
    from penstock.kv.connection import NatsConfig
    from penstock.kv.contract import KvStore
    from penstock.kv.types import KvEntry, KvUpdate

PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 30.0

T = TypeVar("T")
log = logging.getLogger(__name__)


class FoldState(enum.Enum):
    """How a fold fares. It answers in all of them but the first and the last."""

    OPENING = "opening"
    CATCHING_UP = "catching up"
    LIVE = "live"
    REPAIRING = "repairing"
    RETRYING = "retrying"
    """The watch failed and is about to be tried again; see the status for why."""
    STALE = "stale"
    """The bucket is gone, a repair was refused, or the artifact for it is of no use.

    It is tried again, but somebody should look.
    """
    FAILED = "failed"
    """It is a fold of something else; it is not tried again."""
    CLOSED = "closed"


class FoldStatus(Struct, frozen=True, kw_only=True):
    """A fold at one moment."""

    state: FoldState
    cursor: WatchCursor
    newest: int
    """The highest revision the bucket is known to have had, of keys in the fold's scope."""
    lag: int
    """Revisions between the cursor and that."""
    entries: int
    identity: str
    scope: tuple[str, ...]
    repairs: int
    restarts: int
    rejected: int
    """Updates for which `parse` raised: in the fold, but not applied."""
    error: str
    """What ended the last watch; empty while one goes well."""


class Fold:
    """Made by `open`; begins when its context is entered."""

    def __init__(
        self,
        origin: Origin,
        scope: Scope,
        path: Path | str,
        kind: type[SnapshotStore],
        options: Mapping[str, object],
        *,
        bootstrap: ArtifactSource | None,
        repair: Repair,
        application: Application[Any],
        batch: BatchConfig,
        observers: Sequence[Observer],
        extensions: Sequence[Extension],
        heartbeat: float,
    ) -> None:
        self._origin = origin
        self._scope = scope
        self._path = path
        self._kind = kind
        self._options = options
        self._bootstrap = bootstrap
        self._repair = repair
        self._application = application
        self._batch = batch
        self._observers = tuple(observers)
        self._extensions = tuple(extensions)
        self._store: SnapshotStore | None = None
        self._worker = Worker()
        self._followers = Followers()
        self._ready = asyncio.Event()
        self._around = Surroundings(
            exports=Exports(), listener=_Progress(self), heartbeat=heartbeat
        )
        self._task: asyncio.Task[None] | None = None
        self._state = FoldState.OPENING
        self._error: Exception | None = None
        self._newest = 0
        self._repairs = 0
        self._restarts = 0
        self._is_poisoned = False
        self._pause = PAUSE_SECONDS_FIRST

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
    ) -> Self:
        """A fold of a bucket, or of a part of it, in a store at `path`.

        `bucket` is one that is open, a URL that ends in its name, or its name on the server of
        `config`. `options` are those of the backend's own `open`. `bootstrap` is where a fold that
        does not exist yet comes from, and what repairs use unless `repair` says otherwise.
        `extensions` (digests, indexes, quarantines) are kept true in every commit. After three
        missed `heartbeat`s (seconds) the watch is made anew.
        """
        origin = origin_of(bucket, config)
        kind = backend_of(backend)
        repair = Repair.auto(bootstrap) if repair is None else repair
        scratch = None if kind is MemorySnapshot else Path(path).parent
        return cls(
            origin,
            scope_of(scope),
            path,
            kind,
            options or {},
            bootstrap=bootstrap,
            repair=replace(
                repair,
                reader=repair.reader or origin.reader,
                scratch=repair.scratch or scratch,
            ),
            application=Application(parse, apply, None, on_apply_error),
            batch=BatchConfig() if batch is None else batch,
            observers=observers,
            extensions=extensions,
            heartbeat=heartbeat,
        )

    async def __aenter__(self) -> Self:
        try:
            self._store = await open_store(
                self._kind,
                self._path,
                self._options,
                self._bootstrap,
                self._scope,
                self._worker,
            )
            await self._worker.run(self._attach, self._store)
        except BaseException:
            if self._store is not None:
                await self._worker.run(self._store.close)
            self._worker.close()
            raise
        self._task = asyncio.create_task(self._supervise(), name=f"fold of {self._origin.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Flush, end the watch and close the store; closing twice is allowed."""
        self._around.stop.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._state is not FoldState.CLOSED:
            self._state = FoldState.CLOSED
            self._end(StoreError("the fold is closed"))
            if self._store is not None:
                await self._worker.run(self._store.close)
            self._worker.close()

    # -- waiting

    async def ready(self) -> None:
        """Wait until the fold has caught up with its bucket once; raises if it never will."""
        if not self._ready.is_set():
            await self._ready.wait()
        if self._state is FoldState.FAILED and self._error is not None:
            raise self._error
        if self._state is FoldState.CLOSED:
            raise StoreError("the fold is closed")

    async def wait_for(self, revision: int | VersionToken) -> None:
        """Wait until everything up to a revision is in the store: what a write returned, say.

        A fold of a part of the bucket passes what is not its own only now and then.
        """
        wanted = revision.revision if isinstance(revision, VersionToken) else revision
        if wanted is None:
            raise ValueError("the version is not a revision")
        if self.cursor.rank < wanted:
            await self._followers.wait_for(wanted)

    def changes(self) -> Changes:
        """Batches from now on (`async for`), once they are in the store, until the fold is closed.

        `ChangesLost` for a reader that falls too far behind.
        """
        return self._followers.changes()

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
        """How much disk the store takes, with the files beside it that are its own."""
        return 0 if self._kind is MemorySnapshot else bytes_at(self._path)

    def reader(self) -> SnapshotReader:
        """A reader of its own, to be closed before the fold."""
        return self.store.reader()

    @property
    def store(self) -> SnapshotStore:
        """The store, to be read. Changing it is the fold's alone."""
        if self._store is None:
            raise StoreError("the fold is not open: enter its context first")
        return self._store

    @property
    def cursor(self) -> WatchCursor:
        """Everything up to here is in the store."""
        return self.store.cursor

    @property
    def name(self) -> str:
        """The bucket's name."""
        return self._origin.name

    @property
    def state(self) -> FoldState:
        return self._state

    @property
    def lag(self) -> int:
        """Revisions the bucket is known to be ahead."""
        return max(0, self._newest - self.cursor.rank)

    @property
    def rejected(self) -> int:
        """Updates for which `parse` raised, since the fold was opened."""
        return self._around.rejections.count

    def status(self) -> FoldStatus:
        """How the fold fares. Counts the entries, which some stores have to walk for."""
        store, cursor = self.store, self.cursor
        newest = max(self._newest, cursor.rank)
        return FoldStatus(
            state=self._state,
            cursor=cursor,
            newest=newest,
            lag=newest - cursor.rank,
            entries=store.count(),
            identity=store.meta.identity,
            scope=self._scope.prefixes,
            repairs=self._repairs,
            restarts=self._restarts,
            rejected=self.rejected,
            error="" if self._error is None else str(self._error),
        )

    # -- copying

    async def export_to(self, dest: Path | str, *, form: str | None = None) -> Manifest:
        """Make an artifact of everything received so far; see `SnapshotStore.export_to`."""
        return await self.exports.export_to(dest, form=form)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do something to the store between two commits, in its thread: verify a digest, say."""
        return await self._worker.run(work, *args)

    @property
    def exports(self) -> Exports:
        """The queue of exports, for those who bring their own rounds."""
        assert self._around.exports is not None
        return self._around.exports

    # -- going on

    async def _supervise(self) -> None:
        while not self._around.stop.is_set():
            try:
                await self._run_once()
            except asyncio.CancelledError:
                raise
            except FoldMismatch as error:
                self._error, self._state = error, FoldState.FAILED
                log.error("the fold ends bucket=%s reason=%s", self.name, error)
                self._end(error)
                return
            except Exception as error:
                self._failed(error)
            if not self._around.stop.is_set():
                await self._rest()

    async def _run_once(self) -> None:
        if self._is_poisoned:
            await self._reopen()
        self._state = FoldState.CATCHING_UP
        loop = FoldLoop(
            self._origin.watcher,
            self._scope,
            committer=self._committer(),
            repair=self._repair,
            application=self._application,
            around=self._around,
            batch=self._batch,
        )
        await loop.run()

    def _committer(self) -> Committer:
        return Committer(self.store, self._worker, self._observers)

    def _failed(self, error: Exception) -> None:
        self._error = error
        self._restarts += 1
        self._is_poisoned = self._is_poisoned or isinstance(error, StorePoisoned)
        is_stale = isinstance(error, BucketNotFound | RepairRefused | ArtifactInvalid)
        self._state = FoldState.STALE if is_stale else FoldState.RETRYING
        if isinstance(error, FoldError):
            log.warning("the watch ended bucket=%s reason=%s", self.name, error)
        else:
            log.error("the watch broke bucket=%s", self.name, exc_info=error)

    async def _rest(self) -> None:
        """A pause, longer each time and never the same; exports are served meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
        committer = self._committer()
        while (left := until - loop.time()) > 0 and not self._around.stop.is_set():
            bells = {
                asyncio.create_task(self._around.stop.wait()),
                asyncio.create_task(self.exports.asked()),
            }
            await asyncio.wait(bells, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for bell in bells:
                bell.cancel()
            await self.exports.serve(committer.export_to)

    async def _reopen(self) -> None:
        """A store that does not know what is on its disk any more finds out by opening again."""
        with contextlib.suppress(Exception):
            await self._worker.run(self.store.close)
        store = await self._worker.run(self._kind.open, self._path, **self._options)
        await self._worker.run(self._attach, store)
        self._store, self._is_poisoned = store, False

    def _attach(self, store: SnapshotStore) -> None:
        for extension in self._extensions:
            store.attach(extension)

    def _end(self, reason: FoldError) -> None:
        self._ready.set()
        self._followers.close(reason)
        self.exports.close()


class _Progress(Listener):
    """What the loop tells, as the state of its fold."""

    def __init__(self, fold: Fold) -> None:
        self._fold = fold

    def watching(self, anchor: Anchor) -> None:
        self._fold._state = FoldState.CATCHING_UP
        self._fold._newest = max(anchor.last_seq, anchor.after)

    def received(self, newest: int) -> None:
        self._fold._newest = max(self._fold._newest, newest)

    def committed(self, updates: Sequence[KvUpdate], cursor: WatchCursor) -> None:
        self._fold._followers.committed(updates, cursor.rank)

    def caught_up(self) -> None:
        fold = self._fold
        if fold._scope != Scope.all():
            # What lies behind its cursor is of other prefixes: it is not behind with that.
            fold._newest = fold.cursor.rank
        fold._state, fold._error, fold._pause = FoldState.LIVE, None, PAUSE_SECONDS_FIRST
        fold._ready.set()

    def repairing(self, plan: Plan) -> None:
        self._fold._state = FoldState.REPAIRING
        self._fold._repairs += 1
