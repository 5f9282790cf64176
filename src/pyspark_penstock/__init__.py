"""Registers the format `jetstream`: Spark discovers this module by its name."""

from penstock.spark.jetstream_source import JetStream as DefaultSource

__all__ = ["DefaultSource"]
