"""Compares the folds of one bucket on many nodes: each node publishes its status to a bucket.

    <bucket>.<node>   NodeStatus in JSON, overwritten by each report

`fleet` reads all reports. `Fleet.disagreements` compares digests at revisions that several nodes
know exactly: two digests for one revision mean that folds differ, and an operator should
investigate. A node that only lags does not count as different. Times are from the nodes' clocks.
"""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.fold.artifact.artifact_import import read_manifest
from penstock.fold.artifact.digest import DigestReport, FoldDigest, Terms, as_hex, digest_of
from penstock.fold.derive.quarantine import Quarantine
from penstock.fold.follow.keep_rules import KEYS_ONLY
from penstock.fold.follow.open_target import backend_of
from penstock.kv.kv_types import KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.fold.fold import Fold
    from penstock.fold.follow.keep_rules import Keep
    from penstock.fold.store.contract import SnapshotReader
    from penstock.kv.contract import KvReader, KvStore, KvWriter
    from penstock.kv.kv_types import KvEntry, WatchCursor

PUBLISH_SECONDS = 15.0
REJECTED_REPORTED_MAX = 100
"""Maximum number of undecodable keys in a report; the report also contains the full count."""
COMPARED_AT_ONCE = 1_000
DIFFERENT_REPORTED_MAX = 100
_OUTSIDE_KEYS = re.compile(r"[^-_=a-zA-Z0-9]")

log = logging.getLogger(__name__)


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a node about its fold."""

    node: str
    bucket: str
    at: float
    """Time of the report, in seconds since 1970."""
    state: str = ""
    cursor: int = 0
    lag: int = 0
    digest: DigestReport = DigestReport()
    rejected: tuple[str, ...] = ()
    """Keys whose values the node cannot decode; at most `REJECTED_REPORTED_MAX`."""
    rejected_count: int = 0
    error: str = ""


class Disagreement(msgspec.Struct, frozen=True):
    """Nodes with different digests at `revision`: `holders` maps each digest to its nodes."""

    bucket: str
    revision: int
    holders: dict[str, tuple[str, ...]]


class Fleet(msgspec.Struct, frozen=True):
    """All nodes that published a report, sorted by bucket and name."""

    nodes: tuple[NodeStatus, ...]

    def disagreements(self) -> list[Disagreement]:
        """Return, per bucket, log, scope and `keep`, the newest revision with different digests."""
        found = []
        for group in _comparable(self.nodes):
            by_revision = _digests_by_revision(group)
            differing = [revision for revision, digests in by_revision.items() if len(digests) > 1]
            if differing:
                revision = max(differing)
                holders = {digest: tuple(who) for digest, who in by_revision[revision].items()}
                found.append(Disagreement(group[0].bucket, revision, holders))
        return found

    def silent(self, now: float, seconds: float) -> list[NodeStatus]:
        """Return the nodes whose last report is older than `seconds`."""
        return [node for node in self.nodes if now - node.at > seconds]

    def rejecting(self) -> list[NodeStatus]:
        """Return the nodes that cannot decode some values."""
        return [node for node in self.nodes if node.rejected_count]


class BucketComparison(msgspec.Struct, frozen=True):
    """A fold compared with its bucket. `agree` is None if the bucket changed meanwhile."""

    agree: bool | None
    differing: tuple[str, ...] = ()
    """Keys that the fold lacks or has with another value; at most `DIFFERENT_REPORTED_MAX`."""
    extra: int = 0
    """Number of entries that the bucket does not have; it may have evicted them."""


def status_of(fold: Fold, node: str, *, now: float) -> NodeStatus:
    """Return the status of a fold, with the digest and quarantine attached to its store."""
    status = fold.status()
    report, count = DigestReport(), 0
    rejected: tuple[str, ...] = ()
    for extension in fold.store.attached:
        if isinstance(extension, FoldDigest):
            report = extension.report()
        elif isinstance(extension, Quarantine) and extension.is_current:
            count = len(extension)
            rejected = tuple(extension.first(REJECTED_REPORTED_MAX))
    return NodeStatus(
        node=node,
        bucket=fold.name,
        at=now,
        state=status.state.value,
        cursor=status.cursor.rank,
        lag=status.lag,
        digest=report,
        rejected=rejected,
        rejected_count=count,
        error=status.error,
    )


async def publish(writer: KvWriter, status: NodeStatus) -> None:
    """Publish the report of a node."""
    await writer.put(_key(status.bucket, status.node), msgspec.json.encode(status))


async def keep_publishing(
    fold: Fold,
    writer: KvWriter,
    node: str,
    *,
    seconds: float = PUBLISH_SECONDS,
    clock: Callable[[], float] = time.time,
) -> None:
    """Publish a report every `seconds`, until cancelled; a failed one is logged and skipped."""
    while True:
        try:
            status = await asyncio.to_thread(status_of, fold, node, now=clock())
            await publish(writer, status)
        except Exception as error:
            log.warning("the status was not published node=%s reason=%s", node, error)
        await asyncio.sleep(seconds)


async def fleet(reader: KvReader, bucket: str = "") -> Fleet:
    """Read the reports of all nodes, or of those that replicate `bucket`."""
    nodes = []
    async for entry in reader.scan(f"{_name(bucket)}." if bucket else ""):
        try:
            nodes.append(msgspec.json.decode(entry.value, type=NodeStatus))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("a status that is none key=%s", entry.key)
    latest = {(node.bucket, node.node): node for node in nodes}
    return Fleet(tuple(latest[name] for name in sorted(latest)))


async def compare_with_bucket(
    store: SnapshotReader,
    bucket: KvStore,
    *,
    prefixes: tuple[str, ...] = ("",),
    keep: Keep | None = None,
) -> BucketComparison:
    """Read the bucket and compare it with the fold; neither should change meanwhile.

    `keep` is the rule the fold was opened with. If the fold has a `keep` rule and none is passed,
    only keys and versions are compared, and a key that the fold lacks is not a difference.
    """
    watcher = bucket.watcher()
    if watcher is None:
        raise ValueError(f"bucket {bucket.name} does not say how far it is")
    before = await watcher.log_info()
    if store.meta.keep == KEYS_ONLY.name:
        keep = KEYS_ONLY
    walk = _BucketWalk(store, keep)
    for prefix in prefixes:
        async for entry in bucket.reader().scan(prefix):
            await walk.take(entry)
    await walk.end()
    if await watcher.log_info() != before:
        return BucketComparison(None)
    held = sum([await asyncio.to_thread(store.count, prefix) for prefix in prefixes])
    extra = held - walk.matched - walk.otherwise
    return BucketComparison(not walk.differing and not extra, tuple(walk.differing), extra)


async def digest_of_bucket(bucket: KvStore, *, prefixes: tuple[str, ...] = ("",)) -> str:
    """Return the digest of a complete fold of the bucket; the bucket must not change meanwhile."""
    terms, total = Terms(), 0
    for prefix in prefixes:
        async for entry in bucket.reader().scan(prefix):
            total += terms.of_entry(entry)
    return as_hex(total)


def digest_of_artifact(artifact: Path | str) -> tuple[WatchCursor, str]:
    """Verify an artifact and return its cursor and digest."""
    kind = backend_of(read_manifest(artifact).backend)
    with (
        tempfile.TemporaryDirectory() as scratch,
        kind.import_from(artifact, Path(scratch) / "copy") as copy,
    ):
        return copy.cursor, digest_of(copy)


class _BucketWalk:
    """Compares the entries of a bucket with those of a fold, a page at a time."""

    def __init__(self, store: SnapshotReader, keep: Keep | None) -> None:
        self._keep = keep
        self._has_values = keep is not None or not store.meta.keep
        self.matched = 0
        self.otherwise = 0
        self.differing: list[str] = []
        self._store = store
        self._page: list[KvEntry] = []

    async def take(self, entry: KvEntry) -> None:
        self._page.append(entry)
        if len(self._page) == COMPARED_AT_ONCE:
            await self.end()

    async def end(self) -> None:
        page, self._page = self._page, []
        keys = [entry.key for entry in page]
        for entry, held in zip(
            page, await asyncio.to_thread(self._store.get_many, keys), strict=True
        ):
            if self._agree(held, entry):
                self.matched += held is not None
                continue
            self.otherwise += held is not None
            if len(self.differing) < DIFFERENT_REPORTED_MAX:
                self.differing.append(entry.key)

    def _agree(self, held: KvEntry | None, entry: KvEntry) -> bool:
        if not self._has_values:
            return held is None or held.version == entry.version
        if self._keep is None:
            return held == entry
        (kept,) = self._keep.stored([KvUpdate(Op.PUT, entry.key, entry.value, entry.revision or 0)])
        wanted = None if kept.op is not Op.PUT else msgspec.structs.replace(entry, value=kept.value)
        return held == wanted


def _key(bucket: str, node: str) -> str:
    return f"{_name(bucket)}.{_name(node)}"


def _name(text: str) -> str:
    """Return a name as a single token of a key."""
    return _OUTSIDE_KEYS.sub("_", text)


def _comparable(nodes: Iterable[NodeStatus]) -> Iterator[list[NodeStatus]]:
    groups: dict[tuple[object, ...], list[NodeStatus]] = {}
    for node in nodes:
        key = (node.bucket, node.digest.identity, node.digest.scope, node.digest.keep)
        groups.setdefault(key, []).append(node)
    yield from groups.values()


def _digests_by_revision(nodes: Iterable[NodeStatus]) -> dict[int, dict[str, list[str]]]:
    by_revision: dict[int, dict[str, list[str]]] = {}
    for node in nodes:
        for revision, digest in node.digest.exact().items():
            by_revision.setdefault(revision, {}).setdefault(digest, []).append(node.node)
    return by_revision
