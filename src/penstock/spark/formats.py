"""The names under which Spark finds us, and where each lives.

Spark finds a format by itself as `DefaultSource` of a top-level module called `pyspark_*`, one for
each; a session whose workers cannot see those is told by `register`. A format is one class for
reading and writing, so each class named here has both directions of its format.
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


#: Of `spark.sql.redaction.options.regex`, if nothing else is set.
SPARKS_PATTERN: Final = "(?i)url"


def data_source(name: str) -> type[DataSource]:
    """The class behind a format."""
    module, kind = FORMATS[name]
    found: type[DataSource] = getattr(import_module(module), kind)
    return found


def register(spark: SparkSession) -> None:
    """Make every format known to a session, classic or Spark Connect, and keep secrets in options
    out of its plans unless it has patterns of its own."""
    for setting, pattern in REDACTION.items():
        if spark.conf.get(setting, "") in ("", SPARKS_PATTERN):
            spark.conf.set(setting, pattern)
    for name in FORMATS:
        spark.dataSource.register(data_source(name))
