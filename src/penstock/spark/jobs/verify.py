"""Whether a stream, its archive and its folds say the same; and if not, where they differ.

Nothing is taken on trust: files are listed, rows are read, counted and hashed, in bins of sequences
or by shard, and only where bins differ row by row. What a stream has dropped since it was archived
is told and no fault, and so are sequences that never held a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.jobs.archive import open_archive
from penstock.spark.jobs.archived import archived
from penstock.spark.jobs.fold import check_same, reduced, shard_column
from penstock.spark.jobs.table import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.fold.shards import Shard
    from penstock.spark.jobs.archive import ArchiveTable
    from penstock.spark.jobs.origins import Origin
    from penstock.spark.jobs.table import Version

BIN_SEQUENCES: Final = 100_000
SHOWN: Final = 10
"""How many sequences or keys a finding names."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `detail` names what differs, or what is worth knowing."""

    what: str
    is_well: bool
    expected: int
    found: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All that was looked at."""

    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        return all(check.is_well for check in self.checks)


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
    """Compare what is given: an archive with itself and with the stream (`origin`), and published
    `folds` of a bucket with the archive, or without one with the stream."""
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
        checks += _archive_checks(table, version, rows)
        if origin is not None and log is not None:
            check_same(version, origin.extent())
            checks += _compared(log, rows, version, origin.extent().first_seq)
        tail = log.where(f"seq > {version.cursor}") if log is not None else None
        log = rows if tail is None else rows.unionByName(tail, allowMissingColumns=True)
    if folds:
        if log is None:
            raise ArchiveError("folds are compared with an archive or a stream: give one")
        checks += _fold_checks(spark, log, folds, bucket, tuple(shards))
    return VerifyReport(tuple(checks))


# -- an archive by itself


def _archive_checks(table: ArchiveTable, version: Version, rows: DataFrame) -> Iterable[Check]:
    from pyspark.sql import functions as f

    there = {one.path: one.size for one in table.storage.listed(table.data)}
    missing = [file.path for file in version.files if there.get(file.path) != file.size]
    files = len(version.files)
    detail = _shown("missing or of another size", missing)
    yield Check("archive: files", not missing, files, files - len(missing), detail)
    told = rows.agg(
        f.count("*").alias("rows"),
        f.count_distinct("seq").alias("seqs"),
        f.min("seq").alias("first"),
        f.max("seq").alias("last"),
    ).collect()[0]
    yield Check("archive: rows", told["rows"] == version.rows, version.rows, told["rows"])
    twice = told["rows"] - told["seqs"]
    yield Check("archive: rows that are there twice", twice == 0, 0, twice)
    last = told["last"] or 0
    beyond = max(0, last - version.cursor)
    yield Check("archive: rows behind its cursor", beyond == 0, 0, beyond)
    gaps = last - (told["first"] or last + 1) + 1 - told["seqs"]
    lost = sum(stop - start + 1 for start, stop in version.evicted)
    detail = f"{lost} of them were dropped before they were archived" if lost else ""
    yield Check("archive: sequences without a message", True, gaps, gaps, detail)


# -- a stream and its archive


def message_hash() -> Column:
    """What a message is, in a number."""
    from pyspark.sql import functions as f

    return f.xxhash64("subject", "data", f.to_json("headers"), "seq")


def _compared(stream: DataFrame, rows: DataFrame, version: Version, first: int) -> Iterable[Check]:
    """What both should have: from the stream's first sequence to the archive's cursor."""
    from pyspark.sql import functions as f

    def hashed(frame: DataFrame) -> DataFrame:
        both = frame.where(f"seq >= {first} and seq <= {version.cursor}")
        return both.select("seq", message_hash().alias("hash"))

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
        yield Check("stream and archive: messages", True, expected, found)
        return
    chosen = f.expr(f"seq div {BIN_SEQUENCES}").isin(unlike)
    left = hashed(stream).where(chosen).withColumnRenamed("hash", "stream_hash")
    right = hashed(rows).where(chosen).withColumnRenamed("hash", "archive_hash")
    pairs = left.join(right, "seq", "full").cache()
    try:
        yield _unlike(pairs, "archive_hash is null", "stream and archive: not archived")
        yield _unlike(pairs, "stream_hash <> archive_hash", "stream and archive: of other content")
        gone = pairs.where("stream_hash is null").count()
        yield Check("archive: messages the stream has dropped since", True, gone, gone)
    finally:
        pairs.unpersist()


def _unlike(pairs: DataFrame, condition: str, what: str) -> Check:
    seqs = pairs.where(condition).select("seq")
    count = seqs.count()
    some = [row.seq for row in seqs.orderBy("seq").limit(SHOWN).collect()] if count else []
    return Check(what, count == 0, 0, count, _shown("sequences", some))


# -- folds


def _fold_checks(
    spark: SparkSession, log: DataFrame, folds: str, bucket: str, shards: tuple[Shard, ...]
) -> Iterable[Check]:
    """Each shard against the log up to its own cursor."""
    from pyspark.sql import functions as f

    table = spark.read.format("penstock-fold").load(f"{folds.rstrip('/')}/{bucket}")
    held = table.select("shard", "cursor", "key", f.xxhash64("value", "revision").alias("held"))
    cursors = {row.shard: row.cursor for row in held.select("shard", "cursor").distinct().collect()}
    for shard in shards:
        cursor = cursors.get(shard.name)
        if cursor is None:
            yield Check(f"fold {shard.name}: cursor", True, 0, 0, "it is empty or not published")
            continue
        newest = reduced(log.where(f"seq <= {cursor}"), bucket).where("value is not null")
        expected = newest.where(shard_column(shards) == shard.name).select(
            "key", f.xxhash64("value", f.col("seq").alias("revision")).alias("expected")
        )
        pairs = expected.join(held.where(f.col("shard") == shard.name), "key", "full")
        yield _fold_check(pairs, shard.name, cursor)


def _fold_check(pairs: DataFrame, shard: str, cursor: int) -> Check:
    from pyspark.sql import functions as f

    differs = ~f.col("expected").eqNullSafe(f.col("held"))
    told = pairs.agg(
        f.count("expected").alias("expected"),
        f.count("held").alias("held"),
        f.sum(differs.cast("int")).alias("unlike"),
        f.slice(f.collect_list(f.when(differs, f.col("key"))), 1, SHOWN).alias("some"),
    ).collect()[0]
    unlike = told.unlike or 0
    detail = _shown(f"at {cursor}: keys", told.some) if unlike else f"at {cursor}"
    return Check(f"fold {shard}: entries", unlike == 0, told.expected, told.held, detail)


def _shown(what: str, some: Sequence[object]) -> str:
    if not some:
        return ""
    more = " …" if len(some) >= SHOWN else ""
    return f"{what} {', '.join(str(one) for one in some[:SHOWN])}{more}"
