"""No row is lost silently: what lost rows is refused with a reason, or stores all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.spark.query_progress import ProgressListener
from penstock.spark.write.sink_report import read_report
from support.patience import PATIENCE_SECONDS
from support.servers import until
from support.spark_sinks import call, make_stream, stored, with_client

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

ROWS = 60
WINDOW_NS = 600 * 10**9


def publish(server: ServerUnderTest, stream: str, count: int, ids: bool = False) -> None:
    async def work(client: Client) -> None:
        js = client.jetstream()
        for n in range(count):
            headers = {"Nats-Msg-Id": f"{stream}:{n + 1}"} if ids else None
            await js.publish(f"{stream}.{n}", b"row %d" % n, headers=headers)

    with_client(server, work)


def rows_of(spark: SparkSession, server: ServerUnderTest, prefix: str, **options: Any) -> DataFrame:
    """The stream EV, to be written under another subject."""
    read = spark.readStream.format("jetstream").options(url=server.url, **options).load("EV")
    return read.selectExpr(
        f"concat('OUT.{prefix}.', split(subject, '[.]')[1]) subject",
        f"concat('{prefix} ', cast(data as string)) data",
        "stream",
        "seq",
        "timestamp",
    )


def run(frame: DataFrame, server: ServerUnderTest, checkpoint: Path, **options: Any) -> Any:
    """Write to the end; what Spark tells of the last batch."""
    query = (
        frame.writeStream.format("jetstream")
        .options(url=server.url, stream="OUT", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_SECONDS), "the query does not end"
    return query.lastProgress


def write(frame: DataFrame, server: ServerUnderTest, **options: Any) -> None:
    chosen = {"url": server.url, "stream": "OUT", **options}
    frame.write.format("jetstream").mode("append").options(**chosen).save()


def table(spark: SparkSession, count: int, id: str, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr(
        "concat('OUT.', id) subject", "concat('row ', id) data", f"{id} msgId"
    )


# -- ids


def test_source_written_under_two_subjects_is_stored_twice(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    publish(server, "EV", ROWS)
    for prefix in ("raw", "rich"):
        run(rows_of(spark, server, prefix), server, tmp_path / prefix)
    # Another query that writes the very same rows is another write too.
    run(rows_of(spark, server, "raw"), server, tmp_path / "again")
    found = sorted(one.data for one in stored(server, "OUT"))
    expected = [f"{prefix} row {n}" for prefix in ("raw", "raw", "rich") for n in range(ROWS)]
    assert found == sorted(expected)


def test_batch_writes_under_two_subjects_and_of_two_names_are_stored(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT")
    for subject, write_id in (("a", ""), ("b", ""), ("a", "w")):
        frame = spark.sql(
            "SELECT 'EV' stream, id seq, timestamp_micros(id) timestamp, 'x' data FROM range(10)"
        )
        named = {"writeId": write_id} if write_id else {}
        write(frame, server, subject=f"OUT.{subject}", **named)
    assert len(stored(server, "OUT")) == 30


def test_source_that_was_made_again_is_written_in_full(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    for _ in range(2):
        make_stream(server, "EV")
        publish(server, "EV", ROWS)
        run(rows_of(spark, server, "raw", failOnDataLoss="false"), server, tmp_path / "c")
    assert len(stored(server, "OUT")) == 2 * ROWS


def test_source_without_times_in_its_rows_is_refused(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    make_stream(server, "EV")
    frame = rows_of(spark, server, "raw").drop("timestamp")
    with pytest.raises(StreamingQueryException, match="need the column timestamp"):
        run(frame, server, tmp_path / "c")


def test_source_made_again_under_ids_without_times_is_refused_not_lost(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    for n in range(2):
        make_stream(server, "EV")
        publish(server, "EV", ROWS)
        frame = rows_of(spark, server, "raw", failOnDataLoss="false")
        frame = frame.selectExpr("subject", f"concat(data, ' {n}') data", "stream", "seq")
        if n == 0:
            run(frame, server, tmp_path / "c", msgIdColumns="stream,seq")
    with pytest.raises(StreamingQueryException, match="was not stored: stream OUT has its message"):
        run(frame, server, tmp_path / "c", msgIdColumns="stream,seq")


def test_batch_that_older_version_began_is_finished_under_its_ids(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    """Older ids were `stream:seq`; twenty rows of the batch are stored under them."""
    make_stream(server, "EV")
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    publish(server, "EV", ROWS)

    async def before(client: Client) -> None:
        for n in range(20):
            headers = {"Nats-Msg-Id": f"EV:{n + 1}"}
            await client.jetstream().publish(f"OUT.raw.{n}", b"raw row %d" % n, headers=headers)

    with_client(server, before)
    run(rows_of(spark, server, "raw"), server, tmp_path / "c")
    assert sorted(one.data for one in stored(server, "OUT")) == sorted(
        f"raw row {n}" for n in range(ROWS)
    )
    publish_more = {"EV.100": b"more"}

    async def after(client: Client) -> None:
        for subject, data in publish_more.items():
            await client.jetstream().publish(subject, data)

    with_client(server, after)
    run(rows_of(spark, server, "raw"), server, tmp_path / "c")
    assert stored(server, "OUT")[-1].headers["Nats-Msg-Id"].startswith(f"EV:{ROWS + 1}:")


def test_ids_of_the_first_scheme_are_kept_on_request(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT")
    publish(server, "EV", 3)
    run(rows_of(spark, server, "raw"), server, tmp_path / "c", idScheme="1")
    found = {one.headers["Nats-Msg-Id"] for one in stored(server, "OUT")}
    assert found == {"EV:1", "EV:2", "EV:3"}


# -- ids that repeat


@pytest.mark.parametrize("parts", [1, 2])
def test_id_that_repeats_within_write_is_named(
    spark: SparkSession, server: ServerUnderTest, parts: int
) -> None:
    make_stream(server, "OUT")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    try:
        frame = table(spark, 200, "concat('id-', id % 100)", parts)
        with pytest.raises(PySparkException, match=r"message id 'id-\d+'"):
            write(frame, server)
        make_stream(server, "OUT")
        write(frame, server, onDuplicate="skip")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(stored(server, "OUT")) == 100


def test_ids_that_another_write_used_are_named(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT")
    write(table(spark, 10, "id"), server)
    with pytest.raises(PySparkException, match=r"has its message id '\d' at sequence"):
        write(table(spark, 10, "id"), server)


@pytest.mark.parametrize("same_task", [True, False])
def test_id_that_repeats_within_streaming_batch_is_named(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path, same_task: bool
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    publish(server, "EV", ROWS)
    parts = {} if same_task else {"minPartitions": 2}
    frame = rows_of(spark, server, "raw", **parts).selectExpr(
        "'OUT.a' subject", "'the same' data", f"seq % {ROWS // 2} msgId"
    )
    with pytest.raises(StreamingQueryException, match="message id '"):
        run(frame, server, tmp_path / "c")


def test_id_of_earlier_batch_is_named(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    """Same id, subject and payload: only the batch tells the rows apart."""
    make_stream(server, "EV")
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    publish(server, "EV", 4)
    frame = rows_of(spark, server, "raw", maxOffsetsPerTrigger=1).selectExpr(
        "'OUT.a' subject", "'beat' data", "'device' msgId"
    )
    with pytest.raises(StreamingQueryException, match="although batch 1 was not tried before"):
        run(frame, server, tmp_path / "c")
    run(frame, server, tmp_path / "d", onDuplicate="skip")


def test_every_repeated_row_is_compared_with_what_is_stored(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    """A repeated batch whose last row is not the one that was stored."""
    make_stream(server, "EV")
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    publish(server, "EV", ROWS)
    for last in ("a", "b"):
        frame = rows_of(spark, server, "raw").selectExpr(
            "subject", f"if(seq = {ROWS}, '{last}', data) data", "stream", "seq", "timestamp"
        )
        if last == "a":
            run(frame, server, tmp_path / "c")
            (tmp_path / "c" / "commits" / "0").unlink()
            (tmp_path / "c" / "commits" / ".0.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match=f"at sequence {ROWS}, and that is another"):
        run(frame, server, tmp_path / "c")


def test_copied_rollups_remove_no_rows(spark: SparkSession, server: ServerUnderTest) -> None:
    """Tasks store rows in any order, so a rollup would remove rows that came after it."""
    for name in ("EV", "OUT"):
        make_stream(server, name, allow_rollup_hdrs=True)

    async def fill(client: Client) -> None:
        js = client.jetstream()
        await js.publish("EV.a", b"0", headers={"Nats-Rollup": "all", "Kind": "x"})
        for n in range(1, ROWS):
            await js.publish("EV.a", b"%d" % n)

    with_client(server, fill)
    rows = spark.read.format("jetstream").options(url=server.url).load("EV")
    backwards = rows.orderBy(rows.seq.desc()).coalesce(1)
    write(backwards.drop("subject"), server, subject="OUT.a")
    found = stored(server, "OUT")
    assert len(found) == ROWS
    assert found[-1].headers["Kind"] == "x"


# -- the target


def test_rows_of_stream_that_was_made_again_meanwhile_are_missed(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT")
    url = server.url

    def again(batches: Any) -> Any:
        """The stream is created again between two batches of rows."""
        import asyncio
        import json

        import nats
        from pyspark import TaskContext

        async def make() -> None:
            client = await nats.connect(url)
            await client.request("$JS.API.STREAM.DELETE.OUT", b"")
            config = {"name": "OUT", "subjects": ["OUT.>"]}
            await client.request("$JS.API.STREAM.CREATE.OUT", json.dumps(config).encode())
            await client.close()

        for number, batch in enumerate(batches):
            if number == 1 and TaskContext.get().partitionId() == 0:  # type: ignore[union-attr]
                asyncio.run(make())
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    try:
        frame = table(spark, 200, "id", 1).selectExpr(
            "subject", "data", "cast(msgId as string) msgId"
        )
        moved = frame.mapInArrow(again, "subject string, data string, msgId string")
        with pytest.raises(PySparkException, match="was deleted and created again while rows"):
            write(moved, server)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


# -- dead letters


def test_dead_letters_of_two_writes_are_kept(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    """Also if the writes have no names, and the bad rows are the same."""
    for name in ("OUT", "OTHER", "DEAD"):
        make_stream(server, name)
    bad = spark.sql("SELECT CAST(null AS string) subject, 'bad' data, 'b' msgId")
    for stream in ("OUT", "OUT", "OTHER"):
        letters = {"stream": stream, "onBadRow": "deadletter"}
        write(bad, server, **letters, deadLetterSubject="DEAD.x")
        write(bad, server, **letters, deadLetterPath=str(tmp_path / "letters"))
    assert len(stored(server, "DEAD")) == 3
    assert spark.read.parquet(str(tmp_path / "letters")).count() == 3


def test_dead_letters_of_named_write_are_kept_once(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    for name in ("OUT", "DEAD"):
        make_stream(server, name)
    bad = spark.sql("SELECT CAST(null AS string) subject, 'bad' data, 'b' msgId")
    for _ in range(2):
        letters = {"writeId": "w", "onBadRow": "deadletter"}
        write(bad, server, **letters, deadLetterSubject="DEAD.x")
        write(bad, server, **letters, deadLetterPath=str(tmp_path / "letters"))
    assert len(stored(server, "DEAD")) == 1
    assert spark.read.parquet(str(tmp_path / "letters")).count() == 1


# -- subjects of other streams


@pytest.mark.parametrize("delivery", ["exactlyOnce", "atLeastOnce", "strict"])
def test_row_with_subject_of_another_stream_is_not_stored(
    spark: SparkSession, server: ServerUnderTest, delivery: str
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    make_stream(server, "OTHER", allow_atomic=True)
    frame = table(spark, 4, "id", 1).selectExpr(
        "if(msgId = 2, 'OTHER.x', subject) subject", "data", "cast(msgId as string) msgId"
    )
    told = r"row 2 of partition 0, subject 'OTHER.x': the subject does not belong to stream OUT"
    with pytest.raises(PySparkException, match=told):
        write(frame, server, delivery=delivery, writeId="w")
    assert stored(server, "OTHER") == []


# -- the ledger and other queries


def test_new_query_under_write_id_of_another_writes_all_its_rows(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT", allow_atomic=True)
    publish(server, "EV", ROWS)
    strict = {"delivery": "strict", "writeId": "w"}
    read = {"maxOffsetsPerTrigger": ROWS // 3}
    run(rows_of(spark, server, "raw", **read), server, tmp_path / "a", **strict)
    run(rows_of(spark, server, "rich", **read), server, tmp_path / "b", **strict)
    found = sorted(one.data for one in stored(server, "OUT"))
    assert found == sorted(f"{p} row {n}" for p in ("raw", "rich") for n in range(ROWS))


def test_write_id_is_for_batch_write_or_for_query(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT", allow_atomic=True)
    publish(server, "EV", ROWS)
    strict = {"delivery": "strict", "writeId": "w"}
    write(table(spark, 3, "id", 1), server, **strict)
    with pytest.raises(StreamingQueryException, match="is that of a batch write"):
        run(rows_of(spark, server, "raw"), server, tmp_path / "a", **strict)


def test_mark_of_older_version_that_is_ahead_is_refused_with_what_to_do(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT", allow_atomic=True)
    publish(server, "EV", ROWS)

    async def mark(client: Client) -> None:
        old = {"batch": 7, "rows": 10, "digest": "00", "done": True}
        await client.jetstream().publish("ledger.OUT.w.0", json.dumps(old).encode())

    with_client(server, mark)
    with pytest.raises(StreamingQueryException, match="set another writeId, or purge"):
        run(
            rows_of(spark, server, "raw"),
            server,
            tmp_path / "a",
            delivery="strict",
            writeId="w",
        )


def test_query_whose_checkpoint_was_set_back_is_refused(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    """Its batches may have other rows than those that the ledger counts under their numbers."""
    make_stream(server, "EV")
    make_stream(server, "OUT", allow_atomic=True)
    publish(server, "EV", ROWS)
    frame = rows_of(spark, server, "raw", maxOffsetsPerTrigger=ROWS // 3)
    run(frame, server, tmp_path / "c", delivery="strict")
    for batch in (1, 2):
        for log in ("commits", "offsets"):
            (tmp_path / "c" / log / f"{batch}").unlink()
            (tmp_path / "c" / log / f".{batch}.crc").unlink(missing_ok=True)
    publish(server, "EV", ROWS)
    whole = rows_of(spark, server, "raw")
    with pytest.raises(StreamingQueryException, match="the checkpoint is older than the stream"):
        run(whole, server, tmp_path / "c", delivery="strict")


# -- numbers


def test_numbers_of_each_batch_are_reported(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_stream(server, "EV")
    make_stream(server, "OUT", max_msg_size=200)
    publish(server, "EV", ROWS)
    frame = rows_of(spark, server, "raw").selectExpr(
        "subject", "if(seq <= 2, repeat('x', 300), data) data", "stream", "seq", "timestamp"
    )
    places = {"reportPath": str(tmp_path / "numbers"), "onBadRow": "skip"}
    told = run(frame, server, tmp_path / "c", **places)
    assert told.sink.numOutputRows == ROWS
    found = read_report(str(tmp_path / "numbers"), str(told.id), told.batchId)
    assert found is not None
    assert (found.rows, found.stored, found.repeated, found.refused) == (ROWS, ROWS - 2, 0, 2)
    assert found.bytes == sum(len(f"raw row {n}") for n in range(2, ROWS))
    assert call(server, "STREAM.INFO.OUT", {})["state"]["messages"] == ROWS - 2


def test_rows_of_repeated_batch_are_reported_as_repeated(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    """A restart repeats a batch whose commit is missing in the checkpoint."""
    make_stream(server, "EV")
    make_stream(server, "OUT", duplicate_window=WINDOW_NS)
    publish(server, "EV", ROWS)
    numbers = str(tmp_path / "numbers")
    listener = ProgressListener(report_path=numbers)
    spark.streams.addListener(listener)
    try:
        for is_repeated in (False, True):
            frame = rows_of(spark, server, "raw")
            query = str(run(frame, server, tmp_path / "c", reportPath=numbers).id)
            seen = (0, ROWS) if is_repeated else (ROWS, 0)
            until(
                lambda query=query, seen=seen: stored_and_repeated(listener, query) == seen,
                "the numbers of the batch",
                PATIENCE_SECONDS,
            )
            (tmp_path / "c" / "commits" / "0").unlink()
            (tmp_path / "c" / "commits" / ".0.crc").unlink(missing_ok=True)
    finally:
        spark.streams.removeListener(listener)
    assert listener.batches[query].is_suspicious  # which the log shows as a warning
    assert len(stored(server, "OUT")) == ROWS
    assert f'penstock_spark_sink_stored_total{{query="{query}"}} {ROWS}\n' in listener.metrics()


def stored_and_repeated(listener: ProgressListener, query: str) -> tuple[int, int] | None:
    numbers = listener.batches.get(query)
    return (numbers.stored, numbers.repeated) if numbers else None
