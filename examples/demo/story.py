"""The demo: a feed is published while a fold follows it, the server restarts, Spark archives and
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
from examples.demo.gauges import ARCHIVE, EDGE, LIVE, PUBLISHED, Gauges
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
DEADLINE_SECONDS = 600.0
EXPORT_SECONDS = 300.0
PAUSE_SECONDS = 0.1
"""Between two windows of changes while Spark archives, so that the feed grows meanwhile."""
#: Where the feed is cut: before the restart, after it, while Spark works, when the edge follows.
CUTS = (0.4, 0.6, 0.9, 1.0)


@dataclass
class Story:
    """The directory and the feed of a run, and its results."""

    place: Path
    feed: Sequence[Change]
    steps: Steps
    spark: SparkSession | None
    gauges: Gauges
    published: int = 0
    copies: list[Copy] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def expected(self) -> dict[str, bytes]:
        return outcome(self.feed)

    def count(self, acknowledged: int) -> None:
        self.published += acknowledged

    def part(self, number: int) -> Sequence[Change]:
        first = CUTS[number - 1] if number else 0.0
        return self.feed[int(first * len(self.feed)) : self.last(number)]

    def last(self, number: int) -> int:
        """The revision of the last change of a part: one for each change."""
        return int(CUTS[number] * len(self.feed))


async def play(story: Story) -> None:
    """Run all steps, within a deadline. The fold outlives the first server, and the second."""
    sampling = asyncio.create_task(story.gauges.run())
    try:
        await _play(story)
    finally:
        sampling.cancel()


async def _play(story: Story) -> None:
    files = str(story.place / "server")
    async with asyncio.timeout(DEADLINE_SECONDS), AsyncExitStack() as stack:
        with story.steps.step("a server starts") as step:
            server = penstock.Server(jetstream=True, store_dir=files)
            await server.start()
            step.detail = url = server.url
        port = server.port
        try:
            with story.steps.step("a change feed is published") as step:
                await _publish(story, url, 0)
                step.detail = f"{story.last(0):,} changes, each acknowledged from disk"
            fold = Fold.open(f"{url}/{BUCKET}", story.place / "live.db")
            await stack.enter_async_context(fold)
            story.gauges.watch(LIVE, lambda: fold.cursor.rank)
            with story.steps.step("a fold catches up") as step:
                await fold.wait_for(story.last(0))
                step.detail = f"{fold.count():,} parcels, in SQLite"
        finally:
            await server.stop()
        with story.steps.step("the server starts again, on the same files"):
            server = penstock.Server(port=port, jetstream=True, store_dir=files)
            await stack.enter_async_context(server)
        await _with_fold(story, url, fold)


async def _with_fold(story: Story, url: str, fold: Fold) -> None:
    with story.steps.step("the feed goes on, and the fold with it") as step:
        await asyncio.gather(_publish(story, url, 1), fold.wait_for(story.last(1)))
        step.detail = f"revision {fold.cursor.rank:,}"
    lake = None if story.spark is None else Lake(story.spark, url, story.place)
    if lake is None:
        await _publish(story, url, 2)
    else:
        await _archive(story, url, lake)
    await _edge(story, url, fold)
    if lake is not None:
        await _refold(story, lake)


async def _archive(story: Story, url: str, lake: Lake) -> None:
    with story.steps.step("Spark archives the feed while it grows") as step:
        (rows, _), _ = await asyncio.gather(
            asyncio.to_thread(lake.archive), _publish(story, url, 2, PAUSE_SECONDS)
        )
        story.gauges.record(ARCHIVE, rows)
        step.detail = f"{rows:,} changes as Parquet"


async def _edge(story: Story, url: str, fold: Fold) -> None:
    """The fold is published; another one begins with that, and both follow the rest."""
    published = f"file://{story.place}/published"
    with story.steps.step("the fold is exported and published") as step:
        await fold.wait_for(story.last(2))
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
        step.detail = f"at revision {done.manifest.cursor.rank:,}"
    edge = Fold.open(
        f"{url}/{BUCKET}",
        story.place / "edge",
        backend="append-log",
        bootstrap=artifact_at(f"{published}/{BUCKET}"),
    )
    with story.steps.step("an edge node begins with it, and follows") as step:
        async with edge:
            begun = edge.cursor.rank
            story.gauges.watch(EDGE, lambda: edge.cursor.rank)
            last = story.last(3)
            await asyncio.gather(_publish(story, url, 3), edge.wait_for(last))
            await fold.wait_for(last)
            for name in (PUBLISHED, LIVE, EDGE):
                story.gauges.close(name)
            step.detail = f"from revision {begun:,} to {edge.cursor.rank:,}"
            story.copies += [
                copy_of("live fold, SQLite", fold.reader(), fold.cursor.rank),
                copy_of("edge fold, append log", edge.reader(), edge.cursor.rank),
            ]


async def _refold(story: Story, lake: Lake) -> None:
    with story.steps.step("Spark archives what is new") as step:
        added, rows = await asyncio.to_thread(lake.archive)
        story.gauges.record(ARCHIVE, rows)
        step.detail = f"{added:,} more, {rows:,} in all"
        if rows != len(story.feed):
            story.findings.append(f"the archive holds {rows:,} of {len(story.feed):,} changes")
    with story.steps.step("Spark folds the archive") as step:
        entries = await asyncio.to_thread(lake.fold)
        story.copies.append(await asyncio.to_thread(lake.copy))
        step.detail = f"{entries:,} parcels"
    with story.steps.step("Spark verifies stream, archive and folds") as step:
        checks, wrong = await asyncio.to_thread(lake.verify)
        story.findings += wrong
        step.detail = f"{checks} checks"


async def _publish(story: Story, url: str, number: int, pause: float = 0.0) -> None:
    async with NatsConnection(NatsConfig.of(url)) as connection:
        bucket = await connection.bucket(BUCKET, CONFIG)
        story.gauges.watch(PUBLISHED, lambda: story.published)
        await publish(bucket.writer(), story.part(number), story.count, pause)
