"""Payload decoding of a source: resolved from the options in the driver, carried to the tasks.

A plan holds the bytes of the schema, so a task needs neither the file nor the registry.
`PayloadColumns` builds the columns `value`, `bad_data` and `bad_reason` of a batch and handles bad
records as the options require. A dead letter has a message id derived from its message, so a task
that runs again stores it once within the duplicate window.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.bulk.errors import BulkError
from penstock.kv.bucket_records import prefix_of, stream_of
from penstock.spark.errors import SourceError, explained
from penstock.spark.message_rows import DATA, message_schema
from penstock.spark.options import OptionError
from penstock.spark.payloads.payload_schema import JSON, RAW, load_schema, value_ddl
from penstock.spark.spark_connection import shared_reader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.bulk.record_batch import Batch
    from penstock.spark.options import ConnectionOptions
    from penstock.spark.read.source_options import ReadOptions

VALUE, BAD_DATA, BAD_REASON = "value", "bad_data", "bad_reason"
FAIL, NULL, COLUMN, DEADLETTER = "fail", "null", "column", "deadletter"
#: Header of a dead letter with the reason.
REASON_HEADER: Final = "Penstock-Reason"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PayloadPlan:
    """Kind and schema of the payloads, and the handling of bad ones."""

    kind: str
    schema: bytes
    message: str
    bad: str

    @classmethod
    def of(cls, options: ReadOptions) -> PayloadPlan | None:
        """Return the plan of a source; None if payloads stay raw."""
        if (options.bad_records == DEADLETTER) != bool(options.bad_records_subject):
            raise OptionError(
                "badRecords deadletter and badRecordsSubject belong together: set both"
            )
        if options.payload == RAW:
            if options.payload_schema or options.payload_message or options.bad_records != FAIL:
                raise OptionError("payloadSchema and badRecords need payload, which is raw")
            return None
        schema = load_schema(
            options.payload_schema, lambda bucket, key: from_bucket(options, bucket, key)
        )
        return cls(options.payload, schema, options.payload_message, options.bad_records)

    def columns(self) -> dict[str, str]:
        """Return the columns that replace `data`, with their types as DDL."""
        found = {VALUE: value_ddl(self.kind, self.schema, self.message)}
        if self.bad == COLUMN:
            found |= {BAD_DATA: "binary", BAD_REASON: "string"}
        return found

    def check(self, schema: StructType) -> None:
        """Raise unless the user's schema has a subset of the columns; only JSON may declare
        `value`."""
        known = {field.name: field.dataType.simpleString() for field in message_schema().fields}
        del known[DATA]
        known |= {BAD_DATA: "binary", BAD_REASON: "string"} if self.bad == COLUMN else {}
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if field.name == VALUE:
                if self.kind != JSON and kind != self.columns()[VALUE]:
                    raise OptionError(f"column value is {self.columns()[VALUE]}, not {kind}")
            elif known.get(field.name) != kind:
                raise OptionError(
                    f"there is no column {field.name} of type {kind}: there are value, "
                    + ", ".join(f"{name} {its}" for name, its in known.items())
                )
        if {BAD_DATA, BAD_REASON} & set(schema.names) and VALUE not in schema.names:
            raise OptionError("columns bad_data and bad_reason need value in the schema")


def from_bucket(options: ConnectionOptions, bucket: str, key: str) -> bytes:
    """Read a schema from a KV bucket that serves as registry."""
    try:
        found = shared_reader(options).newest_payload(stream_of(bucket), prefix_of(bucket) + key)
    except BulkError as error:
        raise explained(error, stream_of(bucket)) from error
    if not found:
        raise OptionError(f"option payloadSchema: bucket {bucket} has no key {key}")
    return found


class PayloadColumns:
    """Decodes the payloads of one stream's batches."""

    def __init__(
        self, plan: PayloadPlan, stream: str, created: str, target: Any, options: ReadOptions
    ) -> None:
        from penstock.spark.payloads.payload_codec import Decoder

        self._plan = plan
        self._stream = stream
        self._created = created
        self._options = options
        self._decoder = Decoder(plan.kind, plan.schema, plan.message, target)
        self.bad_count = 0

    def make(self, batch: Batch) -> tuple[dict[str, Any], Any]:
        """Return the columns, and a mask of the rows to keep; None if all are kept."""
        import pyarrow as pa

        rows = batch.rows()
        values, reasons = self._decoder.column([row[4] for row in rows])
        bad = [at for at, reason in enumerate(reasons) if reason is not None]
        columns: dict[str, Any] = {VALUE: values}
        if self._plan.bad == COLUMN:
            payloads = [
                None if reason is None else row[4]
                for row, reason in zip(rows, reasons, strict=True)
            ]
            columns |= {
                BAD_DATA: pa.array(payloads, pa.binary()),
                BAD_REASON: pa.array(reasons, pa.string()),
            }
        if not bad:
            return columns, None
        self.bad_count += len(bad)
        if self._plan.bad == FAIL:
            raise SourceError(
                f"stream {self._stream}, sequence {rows[bad[0]][1]}, subject {rows[bad[0]][0]}: "
                f"{reasons[bad[0]]}. Set badRecords to null, column or deadletter to go on"
            )
        if self._plan.bad != DEADLETTER:
            return columns, None
        for at in bad:
            self._dead_letter(rows[at], reasons[at] or "")
        return columns, pa.array([reason is None for reason in reasons])

    def _dead_letter(self, row: tuple[str, int, int, bytes, bytes], reason: str) -> None:
        subject, seq, _, header, payload = row
        lines = {
            "Nats-Msg-Id": f"bad:{self._stream}:{self._created}:{seq}",
            "Penstock-Stream": self._stream,
            "Penstock-Sequence": str(seq),
            "Penstock-Subject": subject,
            REASON_HEADER: " ".join(reason.split()),
        }
        block = "NATS/1.0\r\n" + "".join(f"{key}: {one}\r\n" for key, one in lines.items())
        kept = b"".join(
            line + b"\r\n"
            for line in header.split(b"\r\n")[1:]
            if line and not line.lower().startswith(b"nats-")
        )
        try:
            shared_reader(self._options).store(
                self._options.bad_records_subject,
                payload,
                block.encode("utf-8", "surrogateescape") + kept + b"\r\n",
            )
        except BulkError as error:
            raise SourceError(
                f"stream {self._stream}, sequence {seq} is bad ({reason}) and was not stored at "
                f"{self._options.bad_records_subject}: {error}"
            ) from error

    def report(self) -> None:
        """Log the number of bad records."""
        if self.bad_count:
            log.warning(
                "stream %s: %d bad records (%s)", self._stream, self.bad_count, self._plan.bad
            )
