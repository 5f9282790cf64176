"""Found by Spark through its name: the format `jetstream-kv` needs no registration."""

from penstock.spark.kv.kv_source import JetStreamKv as DefaultSource

__all__ = ["DefaultSource"]
