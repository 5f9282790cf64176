"""Structs written as typed payloads, and read again; values that do not fit are bad rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from support.spark_sinks import make_stream, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)
WAYS = [
    ({"payload": "json"}, "id bigint, name string"),
    ({"payload": "avro", "payloadSchema": AVRO}, AVRO),
]


def orders(spark: SparkSession, name: str = "concat('n', id)") -> DataFrame:
    return spark.range(0, 5, 1, 1).selectExpr(
        "concat('OUT.', id) subject",
        f"named_struct('id', id, 'name', {name}) value",
        "cast(id as string) msgId",
    )


def write(frame: DataFrame, server: ServerUnderTest, **options: Any) -> None:
    chosen = {"url": server.url, "stream": "OUT", "writeId": "w", **options}
    frame.write.format("jetstream").mode("append").options(**chosen).save()


@pytest.mark.parametrize("delivery", ["exactlyOnce", "strict"])
@pytest.mark.parametrize(("options", "schema"), WAYS)
def test_structs_are_read_as_they_were_written(
    spark: SparkSession,
    ours: ServerUnderTest,
    options: dict[str, str],
    schema: str,
    delivery: str,
) -> None:
    make_stream(ours, "OUT", allow_atomic=True)
    write(orders(spark), ours, delivery=delivery, **options)
    read = {**options, "payloadSchema": schema, "subjects": "OUT.>"}
    rows = spark.read.format("jetstream").options(url=ours.url, **read).load("OUT")
    found = rows.orderBy("seq").select("value.id", "value.name").collect()
    assert [tuple(one) for one in found] == [(n, f"n{n}") for n in range(5)]


@pytest.mark.parametrize("delivery", ["exactlyOnce", "strict"])
def test_values_that_do_not_fit_schema_are_bad_rows(
    spark: SparkSession, ours: ServerUnderTest, delivery: str
) -> None:
    make_stream(ours, "OUT", allow_atomic=True)
    make_stream(ours, "DEAD")
    frame = orders(spark, "if(id = 3, null, 'x')")
    avro = {"payload": "avro", "payloadSchema": AVRO, "delivery": delivery}
    told = r"row 3 of partition 0, subject 'OUT.3': cannot be written as avro"
    with pytest.raises(PySparkException, match=told):
        write(frame, ours, **avro)
    make_stream(ours, "OUT", allow_atomic=True)
    write(frame, ours, onBadRow="deadletter", deadLetterSubject="DEAD.letters", **avro)
    assert len([one for one in stored(ours, "OUT") if one.subject.startswith("OUT.")]) == 4
    [letter] = stored(ours, "DEAD")
    assert json.loads(letter.data) == {"id": 3, "name": None}
    assert "cannot be written as avro" in letter.headers["Penstock-Reason"]
