"""Streams, buckets, block files and folds as Spark DataFrames, in and out.

Everything here runs in a Spark driver or in its Python workers and needs the extra
`penstock[spark]`. It stands on the client side (`bulk`, `kv`, `fold`) and never imports the server.
Names load what they need when they are first used: looking at this package does not load Spark.
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
