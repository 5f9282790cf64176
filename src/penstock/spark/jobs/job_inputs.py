"""Inputs of the jobs: a stream on a server, or in the files of a stopped one.

An origin returns what the stream holds now, and any range of it as a DataFrame with the columns of
the format `jetstream`. Spark reads the range later; the format reports what was evicted by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.bulk.errors import BulkError
from penstock.spark.errors import explained
from penstock.spark.message_rows import message_schema
from penstock.spark.options import ConnectionOptions, parse
from penstock.spark.read.read_plan import StreamView
from penstock.spark.spark_connection import shared_reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession


class InputExtent(NamedTuple):
    """State and identity of a stream. It is empty if `first_seq` is greater than `last_seq`."""

    stream: str
    created_ns: int
    first_seq: int
    last_seq: int
    sheds: bool = False
    """True if the stream removes messages in normal operation (`StreamView`)."""


class Origin(Protocol):
    """A stream that can be read in ranges."""

    def extent(self) -> InputExtent: ...

    def rows(self, first: int, last: int) -> DataFrame:
        """Return the messages from `first` to `last`, both included; none if `last` < `first`."""
        ...


@dataclass(frozen=True)
class ServerOrigin:
    """A stream of a server. `connection` holds the connection options of the formats."""

    spark: SparkSession
    stream: str
    connection: Mapping[str, str] = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the format `jetstream`."""

    def extent(self) -> InputExtent:
        reader = shared_reader(parse(ConnectionOptions, self.connection))
        try:
            state = reader.stream_state(self.stream)
        except BulkError as error:
            raise explained(error, self.stream) from error
        sheds = StreamView.of(state).sheds
        return InputExtent(self.stream, state.created_ns, state.first_seq, state.last_seq, sheds)

    def rows(self, first: int, last: int) -> DataFrame:
        if last < first:
            return self.spark.createDataFrame([], message_schema())
        return (
            self.spark.read.format("jetstream")
            .options(**{**self.connection, **self.options})
            .option("stream", self.stream)
            .option("startingSeq", first)
            .option("endingSeq", last)
            .load()
        )


@dataclass(frozen=True)
class StoreOrigin:
    """A stream in the files of a server that is not running."""

    spark: SparkSession
    path: str
    stream: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the format `penstock-blocks`."""

    def extent(self) -> InputExtent:
        from penstock.spark.files.blocks_options import BlocksOptions
        from penstock.spark.files.blocks_plan import find_stores
        from penstock.spark.options import OptionError

        given = {**self.options, "path": self.path, "stream": self.stream}
        found = find_stores(parse(BlocksOptions, given))
        if len(found) != 1:
            raise OptionError(f"{len(found)} stores of stream {self.stream} in {self.path}")
        plan = found[0].plan
        return InputExtent(self.stream, found[0].created_ns, plan.first_seq, plan.last_seq)

    def rows(self, first: int, last: int) -> DataFrame:
        if last < first:
            return self.spark.createDataFrame([], message_schema())
        return (
            self.spark.read.format("penstock-blocks")
            .options(**self.options)
            .option("stream", self.stream)
            .option("startingSeq", first)
            .option("endingSeq", last)
            .load(self.path)
        )


def without_losses(origin: Origin) -> Origin:
    """Return the same stream, whose readers continue after data loss."""
    if not isinstance(origin, ServerOrigin):
        return origin
    return replace(origin, options={**origin.options, "failOnDataLoss": "false"})
