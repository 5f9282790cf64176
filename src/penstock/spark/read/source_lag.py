"""Lag of a streaming query, computed in the driver, and where it is published.

Spark accepts no metrics from Python sources, but shows the JSON of `reportLatestOffset` in each
progress report: the lag is in there, under `lag`. If the options name a bucket, the driver also
writes it there after each batch. Invariant: lag reporting never fails a query. A lag that cannot be
requested is omitted; a failed write is logged.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from penstock.api.timestamps import format_time
from penstock.base.units import SECOND_NS
from penstock.bulk.errors import BulkError
from penstock.kv.bucket_records import prefix_of
from penstock.spark.spark_connection import shared_reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.read.offsets import Offset
    from penstock.spark.read.read_plan import StreamView
    from penstock.spark.read.source_options import ReadOptions

MESSAGES, SECONDS = "messages", "seconds"

log = logging.getLogger(__name__)


def lag_of(
    options: ReadOptions, end: Offset, views: Mapping[str, StreamView]
) -> dict[str, dict[str, Any]]:
    """Return for each stream the number of sequences after `end`, and the age of the first message.

    Sequences count deleted messages as well.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, position in end.streams.items():
        view = views.get(name)
        if view is None or view.created != position.created:
            continue
        behind = max(0, view.last_seq - position.seq)
        found[name] = {MESSAGES: behind}
        age = _age(options, name, position.seq + 1) if behind else 0.0
        if age is not None:
            found[name][SECONDS] = round(age, 3)
    return found


def _age(options: ReadOptions, stream: str, seq: int) -> float | None:
    try:
        stored_ns = shared_reader(options).time_of(stream, seq)
    except BulkError as error:
        log.debug("no lag in seconds stream=%s: %s", stream, error)
        return None
    return 0.0 if stored_ns is None else max(0.0, (time.time_ns() - stored_ns) / SECOND_NS)


def show_cursor(options: ReadOptions, end: Offset, lag: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the cursor of this query to the bucket that the options name."""
    streams = {
        name: {"seq": position.seq, "created": position.created, **lag.get(name, {})}
        for name, position in sorted(end.streams.items())
    }
    value = {"streams": streams, "at": format_time(time.time_ns())}
    key = options.cursor_key or "spark." + "-".join(sorted(end.streams))
    try:
        shared_reader(options).store(
            prefix_of(options.cursor_bucket) + key, json.dumps(value).encode()
        )
    except BulkError as error:
        log.warning("cursor not shown in bucket %s, key %s: %s", options.cursor_bucket, key, error)
