"""Replay job: publishes messages of an archive to a stream, each once.

The id of a message is its archived stream and sequence, so a replay that is repeated, or killed and
restarted, stores nothing twice: within the target's duplicate window, or permanently with strict
delivery and a `write_id`. Messages keep their order unless the caller disables it for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.jobs.archive_columns import check_raw
from penstock.spark.jobs.archive_frame import archived
from penstock.spark.jobs.archive_job import open_archive
from penstock.spark.jobs.message_selection import MessageSelection, selected
from penstock.spark.jobs.parquet_table import ArchiveError
from penstock.spark.jobs.task_progress import message_progress
from penstock.spark.write.sink_report import read_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

DELIVERY: Final = "exactlyOnce"
STRICT: Final = "strict"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Result of a replay: of `rows` messages, `repeated` were already in the target and `refused`
    could not be stored."""

    source: str
    stream: str
    target: str
    rows: int
    delivery: str
    stored: int = 0
    repeated: int = 0
    refused: int = 0
    bytes: int = 0


def replay(
    spark: SparkSession,
    source: str,
    target: str,
    connection: Mapping[str, str],
    *,
    selection: MessageSelection | None = None,
    rename: tuple[str, str] | None = None,
    delivery: str = DELIVERY,
    write_id: str = "",
    ordered: bool = True,
    options: Mapping[str, str] | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ReplayReport:
    """Publish messages of the archive at `source` to the stream `target`.

    `rename` is a pair: a subject prefix and its replacement; other subjects are skipped. `delivery`
    and `write_id` are those of the sink; `options` are further ones. `progress` gets the number of
    messages the target stored, and the total; messages that it already has do not count.
    """
    from pyspark.sql import functions as f

    table = open_archive(source, storage_options=storage_options)
    version = table.current()
    if not version.stream:
        raise ArchiveError(f"there is no archive at {source}")
    kept = archived(spark, table, version)
    check_raw(kept.columns, "replay")
    rows = selected(kept, selection or MessageSelection())
    rows = rows.select("stream", "seq", "timestamp", "subject", "headers", "data")
    if rename is not None:
        old, new = rename
        rows = rows.where(f.col("subject").startswith(old)).withColumn(
            "subject", f.concat(f.lit(new), f.substring("subject", len(old) + 1, 2**31 - 1))
        )
    count = rows.count()
    if ordered:
        rows = rows.repartition(1).sortWithinPartitions("seq")
    named = {"delivery": delivery, **({"writeId": write_id} if write_id else {})}
    if delivery != STRICT:
        named["onDuplicate"] = "skip"  # a replay may be repeated, and no two messages share an id
    write = rows.write.format("jetstream").mode("append")
    with TemporaryDirectory() as place, message_progress(connection, target, count, progress):
        chosen = {**connection, **named, "reportPath": place, **(options or {})}
        write.options(**chosen).save(target)
        report = read_report(chosen["reportPath"], "", 0, chosen.get("writeId", ""))
    if report is None:  # the Spark driver runs on another machine
        return ReplayReport(source, version.stream, target, count, delivery)
    return ReplayReport(
        source,
        version.stream,
        target,
        count,
        delivery,
        report.stored,
        report.repeated,
        report.refused,
        report.bytes,
    )
