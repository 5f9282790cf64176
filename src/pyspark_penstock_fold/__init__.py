"""Registers the format `penstock-fold`: Spark discovers this module by its name."""

from penstock.spark.files.fold_source import PenstockFold as DefaultSource

__all__ = ["DefaultSource"]
