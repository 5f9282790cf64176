"""Verify job: compares a stream, its archive and its folds, and reports where they differ.

Nothing is assumed, and nothing to compare is a failure: files are listed, rows are read, counted
and hashed, in bins of sequences or by shard, and compared row by row only where bins differ.
Messages that the stream dropped after they were archived, and sequences that never held a message,
are reported but are no failure.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.fold.artifact.shards import by_hash
from penstock.fold.ship.artifact_transport import transport_for
from penstock.spark.jobs.archive_columns import check_raw
from penstock.spark.jobs.archive_frame import archived
from penstock.spark.jobs.archive_job import open_archive
from penstock.spark.jobs.fold_job import check_same, reduced, shard_column
from penstock.spark.jobs.parquet_table import ArchiveError
from penstock.spark.message_rows import DATA, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.fold.artifact.shards import Shard
    from penstock.spark.jobs.archive_job import ArchiveTable
    from penstock.spark.jobs.job_inputs import Origin
    from penstock.spark.jobs.parquet_table import Version

BIN_SEQUENCES: Final = 100_000
HASHED_NAME: Final = re.compile(r"\d{4}-of-(\d{4})")
SHOWN: Final = 10
"""Maximum number of sequences or keys in a finding."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check. `detail` names what differs, or gives further information."""

    what: str
    is_well: bool
    expected: int
    found: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Results of all checks."""

    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        return bool(self.checks) and all(check.is_well for check in self.checks)


def verify(
    spark: SparkSession,
    *,
    origin: Origin | None = None,
    archive: str = "",
    folds: str = "",
    bucket: str = "",
    shards: Sequence[Shard] = (),
    storage_options: dict[str, Any] | None = None,
) -> VerifyReport:
    """Compare an archive with itself and with the stream (`origin`), and published `folds` of a
    bucket with the archive, or with the stream if there is none. The shards of a fold are
    determined from what is published; `shards` lists those that must exist, if the caller knows
    them."""
    checks: list[Check] = []
    log = (
        origin.rows(max(1, origin.extent().first_seq), origin.extent().last_seq) if origin else None
    )
    if archive:
        table = open_archive(archive, storage_options=storage_options)
        version = table.current()
        if not version.stream:
            raise ArchiveError(f"there is no archive at {archive}")
        rows = archived(spark, table, version)
        if folds:
            check_raw(rows.columns, "comparison with folds")
        checks += _archive_checks(table, version, rows)
        if origin is not None and log is not None:
            check_same(version, origin.extent())
            checks += _compared(log, rows, version, origin.extent().first_seq)
        tail = log.where(f"seq > {version.cursor}") if log is not None else None
        log = rows if tail is None else rows.unionByName(tail, allowMissingColumns=True)
    if folds:
        if log is None:
            raise ArchiveError("folds are compared with an archive or a stream: give one")
        published = asyncio.run(_published(folds, bucket, storage_options or {}))
        cut = tuple(shards) or cut_of(published)
        checks.append(_cut_check(published, cut))
        if published:
            checks += _fold_checks(
                spark, log, f"{folds.rstrip('/')}/{bucket}", bucket, cut, published
            )
    return VerifyReport(tuple(checks))


# -- the archive alone


def _archive_checks(table: ArchiveTable, version: Version, rows: DataFrame) -> Iterable[Check]:
    from pyspark.sql import functions as f

    there = {one.path: one.size for one in table.storage.listed(table.data)}
    missing = [file.path for file in version.files if there.get(file.path) != file.size]
    files = len(version.files)
    detail = _shown("missing or of another size", missing)
    yield Check("archive: files", not missing, files, files - len(missing), detail)
    counts = rows.agg(
        f.count("*").alias("rows"),
        f.count_distinct("seq").alias("seqs"),
        f.min("seq").alias("first"),
        f.max("seq").alias("last"),
    ).collect()[0]
    is_empty = "" if counts["rows"] else "there is nothing to compare"
    is_well = counts["rows"] == version.rows and not is_empty
    yield Check("archive: rows", is_well, version.rows, counts["rows"], is_empty)
    twice = counts["rows"] - counts["seqs"]
    yield Check("archive: rows that are there twice", twice == 0, 0, twice)
    last = counts["last"] or 0
    beyond = max(0, last - version.cursor)
    yield Check("archive: rows behind its cursor", beyond == 0, 0, beyond)
    gaps = last - (counts["first"] or last + 1) + 1 - counts["seqs"]
    lost = sum(stop - start + 1 for start, stop in version.evicted)
    detail = f"{lost} of them were dropped before they were archived" if lost else ""
    yield Check("archive: sequences without a message", True, gaps, gaps, detail)


# -- a stream and its archive


def message_hash(payload: str = DATA) -> Column:
    """Return a column with the hash of a message. `payload` is the column that represents its
    payload."""
    from pyspark.sql import functions as f

    return f.xxhash64("subject", payload, f.to_json("headers"), "seq")


def _compared(stream: DataFrame, rows: DataFrame, version: Version, first: int) -> Iterable[Check]:
    """Compare what both should have: from the stream's first sequence to the archive's cursor."""
    from pyspark.sql import functions as f

    is_raw = DATA in rows.columns
    detail = "" if is_raw else "payloads are typed: their sizes were compared"

    def hashed(frame: DataFrame) -> DataFrame:
        both = frame.where(f"seq >= {first} and seq <= {version.cursor}")
        return both.select("seq", message_hash(DATA if is_raw else SIZE).alias("hash"))

    def binned(frame: DataFrame, name: str) -> DataFrame:
        number = f.expr(f"seq div {BIN_SEQUENCES}").alias("bin")
        sums = (f.count("*").alias(f"{name}_rows"), f.bit_xor("hash").alias(f"{name}_hash"))
        return hashed(frame).groupBy(number).agg(*sums)

    bins = binned(stream, "stream").join(binned(rows, "archive"), "bin", "full").collect()
    unlike = [row.bin for row in bins if (row.stream_rows, row.stream_hash)
              != (row.archive_rows, row.archive_hash)]  # fmt: skip
    expected = sum(row.stream_rows or 0 for row in bins)
    found = sum(row.archive_rows or 0 for row in bins)
    if not unlike:
        is_empty = not expected and not found
        if is_empty:
            detail = f"no sequence from {first} to {version.cursor}: there is nothing to compare"
        yield Check("stream and archive: messages", not is_empty, expected, found, detail)
        return
    chosen = f.expr(f"seq div {BIN_SEQUENCES}").isin(unlike)
    left = hashed(stream).where(chosen).withColumnRenamed("hash", "stream_hash")
    right = hashed(rows).where(chosen).withColumnRenamed("hash", "archive_hash")
    pairs = left.join(right, "seq", "full").cache()
    try:
        yield _unlike(pairs, "archive_hash is null", "stream and archive: not archived")
        yield _unlike(pairs, "stream_hash <> archive_hash", "stream and archive: of other content")
        dropped = pairs.where("stream_hash is null").count()
        yield Check("archive: messages the stream has dropped since", True, dropped, dropped)
    finally:
        pairs.unpersist()


def _unlike(pairs: DataFrame, condition: str, what: str) -> Check:
    seqs = pairs.where(condition).select("seq")
    count = seqs.count()
    some = [row.seq for row in seqs.orderBy("seq").limit(SHOWN).collect()] if count else []
    return Check(what, count == 0, 0, count, _shown("sequences", some))


# -- folds


async def _published(folds: str, bucket: str, options: dict[str, Any]) -> dict[str, int]:
    """Return the published shards with their cursors."""
    transport = transport_for(folds, **options)
    found = {}
    for key in await transport.keys(bucket):
        manifest = await transport.manifest(key)
        if manifest is not None:
            found[key.rpartition("/")[2]] = manifest.cursor.rank
    return found


def cut_of(published: Iterable[str]) -> tuple[Shard, ...]:
    """Return the shards of a fold, by the names of what is published; raises if they are
    ambiguous."""
    counts = {match[1] if (match := HASHED_NAME.fullmatch(name)) else "" for name in published}
    if not counts:
        return ()
    if len(counts) > 1 or "" in counts:
        raise ArchiveError(
            "the published shards are not cut by hash into one number of parts: say how they were "
            "cut, by the prefixes that the fold was made with"
        )
    return by_hash(int(counts.pop()))


def _cut_check(published: dict[str, int], shards: tuple[Shard, ...]) -> Check:
    """Check that exactly these shards are published; nothing published is a failure."""
    expected = {shard.name for shard in shards}
    missing, strange = expected - published.keys(), published.keys() - expected
    detail = _shown("missing", sorted(missing)) or _shown("of another cut", sorted(strange))
    if not published:
        detail = "nothing is published there"
    found = len(expected & published.keys())
    is_well = bool(published) and not missing and not strange
    return Check("folds: shards", is_well, max(1, len(expected)), found, detail)


def _fold_checks(
    spark: SparkSession,
    log: DataFrame,
    place: str,
    bucket: str,
    shards: tuple[Shard, ...],
    published: dict[str, int],
) -> Iterable[Check]:
    """Compare each shard with the log up to its own cursor."""
    from pyspark.sql import functions as f

    table = spark.read.format("penstock-fold").load(place)
    held = table.select("shard", "cursor", "key", f.xxhash64("value", "revision").alias("held"))
    compared = 0
    for shard in shards:
        cursor = published.get(shard.name)
        if cursor is None:
            continue  # missing, as the previous check reports
        newest = reduced(log.where(f"seq <= {cursor}"), bucket).where("value is not null")
        expected = newest.where(shard_column(shards) == shard.name).select(
            "key", f.xxhash64("value", f.col("seq").alias("revision")).alias("expected")
        )
        pairs = expected.join(held.where(f.col("shard") == shard.name), "key", "full")
        check = _fold_check(pairs, shard.name, cursor)
        compared += check.expected + check.found
        yield check
    detail = "" if compared else "neither the log nor the folds have any: nothing was compared"
    yield Check("folds: keys compared", compared > 0, max(1, compared), compared, detail)


def _fold_check(pairs: DataFrame, shard: str, cursor: int) -> Check:
    from pyspark.sql import functions as f

    differs = ~f.col("expected").eqNullSafe(f.col("held"))
    counts = pairs.agg(
        f.count("expected").alias("expected"),
        f.count("held").alias("held"),
        f.sum(differs.cast("int")).alias("unlike"),
        f.slice(f.collect_list(f.when(differs, f.col("key"))), 1, SHOWN).alias("some"),
    ).collect()[0]
    unlike = counts.unlike or 0
    detail = _shown(f"at {cursor}: keys", counts.some) if unlike else f"at {cursor}"
    return Check(f"fold {shard}: entries", unlike == 0, counts.expected, counts.held, detail)


def _shown(what: str, some: Sequence[object]) -> str:
    if not some:
        return ""
    more = " …" if len(some) >= SHOWN else ""
    return f"{what} {', '.join(str(one) for one in some[:SHOWN])}{more}"
