"""Found by Spark through its name: the format `jetstream` needs no registration."""

from penstock.spark.jetstream_source import JetStream as DefaultSource

__all__ = ["DefaultSource"]
