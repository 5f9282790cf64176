"""Fold job: reduces a bucket's log to fold artifacts, the newest value of every key, in shards.

Spark reduces the log to one row per key, the newest by sequence, from an archive up to its cursor
and from the stream after it. One task per shard folds these rows into the published artifact and
publishes the result. Invariant: data and cursor are one artifact, and the pointer to it never moves
backwards, so a run that is killed or repeated only advances the shards. If neither archive nor
stream is complete, shards are rebuilt from what the bucket holds now.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from penstock.fold.artifact.shards import by_hash, by_prefix
from penstock.fold.ship.artifact_transport import transport_for
from penstock.kv.bucket_records import prefix_of, stream_of
from penstock.spark.files.storage_options import nested
from penstock.spark.jobs.archive_columns import check_raw
from penstock.spark.jobs.archive_frame import archived
from penstock.spark.jobs.archive_job import open_archive
from penstock.spark.jobs.fold_shards import RESULT_SCHEMA, FoldPlan, folder
from penstock.spark.jobs.parquet_table import ArchiveError
from penstock.spark.message_rows import message_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, SparkSession

    from penstock.fold.artifact.shards import Shard
    from penstock.spark.jobs.job_inputs import InputExtent, Origin
    from penstock.spark.jobs.parquet_table import Version

SHARDS: Final = 4
PRUNE_GRACE_SECONDS: Final = 3600.0
DELETES: Final = ("DEL", "PURGE")
REASONS: Final = ("MaxAge", "Purge", "Remove")
"""Reasons in the markers of a server that removed a value itself."""
NOT_TEXT: Final = "\ufffd"
"""Replaces bytes in subjects that are not valid UTF-8; no fold holds such keys."""


class FoldJobError(Exception):
    """A fold cannot be built as requested; the text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard as it is published now."""

    shard: str
    cursor: int
    entries: int
    bytes: int
    changed: int
    published: bool


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What a run did. `rebuilt`: shards were rebuilt only from what the bucket holds now."""

    bucket: str
    dest: str
    cursor: int
    rebuilt: bool
    shards: tuple[ShardReport, ...]

    @property
    def entries(self) -> int:
        return sum(shard.entries for shard in self.shards)


def fold(
    spark: SparkSession,
    origin: Origin,
    bucket: str,
    dest: str,
    *,
    archive: str = "",
    archive_options: dict[str, Any] | None = None,
    shards: int = SHARDS,
    prefixes: Sequence[str] = (),
    until: int | None = None,
    storage_options: dict[str, Any] | None = None,
    grace: float = PRUNE_GRACE_SECONDS,
) -> FoldReport:
    """Update the published fold of a bucket to what its stream (`origin`) holds now.

    Shards are published under `dest` as `<bucket>/<shard>`: `shards` of them by hash, or one per
    prefix in `prefixes`. `archive` is an archive of the bucket's stream, read up to its cursor;
    `archive_options` are its storage options, if not `storage_options`. Payloads that were replaced
    more than `grace` seconds ago are deleted.
    """
    cut = by_prefix(prefixes) if prefixes else by_hash(shards)
    options = nested(storage_options or {})
    cursors = asyncio.run(_cursors(dest, bucket, cut, options))
    extent = origin.extent()
    if extent.stream != stream_of(bucket):
        raise FoldJobError(f"bucket {bucket} is stream {stream_of(bucket)}, not {extent.stream}")
    last = extent.last_seq if until is None else min(until, extent.last_seq)
    more = options if archive_options is None else archive_options
    source = _Source(spark, origin, extent, archive, more)
    rebuilt, rows = source.rows(min(cursors.values()), last)
    plan = FoldPlan(
        dest=dest,
        bucket=bucket,
        shards=cut,
        cursor=last,
        identity=f"{extent.stream}@{extent.created_ns}",
        rebuilt=rebuilt,
        options=options,
    )
    reports = _published(spark, plan, reduced(rows, bucket))
    asyncio.run(_prune(plan, grace))
    return FoldReport(bucket, dest, last, rebuilt, reports)


async def _cursors(
    dest: str, bucket: str, shards: tuple[Shard, ...], options: dict[str, Any]
) -> dict[str, int]:
    """Return the cursor of each shard; 0 if it does not exist."""
    transport = transport_for(dest, **options)
    strange = set(await transport.keys(bucket)) - {f"{bucket}/{shard.name}" for shard in shards}
    if strange:
        raise FoldJobError(
            f"{dest} has other shards of {bucket}, such as {min(strange)}: cut it in the same way, "
            "or publish to another place"
        )
    manifests = {shard.name: await transport.manifest(f"{bucket}/{shard.name}") for shard in shards}
    return {name: one.cursor.rank if one else 0 for name, one in manifests.items()}


async def _prune(plan: FoldPlan, grace: float) -> None:
    transport = transport_for(plan.dest, **plan.options)
    for shard in plan.shards:
        await transport.prune(plan.key(shard.name), grace=grace)


# -- the log


class _Source:
    """The log of a bucket, from the archive and the stream."""

    def __init__(
        self,
        spark: SparkSession,
        origin: Origin,
        extent: InputExtent,
        archive: str,
        options: dict[str, Any],
    ) -> None:
        self._spark = spark
        self._origin = origin
        self._extent = extent
        self._table = open_archive(archive, storage_options=options) if archive else None
        self._version = self._table.current() if self._table else None
        if self._version is not None:
            check_same(self._version, extent)

    def rows(self, cursor: int, last: int) -> tuple[bool, DataFrame]:
        """Return False and all rows after a cursor; if some are missing, True and all that
        exist."""
        if not self._reaches(cursor):
            return True, self._origin.rows(max(self._extent.first_seq, 1), last)
        behind, frames = cursor, [self._spark.createDataFrame([], message_schema())]
        if self._table is not None and self._version is not None and self._version.cursor > cursor:
            kept = archived(self._spark, self._table, self._version)
            check_raw(kept.columns, "fold")
            frames.append(kept.where(f"seq > {cursor} and seq <= {last}"))
            behind = self._version.cursor
        if behind < last:
            frames.append(self._origin.rows(behind + 1, last))
        narrow = [frame.select("subject", "seq", "headers", "data") for frame in frames]
        return False, reduce(DataFrame.unionByName, narrow)

    def _reaches(self, cursor: int) -> bool:
        """Return True if nothing is missing between a cursor and the stream's end."""
        version = self._version
        if version is None or version.cursor <= cursor:
            return self._extent.first_seq <= cursor + 1
        first = min((file.first_seq for file in version.files), default=version.cursor)
        begins = cursor == 0 or first <= cursor + 1
        whole = all(stop <= cursor for _, stop in version.evicted)
        return begins and whole and self._extent.first_seq <= version.cursor + 1


def check_same(version: Version, extent: InputExtent) -> None:
    """Raise ArchiveError unless an archive is of this stream."""
    if (version.stream, version.created_ns) != (extent.stream, extent.created_ns):
        raise ArchiveError(
            f"the archive is not of this stream {extent.stream}, or of one before it"
        )


# -- reduction


def reduced(rows: DataFrame, bucket: str) -> DataFrame:
    """Return the newest row of every key: `key`, `value` (null if removed), `seq`."""
    from pyspark.sql import functions as f

    skipped = len(prefix_of(bucket))
    keyed = rows.select(
        f.substring(f.col("subject"), skipped + 1, 2**31 - 1).alias("key"),
        f.when(is_put(), f.col("data")).alias("value"),
        "seq",
    ).where(~f.col("key").contains(NOT_TEXT))
    newest = keyed.groupBy("key").agg(f.max_by(f.struct("value", "seq"), "seq").alias("newest"))
    return newest.select("key", "newest.value", "newest.seq")


def is_put() -> Column:
    """Return a column that is true if the headers of a message mark it as a put."""
    from pyspark.sql import functions as f

    def has_any(name: str, words: tuple[str, ...]) -> Column:
        first = f.element_at(f.col("headers"), name).getItem(0)
        return f.coalesce(first.isin(*words), f.lit(False))

    return ~(has_any("KV-Operation", DELETES) | has_any("Nats-Marker-Reason", REASONS))


def _published(spark: SparkSession, plan: FoldPlan, rows: DataFrame) -> tuple[ShardReport, ...]:
    named = rows.withColumn("shard", shard_column(plan.shards)).where("shard is not null")
    # Shards without changes advance their cursor, too.
    marks = spark.createDataFrame(
        [(None, None, None, shard.name) for shard in plan.shards],
        "key string, value binary, seq bigint, shard string",
    )
    folded = named.unionByName(marks).groupBy("shard").applyInArrow(folder(plan), RESULT_SCHEMA)
    reports = folded.collect()  # not sorted by Spark, which would run the tasks twice
    return tuple(ShardReport(**row.asDict()) for row in sorted(reports, key=lambda r: r.shard))


def shard_column(shards: tuple[Shard, ...]) -> Column:
    """Return the name of the shard that a key belongs to; null if none."""
    from pyspark.sql import functions as f

    key = f.col("key")
    if len(shards) == 1 and not shards[0].scope[0]:
        return f.lit(shards[0].name)
    if shards[0].scope[0].startswith("#"):
        number = f.crc32(f.encode(key, "UTF-8")) % len(shards)
        return f.element_at(
            f.array(*(f.lit(shard.name) for shard in shards)), number.cast("int") + 1
        )
    chosen = f.when(f.lit(False), f.lit(""))
    for shard in shards:
        chosen = chosen.when(key.startswith(shard.scope[0]), f.lit(shard.name))
    return chosen
