"""Options of the sinks: where rows go, what names them, and how surely they are stored once.

Declared as all options are; what contradicts itself is refused here, before a connection is made,
with what to write instead. What only the stream itself can tell is checked in `sink_target`.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta

from penstock.bulk.publishing import WINDOW_SLOTS
from penstock.spark.options import (
    ConnectionOptions,
    Count,
    Doc,
    Milliseconds,
    OptionError,
)

#: What a server takes in one atomic batch, less the mark that goes with the rows.
BATCH_ROWS_MAX = 999
LEDGER_PREFIX = "ledger"


class Delivery(enum.Enum):
    """How surely a row is stored once."""

    EXACTLY_ONCE = "exactlyOnce"
    STRICT = "strict"
    AT_LEAST_ONCE = "atLeastOnce"


class PublishOptions(ConnectionOptions, frozen=True, kw_only=True):
    """What both sinks share."""

    msg_id_columns: Annotated[
        str,
        Doc(
            "Columns that together name a row for ever, separated by commas; the default is the "
            "column `msgId`, or else `stream,seq` if the rows have both."
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
    delivery: Annotated[
        Delivery,
        Doc(
            "`exactlyOnce`: by message id, within the stream's duplicate window. `strict`: by a "
            "ledger in the stream, for ever. `atLeastOnce`: a replay stores rows again."
        ),
    ] = Delivery.EXACTLY_ONCE
    min_duplicate_window_ms: Annotated[
        Milliseconds,
        Doc("For `exactlyOnce`: the longest outage to survive; the stream must remember as long."),
    ] = 120_000
    write_id: Annotated[
        str,
        Doc("For `strict` batch writes: a name of your own; a write of this name happens once."),
    ] = ""
    ledger_prefix: Annotated[
        str,
        Doc("For `strict`: where marks go, a subject of the stream; `ledger.<stream>` by default."),
    ] = ""
    batch_rows: Annotated[
        Count, Meta(le=BATCH_ROWS_MAX), Doc("For `strict`: rows in one atomic batch.")
    ] = BATCH_ROWS_MAX

    @property
    def ledger(self) -> str:
        return self.ledger_prefix or f"{LEDGER_PREFIX}.{self.stream}"


def check_sink(options: SinkOptions, *, is_streaming: bool) -> None:
    """Refuse what contradicts itself."""
    if options.delivery is not Delivery.STRICT:
        return
    if not is_streaming and not options.write_id:
        raise OptionError(
            "delivery strict needs a name for this write, the same when it is repeated: "
            "set writeId, or use delivery exactlyOnce"
        )
    if options.write_id and any(character in options.write_id for character in " .*>\t\r\n"):
        raise OptionError("option writeId: a name without blanks, dots and wildcards")
