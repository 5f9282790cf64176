"""The format `jetstream`: streams as tables and as streaming tables.

Spark creates this class in the driver and copies it wherever it plans. It parses options and
delegates: `source_batch` and `source_stream` read, `sink` writes. They are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark import table_options
from penstock.spark.message_rows import DATA, check_schema, message_schema
from penstock.spark.options import check_connection, parse
from penstock.spark.payloads.payload_plan import PayloadPlan
from penstock.spark.read.source_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from penstock.spark.write.sink import BatchSink, StreamSink


class JetStream(DataSource):
    """Data source for the streams of a NATS server."""

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> StructType | str:
        table_options.check_secrets(self.options, ReadOptions)
        options = self._read_options()
        plan = PayloadPlan.of(options)
        plain = message_schema(headers=options.include_headers)
        if plan is None:
            if not table_options.is_of_table(self.options):
                return plain
            return table_options.with_options(plain, self.options)
        kinds = {one.name: one.dataType.simpleString() for one in plain if one.name != DATA}
        return ", ".join(f"`{name}` {kind}" for name, kind in (kinds | plan.columns()).items())

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.read.source_batch import StreamTable

        return StreamTable(*self._read_plan(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.spark.read.source_stream import StreamFollower

        return StreamFollower(*self._read_plan(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from penstock.spark.write.sink import BatchSink, plan_sink

        return BatchSink(plan_sink(self.options, schema, overwrite=overwrite, is_streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        from penstock.spark.compat import check_stream_sinks

        check_stream_sinks()
        from penstock.spark.write.sink import StreamSink, plan_sink

        return StreamSink(plan_sink(self.options, schema, overwrite=overwrite, is_streaming=True))

    def _read_plan(self, schema: StructType) -> tuple[ReadOptions, StructType, PayloadPlan | None]:
        """Return options, columns and payload plan; raises if they contradict each other."""
        options = self._read_options(schema)
        plan = PayloadPlan.of(options)
        if plan is None:
            check_schema(schema)
        else:
            plan.check(schema)
        return options, schema, plan

    def _read_options(self, schema: StructType | None = None) -> ReadOptions:
        given: Mapping[str, str] = self.options
        if schema is not None:
            given = table_options.with_remembered(given, schema)
        options = parse(ReadOptions, given, path="stream")
        check_connection(options)
        return options
