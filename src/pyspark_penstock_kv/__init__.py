"""Registers the format `jetstream-kv`: Spark discovers this module by its name."""

from penstock.spark.kv.kv_source import JetStreamKv as DefaultSource

__all__ = ["DefaultSource"]
