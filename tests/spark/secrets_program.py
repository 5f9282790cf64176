"""Uses secrets in every way that options take them, and prints what Spark shows: run as a program.

Arguments: the server's URL, a directory for event logs, checkpoints and UI pages, an nkey seed, and
another that is for `CREATE TABLE` alone. The server asks for no credentials, so it accepts them.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES = 24
OF_TABLES = "ddl-4711"
"""A secret in `CREATE TABLE`, which Spark logs before it asks any source."""


def use_sql(spark: SparkSession, url: str, seed: str) -> None:
    """Views hide their options, queries of tables too; tables with secrets are refused."""
    with_password = url.replace("://", "://bob:hunter2@")
    for number, options in enumerate((f"url '{with_password}'", f"url '{url}', nkeySeed '{seed}'")):
        using = f"USING jetstream OPTIONS (stream 'EV', {options})"
        spark.sql(f"CREATE TEMPORARY VIEW v{number} {using}")
        spark.sql(f"SELECT count(data) FROM v{number}").explain(True)
        spark.sql(f"SELECT count(data) FROM v{number}").show()
    spark.sql(f"CREATE TABLE plain USING jetstream OPTIONS (url '{url}', stream 'EV')")
    rows = spark.sql("SELECT subject FROM plain WITH (user 'bob', password 'hunter2')")
    rows.explain(True)
    rows.show()
    spark.sql("DESCRIBE EXTENDED plain").show(100, False)
    for format, options in (
        ("jetstream", f"stream 'EV', url '{url.replace('://', f'://bob:{OF_TABLES}@')}'"),
        ("jetstream", f"stream 'EV', url '{url}', nkeySeed '{OF_TABLES}'"),
        ("jetstream", f"stream 'EV', url '{url}', user 'bob', PASSWORD '{OF_TABLES}'"),
        ("`jetstream-kv`", f"bucket 'B', url '{url}', creds '{OF_TABLES}'"),
        ("`penstock-fold`", f"path '/nowhere', storageOptions '{OF_TABLES}'"),
    ):
        try:
            spark.sql(f"CREATE TABLE secret USING {format} OPTIONS ({options})")
        except PySparkException as error:
            print("refused:", error)
    print("tables:", sorted(one.name for one in spark.catalog.listTables() if not one.isTemporary))


def main(url: str, place: str, seed: str) -> None:
    directory = Path(place)
    (directory / "events").mkdir()
    spark = session(
        "secrets",
        "local[1]",
        light=True,
        **{
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": (directory / "events").as_uri(),
            "spark.sql.warehouse.dir": directory / "warehouse",
            "spark.ui.enabled": True,
            "spark.ui.port": 0,
        },
    )
    with_password = url.replace("://", "://bob:hunter2@")
    ways: list[dict[str, Any]] = [
        {"url": with_password},
        {"url": url, "nkeySeed": seed},
        {"url": url, "user": "bob", "password": "hunter2"},
        {"url": url, "token": "tok-en-4711"},
        {"url": url, "creds": "creds-4711"},
        {"url": with_password, "nkeySeed": seed},
    ]
    for number, options in enumerate(ways):
        try:
            rows = spark.read.format("jetstream").options(**options).load("EV")
            rows.explain(True)
            rows.count()
            written = rows.selectExpr("'OUT.a' subject", "data", "seq msgId")
            written.write.format("jetstream").mode("append").options(
                onDuplicate="skip", **options
            ).save("OUT")
            query = (
                spark.readStream.format("jetstream").options(**options).load("EV")
                .selectExpr("'OUT.a' subject", "data", "seq msgId")
                .writeStream.format("jetstream").options(onDuplicate="skip", **options)
                .option("checkpointLocation", str(directory / f"checkpoint-{number}"))
                .trigger(availableNow=True).start("OUT")
            )  # fmt: skip
            query.awaitTermination()
            query.explain(True)
            print(query.lastProgress)
        except PySparkException as error:
            print("failed:", error)
    use_sql(spark, url, seed)
    for number in range(PAGES):
        page = f"{spark.sparkContext.uiWebUrl}/SQL/execution/?id={number}"
        with urllib.request.urlopen(page) as answer:
            (directory / f"page-{number}.html").write_bytes(answer.read())
    spark.stop()
    print("every way was tried")


if __name__ == "__main__":
    main(*sys.argv[1:])
