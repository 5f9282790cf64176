"""Names of the Spark formats and the classes that implement them.

Spark discovers a format as `DefaultSource` of a top-level module called `pyspark_*`, one per
format; call `register` for a session whose workers cannot import those modules. A format is one
class for reading and writing, so each class listed here implements both directions of its format.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from penstock.spark.spark_session import REDACTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

#: Format -> module and class.
FORMATS: Final = {
    "jetstream": ("penstock.spark.jetstream_source", "JetStream"),
    "jetstream-kv": ("penstock.spark.kv.kv_source", "JetStreamKv"),
    "penstock-archive": ("penstock.spark.jobs.archive_source", "PenstockArchive"),
    "penstock-blocks": ("penstock.spark.files.blocks_source", "PenstockBlocks"),
    "penstock-fold": ("penstock.spark.files.fold_source", "PenstockFold"),
}


#: Spark's default of `spark.sql.redaction.options.regex`.
SPARKS_PATTERN: Final = "(?i)url"


def data_source(name: str) -> type[DataSource]:
    """Return the class that implements a format."""
    module, kind = FORMATS[name]
    found: type[DataSource] = getattr(import_module(module), kind)
    return found


def register(spark: SparkSession) -> None:
    """Register every format with a session, classic or Spark Connect.

    Also sets the redaction patterns that keep secret options out of plans, unless the session has
    its own.
    """
    for setting, pattern in REDACTION.items():
        if spark.conf.get(setting, "") in ("", SPARKS_PATTERN):
            spark.conf.set(setting, pattern)
    for name in FORMATS:
        spark.dataSource.register(data_source(name))
