"""Rows that cannot be stored: named at once, skipped, or kept as dead letters with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from support.spark_sinks import make_stream, stored

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

SCHEMA = "subject string, data string, msgId string, headers map<string,string>"
GOOD = [("OUT.a", "one", "i1", None), ("OUT.b", "two", "i2", {"Kind": "x"})]
BAD: list[tuple[tuple[Any, ...], str]] = [
    ((None, "none", "b1", None), "the row has no subject"),
    (("OUT..x", "dots", "b2", None), "nothing can be published"),
    (("OUT.*", "star", "b3", None), "nothing can be published"),
    (("NOWHERE.x", "where", "b4", None), "no stream takes this subject"),
    (("OTHER.x", "other", "b5", None), "does not belong to stream OUT"),
    (("OUT.c", "x" * 400, "b6", None), "bytes, and the stream takes 300"),
    (("OUT.c", "head", "b7", {"a b": "c"}), "a header's name has a blank"),
]
DELIVERIES = ["exactlyOnce", "strict", "atLeastOnce"]


def frame_of(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


def make_streams(server: ServerUnderTest) -> None:
    make_stream(server, "OUT", allow_atomic=True, max_msg_size=300)
    make_stream(server, "OTHER")
    make_stream(server, "DEAD")


def write(frame: DataFrame, server: ServerUnderTest, **options: Any) -> None:
    chosen = {"url": server.url, "stream": "OUT", "writeId": "w", **options}
    frame.write.format("jetstream").mode("append").options(**chosen).save()


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_bad_row_is_named_with_its_subject_and_reason(
    spark: SparkSession,
    server: ServerUnderTest,
    delivery: str,
    bad: tuple[Any, ...],
    reason: str,
) -> None:
    make_streams(server)
    told = rf"row 2 of partition 0, subject .*({reason}|10054)"
    with pytest.raises(PySparkException, match=told):
        write(frame_of(spark, [*GOOD, bad]), server, delivery=delivery)
    assert stored(server, "OTHER") == []


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_bad_rows_are_skipped_and_the_others_stored(
    spark: SparkSession, server: ServerUnderTest, delivery: str
) -> None:
    make_streams(server)
    rows = [GOOD[0], *(row for row, _ in BAD), GOOD[1]]
    write(frame_of(spark, rows), server, delivery=delivery, onBadRow="skip")
    assert [one.data for one in stored(server, "OUT")] == ["one", "two"]
    assert stored(server, "OTHER") == []


@pytest.mark.parametrize("delivery", ["exactlyOnce", "strict"])
def test_dead_letters_are_published_once_with_reason(
    spark: SparkSession, server: ServerUnderTest, delivery: str
) -> None:
    make_streams(server)
    rows = [GOOD[0], *(row for row, _ in BAD), GOOD[1]]
    letters = {"onBadRow": "deadletter", "deadLetterSubject": "DEAD.letters"}
    for _ in range(2):
        write(frame_of(spark, rows), server, delivery=delivery, **letters)
    assert [one.data for one in stored(server, "OUT")] == ["one", "two"]
    found = stored(server, "DEAD")
    assert [one.data for one in found] == [row[1] for row, _ in BAD]
    for one, (row, reason), number in zip(found, BAD, range(1, 8), strict=True):
        assert reason in one.headers["Penstock-Reason"]
        assert one.headers["Penstock-Subject"] == (row[0] or "")
        assert one.headers["Penstock-Row"] == str(number)


def test_dead_letters_are_written_to_files_with_reason(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    make_streams(server)
    rows = [GOOD[0], *(row for row, _ in BAD), GOOD[1]]
    letters = {"onBadRow": "deadletter", "deadLetterPath": str(tmp_path / "dead")}
    for _ in range(2):
        write(frame_of(spark, rows), server, **letters)
    found = spark.read.parquet(str(tmp_path / "dead")).orderBy("row").collect()
    assert [bytes(one.data).decode() for one in found] == [row[1] for row, _ in BAD]
    assert [one.subject for one in found] == [row[0] for row, _ in BAD]
    assert [one.msgId for one in found] == [row[2] for row, _ in BAD]
    assert all(reason in one.reason for one, (_, reason) in zip(found, BAD, strict=True))


def test_rows_that_stream_refuses_are_dead_letters_too(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    """The stream keeps one message of a subject, and refuses further ones."""
    make_stream(
        server,
        "OUT",
        max_msgs_per_subject=1,
        discard="new",
        discard_new_per_subject=True,
    )
    make_stream(server, "DEAD")
    rows = [("OUT.a", f"{n}", f"i{n}", None) for n in range(3)]
    letters = {"onBadRow": "deadletter", "deadLetterSubject": "DEAD.letters"}
    write(frame_of(spark, rows), server, **letters)
    assert [one.data for one in stored(server, "OUT")] == ["0"]
    found = stored(server, "DEAD")
    assert [one.data for one in found] == ["1", "2"]
    assert all("maximum messages per subject" in one.headers["Penstock-Reason"] for one in found)


def test_dead_letters_that_no_stream_takes_fail_write(
    spark: SparkSession, ours: ServerUnderTest
) -> None:
    make_streams(ours)
    letters = {"onBadRow": "deadletter", "deadLetterSubject": "NOWHERE.letters"}
    with pytest.raises(PySparkException, match=r"dead letters could not be stored under NOWHERE"):
        write(frame_of(spark, [BAD[0][0]]), ours, **letters)
