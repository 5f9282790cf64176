"""Registers the format `penstock-archive`: Spark discovers this module by its name."""

from penstock.spark.jobs.archive_source import PenstockArchive as DefaultSource

__all__ = ["DefaultSource"]
