"""Spark connectors: streams, KV buckets, block files and folds as DataFrames, to read and to write.

All of it runs in a Spark driver or its Python workers and needs the extra `penstock[spark]`. It
uses the client packages (`bulk`, `kv`, `fold`) and never imports the server. Names are loaded on
first use: importing this package does not load Spark.
"""

from typing import TYPE_CHECKING

from penstock.spark.formats import register
from penstock.spark.spark_session import session

if TYPE_CHECKING:
    from penstock.spark.query_progress import ProgressListener

__all__ = ["ProgressListener", "register", "session"]


def __getattr__(name: str) -> object:
    if name != "ProgressListener":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.spark.query_progress import ProgressListener

    return ProgressListener
