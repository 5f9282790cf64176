"""Options of the sinks: where rows go, their ids, and the delivery guarantee.

Contradictions raise an error here, before a connection is opened, with the valid form. Checks that
need the stream's configuration are in `sink_target`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, Literal

from msgspec import Meta

from penstock.bulk.bulk_publisher import WINDOW_SLOTS
from penstock.spark.options import (
    ConnectionOptions,
    Count,
    Doc,
    Milliseconds,
    OptionError,
)

#: Server limit for one atomic batch, minus the mark that is stored with the rows.
BATCH_ROWS_MAX = 999
LEDGER_PREFIX = "ledger"
FAIL: Final = "fail"
SKIP: Final = "skip"
DEAD_LETTER: Final = "deadletter"


class DeliveryMode(enum.Enum):
    """Delivery guarantee: how reliably a row is stored once."""

    EXACTLY_ONCE = "exactlyOnce"
    STRICT = "strict"
    AT_LEAST_ONCE = "atLeastOnce"


class PublishOptions(ConnectionOptions, frozen=True, kw_only=True):
    """Options of both sinks."""

    msg_id_columns: Annotated[
        str,
        Doc(
            "Columns that together name a row for ever, separated by commas; the default is the "
            "column `msgId`, or else where a row comes from (`stream`, `seq`, `timestamp`), the "
            "subject or key it is written to and the query, if the rows have `stream` and `seq`."
        ),
    ] = ""
    id_scheme: Annotated[
        Literal["1", "2"],
        Doc(
            "Ids of rows without ids of their own: `2` as above; `1` is `stream:seq` alone, as "
            "versions before 0.2 made them."
        ),
    ] = "2"
    write_id: Annotated[
        str,
        Doc(
            "A name of your own for this write, part of its default ids and of its ledger: a write "
            "of this name may be repeated. `strict` batch writes need one."
        ),
    ] = ""
    on_duplicate: Annotated[
        Literal["fail", "skip"],
        Doc(
            "What to do when the stream has the id of a row that was never written before: `fail`, "
            "or `skip` the row, if rows are meant to be deduplicated by id."
        ),
    ] = "fail"
    report_path: Annotated[
        str,
        Doc(
            "A directory or URL for a JSON file with the numbers of each batch, "
            "`<query>-<batch>.json`, written by the driver."
        ),
    ] = ""
    max_in_flight: Annotated[
        int, Meta(ge=1, le=1 << 20), Doc("Rows on their way in one task before answers come.")
    ] = WINDOW_SLOTS
    ack_timeout_ms: Annotated[
        Milliseconds, Doc("Without an answer for so long a connection is taken for dead.")
    ] = 10_000

    @property
    def id_columns(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.msg_id_columns.split(",") if name.strip())


class SinkOptions(PublishOptions, frozen=True, kw_only=True):
    """Options of the sink `jetstream`."""

    stream: Annotated[str, Doc("The stream that is to store the rows. `save(…)` sets it too.")]
    subject: Annotated[str, Doc("Subject of every row; without it the column `subject`.")] = ""
    payload: Annotated[
        Literal["raw", "json", "avro", "protobuf"],
        Doc("`raw`: the column `data`. Otherwise the column `value`, encoded so."),
    ] = "raw"
    payload_schema: Annotated[
        str,
        Doc(
            "For `avro` an Avro schema, for `protobuf` a descriptor set: written out, `file:PATH` "
            "on the driver, or `kv:BUCKET/key`."
        ),
    ] = ""
    payload_message: Annotated[
        str, Doc("For `protobuf`: the full name of the message, as in `shop.v1.Order`.")
    ] = ""
    delivery: Annotated[
        DeliveryMode,
        Doc(
            "`exactlyOnce`: by message id, within the stream's duplicate window. `strict`: by a "
            "ledger in the stream, for ever. `atLeastOnce`: a replay stores rows again."
        ),
    ] = DeliveryMode.EXACTLY_ONCE
    min_duplicate_window_ms: Annotated[
        Milliseconds,
        Doc("For `exactlyOnce`: the longest outage to survive; the stream must remember as long."),
    ] = 120_000
    ledger_prefix: Annotated[
        str,
        Doc("For `strict`: where marks go, a subject of the stream; `ledger.<stream>` by default."),
    ] = ""
    batch_rows: Annotated[
        Count, Meta(le=BATCH_ROWS_MAX), Doc("For `strict`: rows in one atomic batch.")
    ] = BATCH_ROWS_MAX
    on_bad_row: Annotated[
        Literal["fail", "skip", "deadletter"],
        Doc(
            "What to do with a row that cannot be stored (no or a bad subject, id or header, too "
            "large, refused by the stream): `fail`, `skip` it, or `deadletter`, which keeps it "
            "with the reason under `deadLetterSubject` or `deadLetterPath`."
        ),
    ] = "fail"
    dead_letter_subject: Annotated[
        str, Doc("Where dead letters are published: a subject that some stream takes.")
    ] = ""
    dead_letter_path: Annotated[
        str, Doc("A directory or URL where dead letters are written as Parquet.")
    ] = ""

    @property
    def ledger(self) -> str:
        return self.ledger_prefix or f"{LEDGER_PREFIX}.{self.stream}"


def check_sink(options: SinkOptions, *, is_streaming: bool) -> None:
    """Raise `OptionError` if options contradict each other."""
    check_name(options)
    _check_dead_letters(options)
    if options.delivery is not DeliveryMode.STRICT:
        return
    if not is_streaming and not options.write_id:
        raise OptionError(
            "delivery strict needs a name for this write, the same when it is repeated: "
            "set writeId, or use delivery exactlyOnce"
        )
    if options.on_duplicate != FAIL:
        raise OptionError("onDuplicate is for ids: delivery strict compares none, it counts rows")


def check_name(options: PublishOptions) -> None:
    if any(character in options.write_id for character in " .*>/\\\t\r\n"):
        raise OptionError("option writeId: a name without blanks, dots, slashes and wildcards")


def _check_dead_letters(options: SinkOptions) -> None:
    places = [bool(options.dead_letter_subject), bool(options.dead_letter_path)]
    if options.on_bad_row == DEAD_LETTER and sum(places) != 1:
        raise OptionError("onBadRow deadletter: set one of deadLetterSubject, deadLetterPath")
    if options.on_bad_row != DEAD_LETTER and any(places):
        raise OptionError("deadLetterSubject and deadLetterPath need onBadRow deadletter")
