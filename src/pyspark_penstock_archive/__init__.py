"""Found by Spark through its name: the format `penstock-archive` needs no registration."""

from penstock.spark.jobs.archive_source import PenstockArchive as DefaultSource

__all__ = ["DefaultSource"]
