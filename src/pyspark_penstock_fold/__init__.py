"""Found by Spark through its name: the format `penstock-fold` needs no registration."""

from penstock.spark.files.fold_source import PenstockFold as DefaultSource

__all__ = ["DefaultSource"]
