"""Options for reading streams: what is read, the start and end, and the batch sizes.

Names follow Spark's Kafka source where they mean the same. Sequences and times stay text here,
because they may be words or JSON; `start_positions.places` parses them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from penstock.spark.options import ConnectionOptions, Count, Doc, Milliseconds

Amount = Annotated[int, Meta(ge=0)]


class ReadOptions(ConnectionOptions, frozen=True, kw_only=True):
    """Reading streams, as a table or as a streaming table."""

    # What
    stream: Annotated[str, Doc("Names of streams, separated by commas; also `load(name)`.")]
    subjects: Annotated[
        str, Doc("Subject filters, separated by commas; the server applies them.")
    ] = ""
    include_headers: Annotated[bool, Doc("Whether there is a column `headers`.")] = True
    # Payloads
    payload: Annotated[
        Literal["raw", "text", "json", "avro", "protobuf"],
        Doc(
            "What payloads are. Other than `raw` they are decoded into the column `value`, in "
            "place of `data`. Headers of Confluent's and Apicurio's registries are recognised."
        ),
    ] = "raw"
    payload_schema: Annotated[
        str,
        Doc(
            "Their schema: DDL for `json`, an Avro schema, or a protobuf descriptor set. Written "
            "out, `file:PATH`, or `kv:BUCKET/KEY` (read by the driver)."
        ),
    ] = ""
    payload_message: Annotated[str, Doc("The full name of the message, for `protobuf`.")] = ""
    bad_records: Annotated[
        Literal["fail", "null", "column", "deadletter"],
        Doc(
            "What to do with a payload that is not of the schema: fail and name its sequence, make "
            "`value` null, keep it with the reason in `bad_data` and `bad_reason`, or publish it "
            "to `badRecordsSubject` and leave the row out."
        ),
    ] = "fail"
    bad_records_subject: Annotated[
        str, Doc("Where `deadletter` publishes: a subject of a stream other than those read.")
    ] = ""
    # From where to where
    starting_seq: Annotated[
        str,
        Doc(
            "First sequence to read: `earliest` (the default), `latest`, a number, or JSON by "
            "stream. A query that has a checkpoint goes on from there; a stream that is added to "
            "it later is read from its first message, whatever this says."
        ),
    ] = ""
    ending_seq: Annotated[
        str, Doc("Last sequence to read, itself included; `latest` by default. Only for tables.")
    ] = ""
    starting_timestamp: Annotated[
        str,
        Doc(
            "Begin with the first message at or after it: ISO 8601 (UTC if it names no zone), "
            "milliseconds since 1970, or JSON by stream. In place of `startingSeq`."
        ),
    ] = ""
    ending_timestamp: Annotated[
        str, Doc("End before the first message at or after it: as above. Only for tables.")
    ] = ""
    fail_on_data_loss: Annotated[
        bool | None,
        Doc(
            "Fail when messages were removed before they were read; otherwise go on without them. "
            "By default streaming tables fail; tables of a stream at its limits go on and log how "
            "many were removed, and fail if it was deleted and created again, or truncated."
        ),
    ] = None
    # How much at a time
    max_offsets_per_trigger: Annotated[
        Amount, Doc("Sequences in one batch at most, over all streams; 0 is no limit.")
    ] = 0
    max_bytes_per_trigger: Annotated[
        Amount, Doc("The same in bytes, estimated from the streams' averages.")
    ] = 0
    min_offsets_per_trigger: Annotated[
        Amount, Doc("Wait until there are so many, or for `maxTriggerDelay`.")
    ] = 0
    max_trigger_delay: Annotated[str, Doc("How long that waits at most.")] = "15m"
    min_partitions: Annotated[Amount, Doc("Tasks a read is cut into at least.")] = 0
    max_records_per_partition: Annotated[Count, Doc("Sequences in one task at most.")] = 500_000
    # How
    read_mode: Annotated[
        Literal["auto", "consumer", "direct"],
        Doc(
            "`consumer` is fastest; `direct` makes none. `auto` takes `direct` where a consumer "
            "would consume (work queues, interest) or may not be made."
        ),
    ] = "auto"
    consumer_name_prefix: Annotated[
        str, Doc("What names of our short-lived consumers begin with.")
    ] = "spark-"
    poll_timeout_ms: Annotated[
        Milliseconds, Doc("Silence after which a task recreates its consumer.")
    ] = 3_000
    cursor_bucket: Annotated[
        str,
        Doc(
            "A KV bucket that shows how far the query has read, after each batch: sequence, lag in "
            "messages and in seconds by stream. For people and monitoring; the checkpoint counts."
        ),
    ] = ""
    cursor_key: Annotated[
        str, Doc("The key there, one for each query; by default `spark.` and the streams' names.")
    ] = ""
    idle_wait_ms: Annotated[
        Milliseconds, Doc("How long a query waits for new messages before it asks Spark again.")
    ] = 500

    @property
    def fails_on_loss(self) -> bool:
        """True if a missing, recreated or truncated stream is an error."""
        return self.fail_on_data_loss is not False

    @property
    def fails_on_removal(self) -> bool:
        """True if messages that the stream's limits removed are an error in a table too."""
        return self.fail_on_data_loss is True
