"""The format `jetstream`: streams as tables and as streaming tables.

The class Spark makes in the driver and copies to wherever it plans. It parses options and hands on;
what reads is in `source_batch` and `source_stream`, what writes in `sink`, loaded when wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.options import check_connection, parse
from penstock.spark.rows import check_schema, message_schema
from penstock.spark.source_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from penstock.spark.sink import BatchSink, StreamSink


class JetStream(DataSource):
    """Streams of a NATS server."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> StructType:
        return message_schema(headers=self._read_options().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.source_batch import StreamTable

        check_schema(schema)
        return StreamTable(self._read_options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.spark.source_stream import StreamFollower

        check_schema(schema)
        return StreamFollower(self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from penstock.spark.sink import BatchSink, plan_sink

        return BatchSink(plan_sink(self.options, schema, overwrite=overwrite, is_streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        from penstock.spark.sink import StreamSink, plan_sink

        return StreamSink(plan_sink(self.options, schema, overwrite=overwrite, is_streaming=True))

    def _read_options(self) -> ReadOptions:
        options = parse(ReadOptions, self.options, path="stream")
        check_connection(options)
        return options
