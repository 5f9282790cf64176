"""Found by Spark through its name: the format `penstock-fold` needs no registration."""

from penstock.spark.folds import PenstockFold as DefaultSource

__all__ = ["DefaultSource"]
