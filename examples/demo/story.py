"""The story: a feed is published while a fold follows it, the server restarts, Spark archives and
folds the feed, an edge node begins with what the first fold has published and follows too.

Everything runs on loopback and in one directory. Nothing here decides whether it went well: the
copies are collected, and `disagreements` compares them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.demo.copies import Copy, copy_of
from examples.demo.feed import BUCKET, HISTORY, Change, outcome, publish
from examples.demo.sparkside import Lake

import penstock
from penstock.fold import ExportLease, Fold, artifact_at, export_round, transport_for
from penstock.kv import BucketConfig, NatsConfig, NatsConnection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from examples.demo.screen import Steps
    from pyspark.sql import SparkSession

CONFIG = BucketConfig(history=HISTORY)
DEADLINE_SECONDS = 300.0
EXPORT_SECONDS = 300.0
#: Where the feed is cut: before the restart, behind it, while Spark works, when the edge follows.
CUTS = (0.4, 0.6, 0.9, 1.0)


@dataclass
class Story:
    """Where it takes place, and what came of it."""

    place: Path
    feed: Sequence[Change]
    steps: Steps
    spark: SparkSession | None
    copies: list[Copy] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def expected(self) -> dict[str, bytes]:
        return outcome(self.feed)

    def part(self, number: int) -> Sequence[Change]:
        first = CUTS[number - 1] if number else 0.0
        return self.feed[int(first * len(self.feed)) : self.told(number)]

    def told(self, number: int) -> int:
        """The revision of the last change of a part: one for each change."""
        return int(CUTS[number] * len(self.feed))


async def tell(story: Story) -> None:
    """Tell all of it, within a deadline. The fold outlives the first server, and the second."""
    files = str(story.place / "server")
    async with asyncio.timeout(DEADLINE_SECONDS), AsyncExitStack() as stack:
        with story.steps.step("a server starts") as said:
            server = penstock.Server(jetstream=True, store_dir=files)
            await server.start()
            said.detail = url = server.url
        port = server.port
        try:
            with story.steps.step("a change feed is published") as said:
                await _publish(story, url, 0)
                said.detail = f"{story.told(0):,} changes, each acknowledged from disk"
            fold = Fold.open(f"{url}/{BUCKET}", story.place / "live.db")
            await stack.enter_async_context(fold)
            with story.steps.step("a fold catches up") as said:
                await fold.wait_for(story.told(0))
                said.detail = f"{fold.count():,} parcels, in SQLite"
        finally:
            await server.stop()
        with story.steps.step("the server starts again, on the same files"):
            server = penstock.Server(port=port, jetstream=True, store_dir=files)
            await stack.enter_async_context(server)
        await _with_fold(story, url, fold)


async def _with_fold(story: Story, url: str, fold: Fold) -> None:
    with story.steps.step("the feed goes on, and the fold with it") as said:
        await asyncio.gather(_publish(story, url, 1), fold.wait_for(story.told(1)))
        said.detail = f"revision {fold.cursor.rank:,}"
    lake = None if story.spark is None else Lake(story.spark, url, story.place)
    if lake is None:
        await _publish(story, url, 2)
    else:
        await _archive(story, url, lake)
    await _edge(story, url, fold)
    if lake is not None:
        await _refold(story, lake)


async def _archive(story: Story, url: str, lake: Lake) -> None:
    with story.steps.step("Spark archives the feed while it grows") as said:
        (rows, _), _ = await asyncio.gather(
            asyncio.to_thread(lake.archive), _publish(story, url, 2)
        )
        said.detail = f"{rows:,} changes as Parquet"


async def _edge(story: Story, url: str, fold: Fold) -> None:
    """The fold is published; another one begins with that, and both follow the rest."""
    published = f"file://{story.place}/published"
    with story.steps.step("the fold is exported and published") as said:
        await fold.wait_for(story.told(2))
        async with NatsConnection(NatsConfig.of(url)) as connection:
            lease = ExportLease(
                await connection.bucket("leases", BucketConfig()), f"export.{BUCKET}", "centre"
            )
            done = await export_round(
                lease,
                EXPORT_SECONDS,
                fold,
                transport_for(published),
                BUCKET,
                story.place,
                form="append-log",
            )
        if done is None:
            raise RuntimeError(f"another node holds the lease export.{BUCKET}")
        said.detail = f"at revision {done.manifest.cursor.rank:,}"
    edge = Fold.open(
        f"{url}/{BUCKET}",
        story.place / "edge",
        backend="append-log",
        bootstrap=artifact_at(f"{published}/{BUCKET}"),
    )
    with story.steps.step("an edge node begins with it, and follows") as said:
        async with edge:
            begun = edge.cursor.rank
            last = story.told(3)
            await asyncio.gather(_publish(story, url, 3), edge.wait_for(last))
            await fold.wait_for(last)
            said.detail = f"from revision {begun:,} to {edge.cursor.rank:,}"
            story.copies += [
                copy_of("live fold, SQLite", fold.reader(), fold.cursor.rank),
                copy_of("edge fold, append log", edge.reader(), edge.cursor.rank),
            ]


async def _refold(story: Story, lake: Lake) -> None:
    with story.steps.step("Spark archives what is new") as said:
        added, rows = await asyncio.to_thread(lake.archive)
        said.detail = f"{added:,} more, {rows:,} in all"
        if rows != len(story.feed):
            story.findings.append(f"the archive holds {rows:,} of {len(story.feed):,} changes")
    with story.steps.step("Spark folds the archive") as said:
        entries = await asyncio.to_thread(lake.fold)
        story.copies.append(await asyncio.to_thread(lake.copy))
        said.detail = f"{entries:,} parcels"
    with story.steps.step("Spark verifies stream, archive and folds") as said:
        checks, wrong = await asyncio.to_thread(lake.verify)
        story.findings += wrong
        said.detail = f"{checks} checks"


async def _publish(story: Story, url: str, number: int) -> None:
    async with NatsConnection(NatsConfig.of(url)) as connection:
        bucket = await connection.bucket(BUCKET, CONFIG)
        await publish(bucket.writer(), story.part(number))
