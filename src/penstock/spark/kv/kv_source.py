"""The format `jetstream-kv`: buckets as tables and as change feeds, and as sinks.

A feed and a table of history read the stream of the bucket with the code for streams, but other
columns. A table of newest values is read with one consumer per key prefix, to which the server
delivers the newest record of every key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.bulk.errors import BulkError
from penstock.kv.kv_types import disjoint
from penstock.spark import table_options
from penstock.spark.errors import explained
from penstock.spark.kv.kv_options import KvReadOptions
from penstock.spark.kv.kv_rows import (
    KEY,
    OP,
    PUT,
    REVISION,
    VALUE,
    KeyRows,
    bucket_schema,
    check_bucket_schema,
    newest_of,
)
from penstock.spark.options import check_connection, parse
from penstock.spark.read.read_task import RangePartition, RangeReading
from penstock.spark.read.source_batch import StreamTable
from penstock.spark.read.source_stream import StreamFollower
from penstock.spark.read.stream_metadata import StreamMetadata
from penstock.spark.spark_connection import shared_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from penstock.spark.kv.kv_sink import KvBatchSink, KvStreamSink


class JetStreamKv(DataSource):
    """Data source for the KV buckets of a NATS server."""

    @classmethod
    def name(cls) -> str:
        return "jetstream-kv"

    def schema(self) -> StructType:
        table_options.check_secrets(self.options, KvReadOptions)
        return bucket_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._read_options(schema)
        return HistoryTable(options, schema) if options.history else BucketTable(options, schema)

    def streamReader(self, schema: StructType) -> BucketFeed:
        return BucketFeed(self._read_options(schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> KvBatchSink:
        from penstock.spark.kv.kv_sink import KvBatchSink, plan_kv_sink

        return KvBatchSink(plan_kv_sink(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KvStreamSink:
        from penstock.spark.compat import check_stream_sinks

        check_stream_sinks()
        from penstock.spark.kv.kv_sink import KvStreamSink, plan_kv_sink

        plan = plan_kv_sink(self.options, schema, overwrite=overwrite, is_streaming=True)
        return KvStreamSink(plan)

    def _read_options(self, schema: StructType) -> KvReadOptions:
        check_bucket_schema(schema)
        options = parse(KvReadOptions, self.options, path="bucket")
        check_connection(options)
        options.stream_options()
        return options


class BucketFeed(StreamFollower):
    """Every change, batch by batch, from a revision on."""

    def __init__(self, options: KvReadOptions, schema: StructType) -> None:
        super().__init__(options.stream_options(), schema)
        self._bucket = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_changes(partition, self._bucket, self._schema)


class HistoryTable(StreamTable):
    """Every revision that the bucket keeps."""

    def __init__(self, options: KvReadOptions, schema: StructType) -> None:
        super().__init__(options.stream_options(), schema)
        self._bucket = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_changes(partition, self._bucket, self._schema)


def read_changes(
    partition: InputPartition, options: KvReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the changes in a range of revisions."""
    if not isinstance(partition, RangePartition):
        return
    maker = KeyRows(options.bucket, options.prefixes, schema)
    payloads = VALUE in schema.names
    reading = RangeReading(partition, options.stream_options(), payloads=payloads)
    for batch in reading.batches():
        yield maker.narrowed(maker.make(batch))


@dataclass(init=False)
class KeysPartition(InputPartition):
    """Description of a task: the keys it reads."""

    prefixes: tuple[str, ...]

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        super().__init__(None)
        self.prefixes = prefixes


class BucketTable(DataSourceReader):
    """The newest value of each key."""

    def __init__(self, options: KvReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        StreamMetadata(
            self._options.stream_options()
        ).views()  # fails now if the bucket does not exist
        tasks: dict[tuple[str, ...], tuple[str, ...]] = {}
        for prefix in disjoint(self._options.prefixes):
            filters = self._options.filters((prefix,))
            tasks[filters] = (*tasks.get(filters, ()), prefix)
        return [KeysPartition(prefixes) for prefixes in tasks.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, KeysPartition):
            return
        maker = KeyRows(self._options.bucket, partition.prefixes, self._schema)
        try:
            for rows in newest_rows(self._options, partition.prefixes, maker):
                if not self._options.include_deletes:
                    rows = rows.filter(pc.equal(rows.column(OP), PUT))
                yield maker.narrowed(rows)
        except BulkError as error:
            raise explained(error, self._options.stream_options().stream) from error


def newest_rows(
    options: KvReadOptions, prefixes: tuple[str, ...], maker: KeyRows
) -> Iterator[pa.RecordBatch]:
    """Yield one row per key: the newest when the read began or, if it was removed since, a later
    one.

    A key that is written during the read may arrive twice: the first row is used. A recreated
    consumer starts from the beginning; rows at or below the highest revision so far were returned.
    """
    stream = options.stream_options()
    reader = shared_reader(stream, consumer_prefix=options.consumer_name_prefix)
    last = reader.stream_state(stream.stream).last_seq
    position = 0
    given: list[pa.Array] = []
    late: list[pa.RecordBatch] = []
    batches = reader.newest(
        stream.stream,
        filters=options.filters(prefixes),
        headers_only=VALUE not in maker.schema.names,
    )
    for batch in batches:
        rows = maker.make(batch)
        revisions = rows.column(REVISION)
        now = rows.filter(pc.and_(pc.greater(revisions, position), pc.less_equal(revisions, last)))
        given.append(now.column(KEY))
        yield now
        late.append(rows.filter(pc.greater(revisions, last)))
        position = max(position, min(batch.last, last))
    changed = newest_of(pa.Table.from_batches(late, maker.full))
    before = pa.chunked_array(given, pa.string())
    yield from changed.filter(pc.invert(pc.is_in(changed[KEY], value_set=before))).to_batches()
