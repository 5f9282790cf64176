"""Found by Spark through its name: the format `jetstream` needs no registration."""

from penstock.spark.read.source import JetStream as DefaultSource

__all__ = ["DefaultSource"]
