"""Selects the messages of a job by sequence, time and subject; Spark evaluates it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.subject_regex import whole_regex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """All bounds are inclusive except `before`; times are ISO 8601 as Spark reads them."""

    first: int | None = None
    last: int | None = None
    since: str = ""
    before: str = ""
    subjects: tuple[str, ...] = ()


def selected(rows: DataFrame, selection: MessageSelection) -> DataFrame:
    """Return the selected rows."""
    from pyspark.sql import functions as f

    if selection.first is not None:
        rows = rows.where(f.col("seq") >= selection.first)
    if selection.last is not None:
        rows = rows.where(f.col("seq") <= selection.last)
    if selection.since:
        rows = rows.where(f.col("timestamp") >= f.lit(selection.since).cast("timestamp"))
    if selection.before:
        rows = rows.where(f.col("timestamp") < f.lit(selection.before).cast("timestamp"))
    if selection.subjects:
        rows = rows.where(f.col("subject").rlike(whole_regex(selection.subjects)))
    return rows
